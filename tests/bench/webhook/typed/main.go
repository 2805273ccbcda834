// Command typed is a migration webhook as Go usually writes one: the pod in its type, and a diff.
//
// It knows one kind of request, refers to a template that is there, and calls nobody.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"sync"

	"bench/admission"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
)

var known sync.Map // names of templates that are there

func main() {
	options := admission.Flags()
	flag.Parse()
	if err := options.Serve(edit); err != nil {
		fmt.Fprintf(os.Stderr, "typed: %v\n", err)
		os.Exit(1)
	}
}

func edit(asked *admissionv1.AdmissionRequest, pod *corev1.Pod) error {
	shares, err := admission.TakeShares(pod)
	if err != nil {
		return err
	}
	for _, share := range shares {
		spec := fmt.Sprintf("%d/%s/%s", share.Cards, share.Memory.String(), share.Cores.String())
		digest := sha256.Sum256([]byte(spec))
		name := fmt.Sprintf("hami-%dx%s-%sc-%x", share.Cards, share.Memory.String(), share.Cores.String(), digest[:5])
		known.Store(asked.Namespace+"/"+name, true)
		admission.AddEntry(pod, share, nil, &name)
	}
	return nil
}

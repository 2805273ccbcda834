// Command claims is a migration webhook that creates a claim for each container before it answers.
//
// Its client is not throttled and speaks protobuf.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"bench/admission"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const unlimited = -1 // queries per second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	options := admission.Flags()
	flag.Parse()
	if err := serve(options, *kubeconfig); err != nil {
		fmt.Fprintf(os.Stderr, "claims: %v\n", err)
		os.Exit(1)
	}
}

func serve(options *admission.Options, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = unlimited
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return options.Serve(func(asked *admissionv1.AdmissionRequest, pod *corev1.Pod) error {
		return edit(client, asked.Namespace, pod)
	})
}

func edit(client kubernetes.Interface, namespace string, pod *corev1.Pod) error {
	shares, err := admission.TakeShares(pod)
	if err != nil {
		return err
	}
	for _, share := range shares {
		claims := client.ResourceV1().ResourceClaims(namespace)
		made, err := claims.Create(context.Background(), claimOf(share), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		admission.AddEntry(pod, share, &made.Name, nil)
	}
	return nil
}

func claimOf(share admission.Share) *resourcev1.ResourceClaim {
	exactly := &resourcev1.ExactDeviceRequest{
		DeviceClassName: admission.Driver,
		AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
		Count:           share.Cards,
		Capacity: &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{
				"cores": share.Cores, "memory": share.Memory,
			},
		},
	}
	request := resourcev1.DeviceRequest{Name: "gpu", Exactly: exactly}
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: share.Entry + "-"},
		Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{request}},
		},
	}
}

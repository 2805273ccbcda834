// Command cluster is one multi-call binary with the parts of a Kubernetes
// control plane and the kubelet: `cluster kube-apiserver --help`. Tests call one
// more part, `cluster celeval`, which shares the scheduler's code.
//
// One binary instead of five shares what they have in common (about 147 MB
// instead of 500) and is linked once. Only the chosen component is constructed,
// because each registers its flags and metrics in process-wide tables.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"hami-dra/cluster/celeval"
)

// components maps a component's name to the constructor of its command.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// component finds which component is meant: the name of the link by which the
// binary was called, or else its first argument, which is then removed.
func component() string {
	name := filepath.Base(os.Args[0])
	if _, known := components[name]; known || name == "etcd" {
		return name
	}
	if len(os.Args) < 2 {
		return ""
	}
	name = os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	return name
}

func main() {
	name := component()
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	if name == "celeval" {
		evaluate()
		return
	}
	build, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "cluster: found component %q, expected etcd, kube-apiserver, "+
			"kube-controller-manager, kube-scheduler, kubelet or celeval\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}

func evaluate() {
	if err := celeval.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "celeval: %v\n", err)
		os.Exit(1)
	}
}

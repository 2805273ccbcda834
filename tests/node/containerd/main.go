// Command containerd is containerd and its command line in one binary, for the
// real node of the tests: called as `ctr` it is ctr.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	ctr "github.com/containerd/containerd/v2/cmd/ctr/app"
)

func main() {
	called, name := command.App(), "containerd"
	if filepath.Base(os.Args[0]) == "ctr" {
		called, name = ctr.New(), "ctr"
	}
	if err := called.Run(context.Background(), os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

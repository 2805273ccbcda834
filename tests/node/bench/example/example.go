//go:build tools

// Package example names the Kubernetes example driver, beside which the agent is measured.
package example

import _ "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"

// Package command runs the `bigfleet` command, as its users build it, against real control planes.
//
// The command's own scripts (services/bigfleet/internal/script) use simulated clusters, which know no definitions and no rights.
// Here is what only a real kube-apiserver can show: `up --kubeconfig`, `crds apply|diff`, and the doctor's checks of a cluster.
// It looks at exit codes, at what is printed, and at the objects in the cluster; never into the process.
//
// Start at up_test.go.
package command

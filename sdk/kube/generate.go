// Package kube is the root of the module that other programs import to work with BigFleet's custom resources. It holds
// no code of its own: the Go types are in v1alpha1, the CustomResourceDefinitions in crds. `go generate` here refreshes
// the deep copies, the definitions and every copy of them under deploy/.
package kube

//go:generate ../../.bin/controller-gen object paths=./v1alpha1
//go:generate ../../.bin/controller-gen crd paths=./v1alpha1 output:crd:dir=./crds
//go:generate go run ./internal/crdcopy -from crds -to ../../deploy

package resource

import "strings"

// Limits of a Node that providers need not state. A machine that does not name one has not none of it.
const (
	Pods         = "pods"
	volumePrefix = "attachable-volumes-"

	podsDefault = 110_000 // default of the kubelet's maxPods
	noLimit     = 1 << 40
)

// IsLimit reports whether a resource is a limit of the kubelet or of a CSI driver, not something that a machine is made of.
func IsLimit(name string) bool { return name == Pods || strings.HasPrefix(name, volumePrefix) }

// Unstated is what a machine has of a resource that its provider does not name (ENG-3.8).
func Unstated(name string) int64 {
	switch {
	case name == Pods:
		return podsDefault
	case strings.HasPrefix(name, volumePrefix):
		return noLimit
	}
	return 0
}

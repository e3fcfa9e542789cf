package drain

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// state is what survives this process, in the annotation of the Node (OP-8.9).
type state struct {
	Instruction       string `json:"instruction"`
	Machine           string `json:"machine"`
	Deadline          int64  `json:"deadline"` // Unix seconds
	WasUnschedulable  bool   `json:"wasUnschedulable,omitempty"`
	PreemptorPriority int32  `json:"preemptorPriority,omitempty"`
	Cause             string `json:"cause,omitempty"` // of the instruction, as in the wire contract
}

// voluntary reports whether the machine is not needed: then Pods marked do-not-disrupt stay (OP-9.2).
func (s state) voluntary() bool { return s.Cause == pb.ReclaimInstruction_CAUSE_VOLUNTARY.String() }

func (s state) deadline() time.Time { return time.Unix(s.Deadline, 0) }

func (s state) text() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(b)
}

// stateOf reads the annotation of a Node. ok is false when there is none, or none that can be read.
func stateOf(n *corev1.Node) (s state, ok bool) {
	text, found := n.Annotations[v1alpha1.AnnotationDrain]
	if !found || json.Unmarshal([]byte(text), &s) != nil || s.Instruction == "" {
		return state{}, false
	}
	return s, true
}

// cordonPatch makes a Node unschedulable and notes the drain, in one write (OP-8.1).
func cordonPatch(s state) []byte {
	b, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDrain: s.text()}},
		"spec":     map[string]any{"unschedulable": true},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// releasePatch takes the note of a drain away, and makes the Node schedulable again if asked.
func releasePatch(uncordon bool) []byte {
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDrain: nil}}}
	if uncordon {
		patch["spec"] = map[string]any{"unschedulable": nil}
	}
	b, err := json.Marshal(patch)
	if err != nil {
		panic(err)
	}
	return b
}

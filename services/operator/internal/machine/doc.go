// Package machine knows which Node belongs to which machine.
//
// The shard names machines; the cluster names Nodes. A Registry joins both by the first rule that matches: the label
// bigfleet.lucy.sh/machine-id, the provider id, the node name that the shard gave, the machine id as a node name. Labels
// are set by kubelets, so a label alone must not let one node name another: where two Nodes could be the machine, or a
// label contradicts a provider id, the answer is Ambiguous and no part of the operator acts.
//
// A Registry holds no timer and calls no API. It is safe for concurrent use. Start at Registry.Find.
// Tests cite the operator specification as OP-n.n.
package machine

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelValue is how a machine id stands in a label: as it is where that is legal, else as a hash (OP-10.2).
func LabelValue(id string) string {
	if id != "" && len(validation.IsValidLabelValue(id)) == 0 {
		return id
	}
	h := sha256.Sum256([]byte(id))
	return "h-" + hex.EncodeToString(h[:16])
}

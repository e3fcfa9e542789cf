package aggregate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// OP-5.14, OP-5.15: machines carry the name of a gang for its life, so the same term has the same name in every version. The
// name below is the SHA-256 of
//
//	topology "topology.bigfleet/rack"
//	namespaces "team-a" "team-b"
//	namespaces where nothing
//	pods where "app" = "web"; "tier" = "1"; "zone" "In" "a" "b"; all
func TestTheNameOfAGangIsForLife(t *testing.T) {
	term := &v1alpha1.CoLocation{
		TopologyKey: "topology.bigfleet/rack", Namespaces: []string{"team-b", "team-a", "team-b"},
		LabelSelector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"tier": "1", "app": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"b", "a", "b"}}},
		},
	}
	if got, want := Group("elsewhere", term), "g1-0af37cb2627edc7a2677926b633b1640"; got != want {
		t.Errorf("the gang is %s, want %s", got, want)
	}
}

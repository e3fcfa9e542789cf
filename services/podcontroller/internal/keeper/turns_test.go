package keeper

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
)

// patching is a server that carries merge patches of specs out.
type patching struct{ *server }

func (s patching) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	o := obj.(*Object)
	var change struct {
		Metadata struct{ Annotations map[string]string }
		Spec     v1alpha1.CapacityRequestSpec
	}
	if err := json.Unmarshal(data, &change); err != nil {
		return err
	}
	spec := o.spec()
	spec.Requirements, o.Annotations = change.Spec.Requirements, change.Metadata.Annotations
	data, err = json.Marshal(spec)
	if err != nil {
		return err
	}
	o.Spec = text(data)
	o.Generation++
	s.live[client.ObjectKeyFromObject(obj)] = o
	return nil
}

// OP-15.12: while the shard has no capacity for one alternative, the request states the next one, each for a while, and longer in each round.
// What is served stays, and a controller that begins again continues with the alternative that the request states.
func TestAlternativesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := patching{&server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}}
		k := newKeeper(t, s)
		defer func() { k.Close() }()
		exists := func(key string) corev1.NodeSelectorTerm {
			return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p1"}, Spec: corev1.PodSpec{Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{exists("a"), exists("b")}}}}}}
		k.SetPod(cached.Of(p))
		name := types.NamespacedName{Namespace: "default", Name: Name("p", "p1")}
		var stated []string
		look := func() {
			t.Helper()
			if _, err := k.reconcile(t.Context(), "p1"); err != nil {
				t.Fatal(err)
			}
			if key := s.live[name].spec().Requirements[0].Key; len(stated) == 0 || stated[len(stated)-1] != key {
				stated = append(stated, key)
			}
		}
		say := func(status metav1.ConditionStatus, reason string) {
			o := s.live[name].DeepCopyObject().(*Object)
			o.Status = ObjectStatus{ObservedGeneration: o.Generation, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFulfilled, Status: status, Reason: reason}}}
			s.live[name] = o
			k.SetObject(o)
			look()
		}
		look()
		say(metav1.ConditionFalse, "WaitingForDrain") // something comes
		time.Sleep(time.Hour)
		look()
		say(metav1.ConditionFalse, "NoMatchingSupply")
		time.Sleep(turnMin - time.Second)
		look()
		if !slices.Equal(stated, []string{"a"}) {
			t.Fatalf("stated %v before the first was given up", stated)
		}
		time.Sleep(time.Second)
		look()
		say(metav1.ConditionFalse, "StockOut")
		time.Sleep(turnMin)
		look()
		if !slices.Equal(stated, []string{"a", "b", "a"}) {
			t.Fatalf("stated %v", stated)
		}
		say(metav1.ConditionFalse, "NoMatchingSupply")
		time.Sleep(turnMin)
		look() // the second round takes twice as long
		if len(stated) != 3 {
			t.Fatalf("stated %v", stated)
		}
		time.Sleep(turnMin)
		look()
		say(metav1.ConditionTrue, "Satisfied")
		k.Close()
		k = newKeeper(t, s)
		k.SetPod(cached.Of(p))
		k.SetObject(s.live[name])
		look()
		time.Sleep(time.Hour)
		look()
		if !slices.Equal(stated, []string{"a", "b", "a", "b"}) {
			t.Errorf("stated %v", stated)
		}
	})
}

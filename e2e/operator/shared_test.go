package operator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Scenarios that need a control plane for moments only share two: a control plane takes longer to start than each of them.
// Each brings its own programs and leaves nothing behind.

func TestSessions(t *testing.T) {
	inTurn(t, map[string]func(*testing.T, *world){
		"no API server": testNoRollupWithoutAPIServer, "no extensions": testShardWithoutExtensions, "a wrong server": testWrongServer,
		"a stalled stream": testStalledStream, "templates": testBootstrapTemplate,
	})
}

func TestSuccessors(t *testing.T) {
	inTurn(t, map[string]func(*testing.T, *world){
		"pruning": testPruningAfterAbsence, "hints": testAvailableCapacity, "drains": testSuccessorResumesDrains,
		"replaced Pods": testReplacedPodsCountOnce, "a replaced pod controller": testPodControllerReplaced,
	})
}

func inTurn(t *testing.T, scenarios map[string]func(*testing.T, *world)) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(t *testing.T) { scenarios[name](t, w.with(t)) })
		w.calls.interfere(nil, nil)
		w.clear()
	}
}

// clear deletes what scenarios make.
func (w *world) clear() {
	w.Helper()
	in := client.InNamespace("default")
	w.must(w.client.DeleteAllOf(w.Context(), &appsv1.Deployment{}, in, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.must(w.client.DeleteAllOf(w.Context(), &policyv1.PodDisruptionBudget{}, in))
	left := func(list client.ObjectList, kind client.Object, opts ...client.DeleteAllOfOption) {
		w.until(fmt.Sprintf("no %T is left", kind), func() bool {
			w.must(w.client.DeleteAllOf(w.Context(), kind, opts...))
			w.must(w.client.List(w.Context(), list))
			return meta.LenList(list) == 0
		})
	}
	left(&appsv1.ReplicaSetList{}, &appsv1.ReplicaSet{}, in)
	left(&corev1.PodList{}, &corev1.Pod{}, in, client.GracePeriodSeconds(0))
	left(&v1alpha1.CapacityRequestList{}, &v1alpha1.CapacityRequest{}, in)
	left(&v1alpha1.UpcomingNodeList{}, &v1alpha1.UpcomingNode{})
	left(&v1alpha1.AvailableCapacityList{}, &v1alpha1.AvailableCapacity{})
	left(&corev1.NodeList{}, &corev1.Node{})
}

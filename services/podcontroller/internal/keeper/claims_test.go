package keeper

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/devices"
)

// OP-15.32: as long as it is not known what the claims of a Pod ask for, as after a restart, the request that it has stays and none is made. Then it is made, or
// withdrawn if the claims cannot be counted.
func TestRequestsStayWhileClaimsAreRead(t *testing.T) {
	s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
	k := newKeeper(t, s)
	defer k.Close()
	why, read := "", false
	k.Defaults.Devices = func(*corev1.Pod) (devices.Demand, string, bool) { return devices.Demand{}, why, read }
	claim := "c"
	k.SetPod(cached.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"},
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}}}))
	expect := func(want string, requests int) {
		t.Helper()
		if outcome, err := k.reconcile(t.Context(), "u"); err != nil || outcome != want || len(s.live) != requests {
			t.Errorf("%s, %v, %d requests; want %s, %d", outcome, err, len(s.live), want, requests)
		}
		for _, e := range s.events {
			e(k)
		}
		s.events = nil
	}
	expect(OutcomeWaiting, 0)
	read = true
	expect(OutcomeCreated, 1)
	read = false
	expect(OutcomeWaiting, 1)
	read, why = true, "request r has adminAccess"
	expect(OutcomeDeleted, 0)
}

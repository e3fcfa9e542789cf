package status

import (
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OPS-4.2: a provider that was never read has no age and no machines, and the screen says so.
func TestInventory(t *testing.T) {
	for want, p := range map[string]*bigfleetv1alpha1.ProviderStatus{
		"not read yet": {InventoryAgeSeconds: -1, ListMode: "full"},
		"40 machines, read 3 s ago (incremental)": {InventoryAgeSeconds: 3.2, Machines: 40, ListMode: "incremental"},
	} {
		if got := inventory(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package status

import (
	"bytes"
	"strings"
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// Five silent clusters are named, and how many more there are.
func TestSilentClusters(t *testing.T) {
	for n, want := range map[int32]string{
		2: "silent      a, b: bigfleet explain cluster/a\n",
		5: "silent      a, b, c, d, e: bigfleet explain cluster/a\n",
		7: "silent      a, b, c, d, e and 2 more (bigfleet get clusters): bigfleet explain cluster/a\n",
	} {
		var out bytes.Buffer
		system := env.System()
		system.Out = &out
		shard(app.New(system), part{status: &bigfleetv1alpha1.GetStatusResponse{SilentClusters: n}, silent: strings.Split("abcdefg", "")[:n]})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%d silent clusters: %q is missing in\n%s", n, want, &out)
		}
	}
}

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

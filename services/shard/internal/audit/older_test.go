package audit

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-28.3: this build reads what an earlier one stored. testdata/older holds states and events of simulated shards, as
// bytes of the build that wrote them.
func TestStatesOfEarlierBuildsAreRead(t *testing.T) {
	type size struct{ Machines, Clusters, Rows, Nodes, Open, Timers int }
	for name, want := range map[string]size{
		"state-1": {Machines: 38, Clusters: 3, Rows: 9, Nodes: 18, Open: 1, Timers: 25},
		"state-2": {Machines: 17, Clusters: 3, Rows: 3, Open: 1, Timers: 10},
		"state-3": {Machines: 21, Clusters: 1, Rows: 3, Nodes: 4, Timers: 3},
		"state-4": {Machines: 14, Clusters: 2, Rows: 6, Nodes: 3, Open: 6, Timers: 30},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata/older", name))
		if err != nil {
			t.Fatal(err)
		}
		var s core.Snapshot
		if err := codec.Unmarshal(raw, &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := size{Machines: len(s.Machines), Clusters: len(s.Clusters), Open: len(s.Open), Timers: len(s.Timers)}
		for i := range s.Clusters {
			got.Rows += len(s.Clusters[i].Demand)
			got.Nodes += len(s.Clusters[i].Nodes)
		}
		if got != want {
			t.Errorf("%s holds %+v, want %+v", name, got, want)
		}
		c, _ := core.Restore(nil, &s)
		if n := c.Freeze(inventory.NewFreezeBuffer(0)).Thaw().World.Inventory.Len(); n != want.Machines || c.Steps() != s.Steps+1 {
			t.Errorf("%s: a core with %d machines after %d steps, want %d after %d", name, n, c.Steps(), want.Machines, s.Steps+1)
		}
	}
}

// The same, of the largest event of each kind.
func TestEventsOfEarlierBuildsAreRead(t *testing.T) {
	raw, err := os.ReadFile("testdata/older/events")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[core.EventKind]bool{}
	for len(raw) > 0 {
		n, k := binary.Uvarint(raw)
		var f Frame
		if err := codec.Unmarshal(raw[k:k+int(n)], &f); err != nil {
			t.Fatal(err)
		}
		raw = raw[k+int(n):]
		kinds[f.Kind] = true
		e, err := decode(&f)
		if err != nil {
			t.Fatalf("%s: %v", f.Kind, err)
		}
		body := codec.Marshal(e)
		back, err := decode(&Frame{Kind: f.Kind, Body: body})
		if len(body) == 0 && len(f.Body) > 0 || err != nil || !cmp.Equal(e, back) {
			t.Errorf("%s: %d bytes were read as %d: %v", f.Kind, len(f.Body), len(body), err)
		}
	}
	if len(kinds) < 12 {
		t.Errorf("only %d kinds of events", len(kinds))
	}
}

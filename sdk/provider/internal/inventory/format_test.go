package inventory

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// PROV-16.5: a store of format 1, as released, is read in full: identity, revision, machines in each kind of state, marks,
// tombstones, settings. testdata/format-1.txt is what that format is; it is never written again. A later format adds a file, and an
// upgrade that this test reads it through.
func TestFormat1(t *testing.T) {
	text, err := os.ReadFile("testdata/format-1.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := store.Memory()
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var table, key, value string
		if _, err := fmt.Sscan(line, &table, &key, &value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w := store.Write{}
		for _, one := range store.Tables() {
			if one.String() == table {
				w.Table = one
			}
		}
		if w.Key, err = hex.DecodeString(key); err != nil {
			t.Fatal(err)
		}
		if w.Value, err = hex.DecodeString(value); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit([]store.Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, s, &clock{at: time.Unix(3000, 0)})
	defer func() { _ = r.Close() }()
	if id := r.ID(); hex.EncodeToString(id[:]) != "000102030405060708090a0b0c0d0e0f" {
		t.Errorf("store id %x", id)
	}
	m := r.Get("a/b\x00c").Record
	if m.State != lifecycle.Failed || m.Failure != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT || m.LastError != "drain: x" || m.Cluster != "red" ||
		m.Metadata["\x00k"] != "v\xc3\xa9" || len(m.Metadata) != 3 || m.Host.Ref != "r" || m.Host.Provider != "p" || !m.Lost || m.GraceSeconds != 9 ||
		m.Operation(lifecycle.Configure) != "op-1" || m.Operation(lifecycle.Drain) != "op-2" || m.Doing != lifecycle.Drain ||
		m.Origin != (lifecycle.Origin{Offering: "o", Index: 3, Generation: 2}) || !m.AcceptedAt.Equal(time.Unix(1000, 7)) || m.Shape.Attributes().PricePerHour != 2 {
		t.Errorf("%+v", m)
	}
	if m := r.Get("slot"); m == nil || m.Record.State != lifecycle.Speculative || m.Revision != 2 {
		t.Errorf("%+v", m)
	}
	if p := r.List(Filter{}); len(p.Rows) != 2 || r.Tombstones() != 1 || string(r.Setting("paused")) != "why" {
		t.Errorf("%d rows, %d tombstones, setting %q", len(p.Rows), r.Tombstones(), r.Setting("paused"))
	}
	for machine, want := range map[string]lifecycle.Token{"a/b\x00c": {Epoch: -1 << 63, Sequence: 1<<63 - 1}, "nobody": {Epoch: 4}} {
		slot := r.Acquire(machine)
		if got := slot.Mark("s\xffh"); got == nil || *got != want {
			t.Errorf("mark of %q: %v, want %v", machine, got, want)
		}
		r.Release(slot)
	}
}

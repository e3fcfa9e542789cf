package inventory

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"google.golang.org/protobuf/testing/protocmp"

	"github.com/google/go-cmp/cmp"
)

// keep shields a memory store from Close, so that it can be opened again.
func keep(s store.Store) store.Store { return kept{s} }

type kept struct{ store.Store }

func (kept) Close() error { return nil }

// PROV-12.1, 12.3, 6.14: everything of a record and every mark is there again after the file is opened again.
func TestReopen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.db")
	c := &clock{at: time.Unix(1000, 7)}
	openFile := func() *Inventory {
		s, err := store.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, s, c)
	}
	r := openFile()
	full := lifecycle.NewOwned("a/b\x00c", lifecycle.Origin{Offering: "o", Index: 3, Generation: 2},
		lifecycle.Host{Provider: "p", Ref: "r"}, shape(t, 2), "red", map[string]string{"": "", "\x00k": "v\xc3\xa9", "x": ""}, c.now())
	full.Operations[lifecycle.Configure] = "op-1"
	full.Operations[lifecycle.Drain] = "op-2"
	full.Doing, full.GraceSeconds, full.AcceptedAt, full.Lost = lifecycle.Drain, 9, c.now(), true
	full.State, full.LastError, full.Failure = lifecycle.Failed, "drain: x", bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT
	token := lifecycle.Token{Epoch: -1 << 63, Sequence: 1<<63 - 1}
	r.put(t, full, &MarkMove{"s\xffh", token})
	ghost := r.Acquire("unknown")
	if err := r.Commit(Change{Slot: ghost, Mark: &MarkMove{"s", lifecycle.Token{Epoch: 4}}}); err != nil {
		t.Fatal(err)
	}
	r.Release(ghost)
	r.put(t, lifecycle.NewSlot("gone", lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	before := r.List(Filter{}).Cursor
	r.drop(t, "gone")
	if err := r.SetSetting("paused", []byte("why")); err != nil {
		t.Fatal(err)
	}
	id := r.ID()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	r = openFile()
	defer func() { _ = r.Close() }()
	got := r.Get("a/b\x00c").Record
	if d := cmp.Diff(full, got, cmp.AllowUnexported(lifecycle.Shape{}), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
		cmp.Comparer(func(a, b *lifecycle.Shape) bool { return bytes.Equal(a.Wire(), b.Wire()) })); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	if d := cmp.Diff(full.Machine(), decode(t, r.List(Filter{})).Machines[0], protocmp.Transform()); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	for _, m := range []struct {
		machine, shard string
		token          lifecycle.Token
	}{{"a/b\x00c", "s\xffh", token}, {"unknown", "s", lifecycle.Token{Epoch: 4}}} {
		s := r.Acquire(m.machine)
		if got := s.Mark(m.shard); got == nil || *got != m.token {
			t.Errorf("mark of %q is %v, want %v", m.machine, got, m.token)
		}
		r.Release(s)
	}
	if p := r.List(Filter{Since: before}); p.Complete || !slices.Equal(p.Removed, []string{"gone"}) {
		t.Errorf("the old cursor: complete %v, removed %v", p.Complete, p.Removed)
	}
	if string(r.Setting("paused")) != "why" || r.ID() != id {
		t.Error("setting or store id is lost")
	}
	if all, unknown := r.Marks(); all != 2 || unknown != 1 {
		t.Errorf("%d marks, %d of unknown machines", all, unknown)
	}
}

// PROV-6.16, 6.17: marks of unknown machines are bounded, oldest out first; old ones and those of silent shards go; marks
// of machines stay.
func TestSweepMarks(t *testing.T) {
	c := &clock{at: time.Unix(1_000_000, 0)}
	r := open(t, store.Memory(), c)
	defer func() { _ = r.Close() }()
	age := Age{UnknownMark: time.Hour, SilentShard: 30 * time.Hour, Tombstone: time.Hour}
	touch := func(machine, shard string, seq int64) {
		s := r.Acquire(machine)
		defer r.Release(s)
		if err := r.Commit(Change{Slot: s, Mark: &MarkMove{shard, lifecycle.Token{Sequence: seq}}}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(machine, shard string) bool {
		s := r.Acquire(machine)
		defer r.Release(s)
		return s.Mark(shard) != nil
	}
	r.put(t, lifecycle.NewSlot("real", lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	touch("real", "old", 1)
	for i := range 8 {
		touch(fmt.Sprint("ghost", i), "s", 1)
		c.add(time.Second)
	}
	if err := r.Sweep(age); err != nil {
		t.Fatal(err)
	}
	if has("ghost2", "s") || !has("ghost3", "s") || !has("real", "old") {
		t.Error("of eight ghosts the newest five must stay, and the real machine's mark")
	}
	c.add(59 * time.Minute)
	touch("ghost7", "s", 2) // young again
	c.add(5 * time.Minute)
	if err := r.Sweep(age); err != nil {
		t.Fatal(err)
	}
	if has("ghost6", "s") || !has("ghost7", "s") || !has("real", "old") {
		t.Error("after an hour only the ghost that spoke again stays")
	}
	c.add(29 * time.Hour)
	touch("real", "new", 1)
	if err := r.Sweep(age); err != nil {
		t.Fatal(err)
	}
	if has("real", "old") || !has("real", "new") {
		t.Error("the silent shard's mark must go, the other's stay")
	}
	r.drop(t, "real")
	if !has("real", "new") {
		t.Error("marks outlive their machine for a while")
	}
	c.add(2 * time.Hour)
	if err := r.Sweep(age); err != nil {
		t.Fatal(err)
	}
	if has("real", "new") {
		t.Error("marks of a removed machine go after the hour")
	}
	if all, unknown := r.Marks(); all != 0 || unknown != 0 {
		t.Errorf("%d marks, %d unknown", all, unknown)
	}
	slots := 0
	for i := range r.shards {
		slots += len(r.shards[i].slots)
	}
	if slots != 0 {
		t.Errorf("%d slots are kept for nothing", slots)
	}
}

// PROV-12.7: after a failed commit nothing is visible and the store is never written again; reads continue.
func TestSickStore(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	broken := &failing{Store: store.Memory()}
	r := open(t, broken, c)
	defer func() { _ = r.Close() }()
	r.put(t, lifecycle.NewSlot("m", lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	broken.fail = true
	s := r.Acquire("m")
	changed := *s.Record()
	changed.State = lifecycle.Creating
	if err := r.Commit(Change{Slot: s, Record: &changed, Mark: &MarkMove{"s", lifecycle.Token{Sequence: 1}}}); err == nil {
		t.Fatal("the commit succeeded")
	}
	if s.Record().State != lifecycle.Speculative || s.Mark("s") != nil || r.WriteError() == nil {
		t.Error("something of the failed commit is visible")
	}
	broken.fail = false
	commits := broken.commits
	if err := r.Commit(Change{Slot: s, Record: &changed}); err == nil || broken.commits != commits {
		t.Error("the store was written again")
	}
	r.Release(s)
	if r.Get("m") == nil || len(r.List(Filter{}).Rows) != 1 {
		t.Error("reads must go on")
	}
}

type failing struct {
	store.Store
	fail    bool
	commits int
}

func (f *failing) Commit(b []store.Write) error {
	f.commits++
	if f.fail {
		return fmt.Errorf("no space left on device")
	}
	return f.Store.Commit(b)
}

// PROV-12.8: what cannot be right is an error and never an empty store.
func TestImpossibleStores(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	base := func() store.Store {
		s := keep(store.Memory())
		r := open(t, s, c)
		r.put(t, lifecycle.NewSlot("m", lifecycle.Origin{}, shape(t, 1), c.now()), &MarkMove{"s", lifecycle.Token{Sequence: 1}})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, w := range map[string]store.Write{
		"newer format": {Table: store.Meta, Key: keyFormat, Value: number(Format + 1)},
		"no id":        {Table: store.Meta, Key: keyStoreID},
		"bad record":   {Table: store.Machines, Key: []byte("m"), Value: []byte{0xff}},
		"bad mark":     {Table: store.Marks, Key: appendMarkKey(nil, "m", "s"), Value: []byte{}},
		"bad mark key": {Table: store.Marks, Key: []byte{9}, Value: []byte{0, 0, 0}},
		"bad removal":  {Table: store.Removals, Key: []byte{1}, Value: []byte("x")},
		"two of one":   {Table: store.Removals, Key: number(1), Value: append(number(0), "m"...)},
	} {
		s := base()
		if err := s.Commit([]store.Write{w}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(config(s, c)); err == nil {
			t.Errorf("%s: opened", name)
		} else {
			t.Log(name+":", err)
		}
	}
}

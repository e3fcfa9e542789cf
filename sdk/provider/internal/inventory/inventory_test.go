package inventory

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func open(t testing.TB, s store.Store, c *clock) *Inventory {
	t.Helper()
	r, err := Open(config(s, c))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func config(s store.Store, c *clock) Config {
	return Config{
		Store: s, Random: rand.Reader, Now: c.now, CommitBatchMax: 16, UnknownMarksMax: 5, TombstonesMax: 4,
		OnCommit: func(int, time.Duration, error) {},
	}
}

func shape(t testing.TB, price float64) *lifecycle.Shape {
	t.Helper()
	s, err := lifecycle.NewShape(lifecycle.Attributes{
		InstanceType: "t", Zone: "z", CapacityType: lifecycle.OnDemand, PricePerHour: price,
		Resources: map[string]string{"cpu": "1"}, Labels: map[string]string{"a": "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (r *Inventory) put(t testing.TB, record *lifecycle.Record, mark *MarkMove) {
	t.Helper()
	s := r.Acquire(record.ID)
	defer r.Release(s)
	if err := r.Commit(Change{Slot: s, Record: record, Mark: mark}); err != nil {
		t.Fatal(err)
	}
}

func (r *Inventory) drop(t testing.TB, id string) {
	t.Helper()
	s := r.Acquire(id)
	defer r.Release(s)
	if err := r.Commit(Change{Slot: s, Remove: true}); err != nil {
		t.Fatal(err)
	}
}

// decode reads a page as a client does.
func decode(t testing.TB, p Page) *bigfleetv1alpha1.MachineList {
	t.Helper()
	list := &bigfleetv1alpha1.MachineList{}
	if err := proto.Unmarshal(p.AppendWire(nil), list); err != nil {
		t.Fatal(err)
	}
	return list
}

// reader follows the inventory through cursors and must always end with the same picture as a full list.
type reader struct {
	cursor   []byte
	scanning map[string]*bigfleetv1alpha1.Machine // a complete scan that continues
	picture  map[string]*bigfleetv1alpha1.Machine
}

// page reads one page of at most max rows; done says that nothing more waits.
func (c *reader) page(t testing.TB, r *Inventory, max int) (done bool) {
	p := r.List(Filter{Max: max, Since: c.cursor})
	list := decode(t, p)
	if max > 0 && len(list.Machines) > max {
		t.Fatalf("%d rows, cap %d", len(list.Machines), max)
	}
	// A scan whose own tombstones are forgotten before it ends (it took a day) begins again. Clients cannot see that; their
	// picture is right after the next scan.
	if p.Complete && (c.scanning == nil || p.Reset != "") {
		c.scanning = map[string]*bigfleetv1alpha1.Machine{}
	}
	into := c.picture
	if p.Complete {
		into = c.scanning
	}
	for _, id := range p.Removed {
		delete(into, id)
	}
	seen := map[string]bool{}
	for _, m := range list.Machines {
		if seen[m.GetId()] || slices.Contains(p.Removed, m.GetId()) {
			t.Fatalf("%s is twice in one answer", m.GetId())
		}
		seen[m.GetId()] = true
		into[m.GetId()] = m
	}
	if p.Complete && !p.More {
		c.picture, c.scanning = c.scanning, nil
	}
	c.cursor = p.Cursor
	return !p.More
}

// PROV-10.4, 10.8, 10.12 to 10.16, 10.19, 12.3: whatever happens between pages, restarts and forgotten tombstones included,
// a reader that feeds cursors back ends with the picture that a full list shows.
func TestReadersConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st, c := keep(store.Memory()), &clock{at: time.Unix(1000, 0)}
		r := open(t, st, c)
		defer func() { _ = r.Close() }()
		readers := []*reader{{}, {}, {}}
		model := map[string]*lifecycle.Record{}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			id := fmt.Sprint("m", rapid.IntRange(0, 12).Draw(rt, "machine"))
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1, 2:
				next := lifecycle.NewSlot(id, lifecycle.Origin{}, shape(t, float64(rapid.IntRange(1, 3).Draw(rt, "price"))), c.now())
				model[id] = next
				r.put(t, next, nil)
			case 3:
				if model[id] != nil {
					delete(model, id)
					r.drop(t, id)
				}
			case 4:
				c.add(time.Duration(rapid.IntRange(0, 100).Draw(rt, "minutes")) * time.Minute)
				if err := r.Sweep(Age{UnknownMark: time.Hour, SilentShard: 10 * time.Hour, Tombstone: time.Hour}); err != nil {
					rt.Fatal(err)
				}
			case 5:
				if err := r.Close(); err != nil {
					rt.Fatal(err)
				}
				r = open(t, st, c)
			default:
				readers[rapid.IntRange(0, 2).Draw(rt, "reader")].page(t, r, rapid.IntRange(1, 5).Draw(rt, "cap"))
			}
		}
		want := map[string]*bigfleetv1alpha1.Machine{}
		for id, record := range model {
			want[id] = record.Machine()
		}
		for i, reader := range readers {
			for range 40 {
				if reader.page(t, r, 3) && reader.scanning == nil {
					break
				}
			}
			if d := cmp.Diff(want, reader.picture, protocmp.Transform()); d != "" {
				rt.Fatalf("reader %d (-want +got):\n%s", i, d)
			}
			if n := len(decode(t, r.List(Filter{Since: reader.cursor})).Machines); n != 0 { // PROV-10.8 (d)
				rt.Fatalf("%d machines changed, but nothing did", n)
			}
		}
		if r.Machines() != len(model) {
			rt.Fatalf("%d machines counted, %d there", r.Machines(), len(model))
		}
	})
}

// PROV-10.9: a commit that changes nothing visible does not move the revision.
func TestQuietCommitsKeepTheRevision(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	r := open(t, store.Memory(), c)
	defer func() { _ = r.Close() }()
	m := lifecycle.NewSlot("m", lifecycle.Origin{}, shape(t, 1), c.now())
	r.put(t, m, nil)
	before := r.List(Filter{}).Cursor
	r.put(t, m, &MarkMove{"s", lifecycle.Token{Epoch: 1, Sequence: 1}})
	inside := *m
	inside.Shape = shape(t, 1) // another copy of an equal shape
	inside.ChangedAt = time.Unix(5, 0)
	r.put(t, &inside, nil)
	if after := r.List(Filter{}).Cursor; !bytes.Equal(before, after) {
		t.Error("the revision moved although nothing visible changed")
	}
	if page := r.List(Filter{Since: before}); len(page.Rows) != 0 || !page.Delta {
		t.Errorf("delta of nothing: %d rows", len(page.Rows))
	}
}

// PROV-10.11: everything that is not a cursor of this store gives the full list.
func TestJunkCursors(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	r, other := open(t, store.Memory(), c), open(t, store.Memory(), c)
	defer func() { _, _ = r.Close(), other.Close() }()
	for i := range 5 {
		r.put(t, lifecycle.NewSlot(fmt.Sprint(i), lifecycle.Origin{}, shape(t, 1), c.now()), nil)
		other.put(t, lifecycle.NewSlot(fmt.Sprint(i), lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	}
	good := r.List(Filter{}).Cursor
	flipped := slices.Clone(good)
	flipped[len(flipped)-6] ^= 1
	junk := map[string][]byte{
		"text": []byte("yesterday"), "long": bytes.Repeat([]byte("x"), 9000), "prefixed": append([]byte("x"), good...),
		"extended": append(slices.Clone(good), 0), "cut": good[1:], "flipped": flipped, "other store": other.List(Filter{}).Cursor,
		"future": cursor{position: 999}.encode(r.ID()),
	}
	for name, b := range junk {
		if p := r.List(Filter{Since: b}); !p.Complete || len(p.Rows) != 5 || p.Reset == "" {
			t.Errorf("%s: complete %v, %d rows, reset %q", name, p.Complete, len(p.Rows), p.Reset)
		}
	}
	if p := r.List(Filter{Since: good}); p.Complete || len(p.Rows) != 0 {
		t.Error("the good cursor did not count")
	}
}

// PROV-10.2: states select; values that are no state select nothing.
func TestStates(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	r := open(t, store.Memory(), c)
	defer func() { _ = r.Close() }()
	r.put(t, lifecycle.NewSlot("slot", lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	r.put(t, lifecycle.NewOwned("host", lifecycle.Origin{}, lifecycle.Host{Provider: "p", Ref: "r"}, shape(t, 1), "", nil, c.now()), nil)
	for _, test := range []struct {
		states []lifecycle.State
		want   []string
	}{
		{nil, []string{"host", "slot"}}, {[]lifecycle.State{lifecycle.Idle}, []string{"host"}},
		{[]lifecycle.State{0}, nil}, {[]lifecycle.State{99, -1}, nil}, {[]lifecycle.State{99, lifecycle.Speculative}, []string{"slot"}},
	} {
		var got []string
		for _, row := range r.List(Filter{States: test.states}).Rows {
			got = append(got, row.ID())
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.states, got, test.want)
		}
	}
}

// PROV-4.3, 6.13: one machine id is one critical section, whether it exists or not.
func TestSlotsExclude(t *testing.T) {
	c := &clock{at: time.Unix(1000, 0)}
	r := open(t, store.Memory(), c)
	defer func() { _ = r.Close() }()
	inside, total := map[string]int{}, 0
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			id := fmt.Sprint(i % 3)
			s := r.Acquire(id)
			defer r.Release(s)
			mu.Lock()
			inside[id]++
			if inside[id] != 1 {
				t.Errorf("%d callers in the slot of %s", inside[id], id)
			}
			total++
			mu.Unlock()
			if i%5 == 0 {
				if err := r.Commit(Change{Slot: s, Mark: &MarkMove{"s", lifecycle.Token{Sequence: int64(i)}}}); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			inside[id]--
			mu.Unlock()
		})
	}
	all.Wait()
	if total != 400 {
		t.Error(total)
	}
}

// A cut must not change under its reader, whatever writers do.
func TestCutsAreImmutable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x revisions
		type taken struct {
			cut  cut
			want []uint64
		}
		var cuts []taken
		live := map[uint64]bool{}
		next := uint64(0)
		for range rapid.IntRange(1, 2000).Draw(rt, "steps") {
			switch k := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case k < 6 || len(live) == 0:
				next++
				live[next] = true
				x.append(&Row{Revision: next})
			case k < 9:
				keys := slices.Sorted(maps.Keys(live))
				gone := keys[rapid.IntRange(0, len(keys)-1).Draw(rt, "gone")]
				delete(live, gone)
				x.remove(gone)
			default:
				cuts = append(cuts, taken{x.cut(), slices.Sorted(maps.Keys(live))})
			}
		}
		cuts = append(cuts, taken{x.cut(), slices.Sorted(maps.Keys(live))})
		for i, c := range cuts {
			got := []uint64{}
			c.cut.walk(0, func(r *Row) bool { got = append(got, r.Revision); return true })
			if !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
				rt.Fatalf("cut %d changed: %d rows, want %d", i, len(got), len(c.want))
			}
		}
		if n := len(x.chunks); n > 2+4*(len(live)+chunkRows)/(chunkRows/4) {
			rt.Fatalf("%d chunks for %d rows", n, len(live))
		}
	})
}

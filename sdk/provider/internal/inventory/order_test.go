package inventory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// gated is a store whose commits wait to be let through, one by one.
type gated struct {
	store.Store
	at   chan []store.Write // a commit that began
	pass chan struct{}
}

func (g *gated) Commit(b []store.Write) error {
	g.at <- b
	<-g.pass
	return g.Store.Commit(b)
}

// hold waits for the next commit and returns its machines; pass lets it through.
func (g *gated) hold() (machines []string) {
	for _, w := range <-g.at {
		if w.Table == store.Machines {
			machines = append(machines, string(w.Key))
		}
	}
	return machines
}

func (g *gated) step() []string {
	machines := g.hold()
	g.pass <- struct{}{}
	return machines
}

func (g *gated) open(t *testing.T) *Inventory {
	t.Helper()
	g.Store, g.at, g.pass = store.Memory(), make(chan []store.Write), make(chan struct{})
	opened := make(chan *Inventory)
	go func() {
		r, err := Open(config(g, &clock{at: time.Unix(1000, 0)}))
		if err != nil {
			panic(err)
		}
		opened <- r
	}()
	for {
		select {
		case <-g.at: // a new store gets its identity
			g.pass <- struct{}{}
		case r := <-opened:
			t.Cleanup(func() { _ = r.Close() })
			return r
		}
	}
}

// waits says how many commits wait behind the one that is being written.
func (r *Inventory) waits(kind queueKind) int {
	r.intake.mu.Lock()
	defer r.intake.mu.Unlock()
	return len(r.intake.waiting[kind])
}

// submitAll begins the commit of one new machine for each id and returns once all of them wait.
func (r *Inventory) submitAll(t *testing.T, kind queueKind, ids ...string) (done chan error) {
	t.Helper()
	done = make(chan error, len(ids))
	for _, id := range ids {
		before := r.waits(kind)
		s := r.Acquire(id)
		go func() {
			defer r.Release(s)
			change := Change{Slot: s, Record: lifecycle.NewSlot(id, lifecycle.Origin{}, shape(t, 1), time.Unix(1000, 0))}
			if kind == bulk {
				done <- r.CommitBulk([]Change{change})
				return
			}
			done <- r.Commit(change)
		}()
		for r.waits(kind) == before {
			time.Sleep(time.Millisecond)
		}
	}
	return done
}

// first begins the commit that the others wait behind.
func (r *Inventory) first(t *testing.T, g *gated) (done chan error) {
	t.Helper()
	done = make(chan error, 1)
	s := r.Acquire("first")
	go func() {
		defer r.Release(s)
		done <- r.Commit(Change{Slot: s, Record: lifecycle.NewSlot("first", lifecycle.Origin{}, shape(t, 1), time.Unix(1000, 0))})
	}()
	g.hold()
	return done
}

// PROV-16.3, 16.4: what comes while a commit is being written goes into the next one, together, up to CommitBatchMax; no reader sees a
// change before the store has it.
func TestCommitsAreJoined(t *testing.T) {
	g := &gated{}
	r := g.open(t)
	done := r.first(t, g)
	if r.Get("first") != nil {
		t.Error("a change is visible before it is stored")
	}
	var ids []string
	for i := range r.config.CommitBatchMax + 3 {
		ids = append(ids, fmt.Sprintf("m%02d", i))
	}
	all := r.submitAll(t, requests, ids...)
	g.pass <- struct{}{}
	if err := <-done; err != nil || r.Get("first") == nil {
		t.Errorf("after its commit: %v, %v", r.Get("first"), err)
	}
	if got := g.step(); !slices.Equal(got, ids[:r.config.CommitBatchMax]) {
		t.Errorf("the next commit has %v, want the oldest %d that waited", got, r.config.CommitBatchMax)
	}
	if got := g.step(); !slices.Equal(got, ids[r.config.CommitBatchMax:]) {
		t.Errorf("the last commit has %v", got)
	}
	for range ids {
		if err := <-all; err != nil {
			t.Error(err)
		}
	}
}

// PROV-16.7: a mutation waits for at most one batch of a reconcile, and the reconcile gets its turn too.
func TestBulkWorkTakesTurns(t *testing.T) {
	g := &gated{}
	r := g.open(t)
	done := r.first(t, g)
	bulks := r.submitAll(t, bulk, "b0", "b1", "b2")
	early := r.submitAll(t, requests, "early")
	g.pass <- struct{}{}
	order := g.step() // the bulk turn of the batch that was being written
	order = append(order, g.hold()...)
	late := r.submitAll(t, requests, "late")
	g.pass <- struct{}{}
	for range 3 {
		order = append(order, g.step()...)
	}
	if want := []string{"b0", "early", "b1", "late", "b2"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	for range 3 {
		if err := <-bulks; err != nil {
			t.Error(err)
		}
	}
	for _, one := range []chan error{done, early, late} {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
}

// PROV-16.2: a mutation writes the machine, the mark and the revision, however many machines there are.
func TestAMutationWritesLittle(t *testing.T) {
	counted := &counting{Store: store.Memory()}
	c := &clock{at: time.Unix(1000, 0)}
	r := open(t, counted, c)
	defer func() { _ = r.Close() }()
	for i := range 500 {
		r.put(t, lifecycle.NewSlot(fmt.Sprint(i), lifecycle.Origin{}, shape(t, 1), c.now()), nil)
	}
	counted.tables = nil
	changed := *r.Get("7").Record
	changed.State = lifecycle.Creating
	r.put(t, &changed, &MarkMove{"s", lifecycle.Token{Sequence: 1}})
	if want := []store.Table{store.Meta, store.Machines, store.Marks}; !slices.Equal(counted.tables, want) {
		t.Errorf("one mutation writes %v, want %v", counted.tables, want)
	}
}

// counting remembers the table of each write.
type counting struct {
	store.Store
	tables []store.Table
}

func (c *counting) Commit(b []store.Write) error {
	for _, w := range b {
		c.tables = append(c.tables, w.Table)
	}
	return c.Store.Commit(b)
}

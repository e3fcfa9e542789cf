package planner

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// topState is what the plan at work has taken per domain of a topology key, and what is remembered about the domains.
type topState struct {
	cover.Domains
	touched []int32 // domains something was taken from, perhaps more than once
	classes uint64  // version of the classes that counts are about
	counts  []*domainCounts
	rank    []int32 // by domain: the place of its value among all, by text
	byRank  []int32
	sorted  uint64  // the last plan that put
	order   []int32 // in order: domains by what they have, the least first
	kinds   map[string]*gangKind
	sums    int // dimensions of all domains in all sums
	key     []byte
}

// topologies is the domains of each topology key: what the plan at work has taken, and what is remembered about them.
type topologies struct {
	*plan
	free *cover.FreePool

	list     []*topState
	before   []*topState // room for the next list
	keys     []string    // that demand asks for,
	version  uint64      // plus 1, of them
	notified int         // how many of free.list they know of
	here     place       // what is being taken lies there
	slots    []cover.Slot
	amounts  classAmounts
	view     []int64
}

// forget forgets what is about matchers, supplies and projections that are gone.
func (ts *topologies) forget() {
	for _, t := range ts.list {
		t.forget()
	}
}

func (t *topState) forget() {
	t.forgetSums()
	t.counts = t.counts[:0]
}

func (t *topState) forgetSums() {
	t.sums = 0
	clear(t.kinds)
	for _, c := range t.counts {
		clear(c.sums)
	}
}

// begin lists the topologies that demand asks for. Nothing is taken of them yet.
func (ts *topologies) begin() {
	if v := ts.w.Demand.KeysVersion() + 1; ts.version != v {
		ts.version, ts.keys = v, ts.w.Demand.TopologyKeys()
	}
	old := ts.list
	ts.list, ts.before = ts.before[:0], old
	str := ts.w.Space.Strings
	for _, key := range ts.keys {
		id, _ := str.Find(key)
		top := ts.w.Inventory.TopologyOf(id)
		at := slices.IndexFunc(old, func(t *topState) bool { return t.Top == top })
		if at < 0 {
			ts.list = append(ts.list, &topState{Domains: cover.Domains{Top: top, ByClass: top.ByClass(), Plan: ts.plans}, kinds: map[string]*gangKind{}})
			continue
		}
		old[at].reset(ts.plans)
		ts.list = append(ts.list, old[at])
	}
	clear(old[:cap(old)]) // what is known of keys that are gone
}

// reset forgets what the plan before took.
func (t *topState) reset(plan uint64) {
	t.Plan = plan
	for _, d := range t.touched {
		for _, c := range t.counts {
			c.forget(d)
		}
	}
	t.touched = t.touched[:0]
}

// rankDomains gives each domain its place by text, so that a tie is broken by comparing numbers.
func (t *topState) rankDomains(p *plan) {
	if len(t.rank) == len(t.Top.Domains) {
		return
	}
	order := make([]int32, len(t.Top.Domains))
	for d := range order {
		order[d] = int32(d)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return strings.Compare(p.text(t.Top.Domains[a].Value), p.text(t.Top.Domains[b].Value))
	})
	t.rank = make([]int32, len(order))
	for place, d := range order {
		t.rank[d] = int32(place)
	}
	t.byRank, t.sorted = order, 0
	clear(t.kinds)
}

func (ts *topologies) of(key symbol.ID) *topState {
	t := ts.find(key)
	if t != nil && (!t.ByClass || len(t.counts) > 0) {
		ts.notify()
	}
	return t
}

// find returns the topology of a key. What was taken may not be counted in it yet.
func (ts *topologies) find(key symbol.ID) *topState {
	for _, t := range ts.list {
		if t.Top.Key == key {
			return t
		}
	}
	return nil
}

// notify brings the topologies up to date with what was taken. Needs that ask for no domain do not wait for it.
func (ts *topologies) notify() {
	for ; ts.notified < len(ts.free.Taken); ts.notified++ {
		kind := ts.free.Kinds[ts.notified]
		ts.count(ts.free.Taken[ts.notified], kind.Class(), kind.Pool(), 1)
	}
}

// count counts a machine as taken (by 1) or given back (by -1) in each topology.
func (ts *topologies) count(i inventory.Index, class uint32, k inventory.Pool, by int32) {
	for _, t := range ts.list {
		switch {
		case t.ByClass && len(t.counts) == 0:
		case by > 0 && ts.here.top == t:
			ts.countTaken(t, ts.here.d, class, k, by)
		default:
			if v, has := ts.w.Inventory.ValueIn(class, i, t.Top.Key); has {
				if d, known := t.Top.Domain(v); known {
					ts.countTaken(t, d, class, k, by)
				}
			}
		}
	}
}

// countTaken keeps a topology right when a free machine of a domain is taken (by 1) or given back (by -1).
func (ts *topologies) countTaken(t *topState, d int32, class uint32, k inventory.Pool, by int32) {
	if n := len(t.touched); n == 0 || t.touched[n-1] != d {
		t.touched = append(t.touched, d)
	}
	for _, c := range t.counts {
		if c.plan != ts.plans {
			c.forget(d) // it is counted again when it is looked at
		} else if c.m.Has(class) {
			c.move(d, k, ts.cat.SupplyNumber[class], -by)
		}
	}
	if !t.ByClass {
		t.Take(class, d, k, by)
	}
}

// domainCounts is what each domain has free for matchers that match the same classes, by supply. It is kept from plan to plan; what a plan takes
// is subtracted as it is taken.
type domainCounts struct {
	m        *match.Matcher // one of them
	set      uint32         // number of the set of classes
	plan     uint64         // the last plan that brought it up to date
	supplies int            // length of a row
	since    uint64         // number of the next change of the topology
	known    []bool         // by domain: it is counted
	n        [2][]int32
	epoch    uint64  // grows when log starts again
	log      []int32 // domains that changed, in order
	sums     map[string]*domainSums
	key      []byte
}

// move counts machines that came to a domain, or left it.
func (c *domainCounts) move(d int32, k inventory.Pool, supply uint32, by int32) {
	c.n[k][int(d)*c.supplies+int(supply)] += by
	c.note(d)
}

// note logs that a domain changed.
func (c *domainCounts) note(d int32) {
	if len(c.log) == logMax {
		c.log, c.epoch = c.log[:0], c.epoch+1
	}
	c.log = append(c.log, d)
}

// logMax bounds the log of changed domains. A reader that misses entries checks every domain.
const logMax = 1 << 16

// countsOf returns the counts of a matcher, up to date.
func (ts *topologies) countsOf(t *topState, m *match.Matcher) *domainCounts {
	set := ts.cat.SetOf(m)
	at := slices.IndexFunc(t.counts, func(c *domainCounts) bool { return c.set == set })
	if at < 0 {
		if n := len(t.counts); n == countsMax || n*len(t.Top.Domains)*ts.cat.Supplies() > countedMax {
			t.forget()
		}
		ts.notify() // the counts begun below include what was taken before
		t.counts = append(t.counts, &domainCounts{m: m, set: set, supplies: ts.cat.Supplies(), epoch: 1, sums: map[string]*domainSums{}})
		at = len(t.counts) - 1
	}
	c := t.counts[at]
	if c.plan != ts.plans {
		c.plan = ts.plans
		c.sync(ts, t)
	}
	return c
}

// countsMax bounds how many sets of classes are remembered per key, and countedMax their numbers of eight bytes; then all are counted again.
const countsMax, countedMax = 64, 1 << 23

func (c *domainCounts) sync(ts *topologies, t *topState) {
	if len(c.log) > 4*len(t.Top.Domains) {
		c.log, c.epoch = c.log[:0], c.epoch+1
	}
	changes, next, ok := t.Top.Changes(c.since)
	if c.since = next; !ok {
		clear(c.known)
	}
	for _, x := range changes {
		if int(x.Domain) < len(c.known) && c.known[x.Domain] && c.m.Has(x.Class) {
			c.move(x.Domain, x.Pool, ts.cat.SupplyNumber[x.Class], int32(x.By))
		}
	}
	if n := len(t.Top.Domains); len(c.known) < n {
		more := n - len(c.known)
		c.known = append(c.known, make([]bool, more)...)
		for k := range c.n {
			c.n[k] = append(c.n[k], make([]int32, more*c.supplies)...)
		}
	}
	for d, known := range c.known {
		if known {
			continue
		}
		c.known[d] = true
		c.note(int32(d))
		for k := range c.n {
			row := c.n[k][d*c.supplies : (d+1)*c.supplies]
			clear(row)
			for i, cell := range t.Top.Domains[d].Cells[k] {
				if !c.m.Has(cell.Class) {
					continue
				}
				left := t.Left(ts.free, d, inventory.Pool(k), i)
				row[ts.cat.SupplyNumber[cell.Class]] += left
				if left != cell.N { // taken before anybody looked at the domain: the next plan counts it again
					t.touched = append(t.touched, int32(d))
				}
			}
		}
	}
}

// forget makes the next sync count a domain again.
func (c *domainCounts) forget(d int32) {
	if int(d) < len(c.known) {
		c.known[d] = false
	}
}

// place is a domain.
type place struct {
	top *topState
	d   int32
}

// candidatesIn fills a candidate index with what one domain has left for w.
func (ts *topologies) candidatesIn(into *cover.DomainIndex, cl *clusterState, w *needState, t *topState, d int, k inventory.Pool) {
	ts.slots = ts.slots[:0]
	for i, cell := range t.Top.Domains[d].Cells[k] {
		if n := t.Left(ts.free, d, k, i); n > 0 && cl.fits(w, cell.Class) {
			ts.slots = append(ts.slots, cover.Slot{Class: cell.Class, N: n})
		}
	}
	into.Fill(ts.cat, cl.matcher(w), cl.f, w.bucket, ts.slots)
}

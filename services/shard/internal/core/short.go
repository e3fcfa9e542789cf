package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// shortRows are the short rows of one cluster and since when each is. The list is replaced, not changed, and only when the
// cluster's block is: a shard that is out of machines has tens of thousands of short rows, and most stand as they stood.
type shortRows struct {
	of   *engine.Block
	list []shortRow // in the order of the block
}

type shortRow struct {
	at    int32 // position in the block
	key   demand.RowKey
	since int64
}

// since is when a row became short, or 0.
func (s *shortRows) sinceOf(row demand.RowKey) int64 {
	if s != nil {
		for i := range s.list {
			if s.list[i].key == row {
				return s.list[i].since
			}
		}
	}
	return 0
}

func (l *ledger) unmetSince(name string, row demand.RowKey) int64 { return l.unmet[name].sinceOf(row) }

// observeShort keeps since when each row is short, and sums shortfalls by fingerprint: otherwise siblings hide each
// other.
func (l *ledger) observeShort(c *Core, r *engine.Result) {
	l.observeVictims(c, r)
	unmet := make(map[string]*shortRows, len(l.unmet))
	l.since = 0
	for _, b := range r.Blocks {
		if len(b.Missing) == 0 {
			continue
		}
		old := l.unmet[b.Cluster]
		if old == nil || old.of != b {
			old = l.shortIn(c, b, old)
		}
		unmet[b.Cluster] = old
		for i := range old.list {
			if at := old.list[i].since; l.since == 0 || at < l.since {
				l.since = at
			}
		}
	}
	l.unmet = unmet
	l.sumShortfalls(c, r)
	l.logOldest(c)
}

// observeVictims notes the clusters that this plan begins to take machines from: what is short there is so since now, and
// not since the roll-up that once was met (SHARD-27.2).
func (l *ledger) observeVictims(c *Core, r *engine.Result) {
	for _, a := range r.Actions {
		if a.Kind != KindPreempt {
			continue
		}
		if _, again := c.cycle.planned[planKey{c.world.Inventory.ID(a.Machine), a.Kind}]; !again {
			l.lostMachine(c, c.world.Inventory.Cluster(a.Machine))
		}
	}
}

// shortIn lists the short rows of a new block.
func (l *ledger) shortIn(c *Core, b *engine.Block, old *shortRows) *shortRows {
	out := &shortRows{of: b, list: make([]shortRow, 0, len(b.Missing))}
	var before []shortRow
	if old != nil {
		before = old.list
	}
	var moved map[demand.RowKey]int64 // made when the rows come in another order than before
	for i := range b.Verdicts {
		if b.Verdicts[i].Status != engine.Short {
			continue
		}
		n := &b.Needs[i]
		x := shortRow{at: int32(i), key: n.RowKey()}
		switch known := false; {
		case len(before) > 0 && before[0].key == x.key:
			x.since, before = before[0].since, before[1:]
		case len(before) > 0 && moved == nil:
			moved = make(map[demand.RowKey]int64, len(before))
			for k := range before {
				moved[before[k].key] = before[k].since
			}
			fallthrough
		default:
			if x.since, known = moved[x.key]; !known {
				x.since = l.leftShortAt(c, b.Cluster, n)
			}
		}
		out.list = append(out.list, x)
	}
	return out
}

// sumShortfalls sums what rows lack by fingerprint, the members of folded gangs among them. It goes by cluster and not by
// turn, which would jump through the memory of all blocks, and does nothing if no block with short rows is another now: a
// plan that changes nothing says so by sharing its blocks with the one before.
func (l *ledger) sumShortfalls(c *Core, r *engine.Result) {
	if l.summedStands(r) {
		return
	}
	type sum struct {
		*shortfall
		residual, unit resource.Vector
		arrival        int64 // of the row that goes first, whose reason is told
	}
	sums := map[*demand.Form]*sum{}
	var forms []*sum // in the order in which they are met
	l.reasons, l.summed = [8]int{}, l.summed[:0]
	for _, b := range r.Blocks {
		if len(b.Missing) == 0 {
			continue
		}
		l.summed = append(l.summed, b)
		for i := range b.Missing {
			m := &b.Missing[i]
			n, v := &b.Needs[m.Row], &b.Verdicts[m.Row]
			l.reasons[v.Reason]++
			s := sums[n.Form]
			if s == nil {
				s = &sum{arrival: n.Arrival, shortfall: &shortfall{Fingerprint: n.Form.Fingerprint, First: c.now, Priority: n.Form.Priority,
					Reqs: n.Form.Requirements, Reason: v.Reason, Bucket: n.Form.Interruption}}
				if old := l.shortfalls[s.Fingerprint]; old != nil {
					s.First = old.First
				}
				sums[n.Form], forms = s, append(forms, s)
			} else if demand.CompareArrival(n.Arrival, s.arrival) < 0 {
				s.arrival, s.Reason = n.Arrival, v.Reason
			}
			s.residual = s.residual.Add(m.Residual)
			s.unit = s.unit.Max(n.MinUnit)
		}
	}
	short := make(map[string]*shortfall, len(forms))
	order := make([]*shortfall, 0, len(forms))
	dims := c.world.Space.Dimensions
	for _, s := range forms {
		s.Residual, s.MinUnit = s.residual.Quantities(dims), s.unit.Quantities(dims)
		short[s.Fingerprint], order = s.shortfall, append(order, s.shortfall)
	}
	slices.SortFunc(order, func(a, b *shortfall) int { // of a report (SHARD-26.1)
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.First, b.First), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	l.shortfalls, l.order = short, order
}

// summedStands tells whether the sums are of the short rows of this plan.
func (l *ledger) summedStands(r *engine.Result) bool {
	at := 0
	for _, b := range r.Blocks {
		if len(b.Missing) == 0 {
			continue
		}
		if at == len(l.summed) || l.summed[at] != b {
			return false
		}
		at++
	}
	return at == len(l.summed)
}

// logOldest names the three oldest shortfalls when that set changes (SHARD-26.3).
func (l *ledger) logOldest(c *Core) {
	list := slices.Clone(l.order)
	slices.SortStableFunc(list, func(a, b *shortfall) int { return cmp.Compare(a.First, b.First) })
	var names []string
	for _, s := range list[:min(3, len(list))] {
		names = append(names, s.Fingerprint)
	}
	slices.Sort(names)
	if text := strings.Join(names, ", "); text != l.oldest {
		l.oldest = text
		if text != "" {
			c.emit(Sample{Metric: MetricShortfallLog, Label1: fmt.Sprintf("oldest shortfalls: %s", text), Value: int64(len(list))})
		}
	}
}

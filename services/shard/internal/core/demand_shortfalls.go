package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// sinceOf is when a row became short, or 0.
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

func (c *needLedger) unmetSince(name string, row demand.RowKey) int64 {
	return c.unmet[name].sinceOf(row)
}

// rowsToList is how many rows of a plan are short that the plan before did not have.
func (c *needLedger) rowsToList(r *engine.Result) (n int) {
	for _, b := range r.Blocks {
		if old := c.unmet[b.Cluster]; old == nil || old.of != b {
			n += len(b.Missing)
		}
	}
	return n
}

// listShort does what a plan leaves of this: it keeps since when each row is short, and sums shortfalls by fingerprint, as otherwise
// siblings hide each other. When many rows are new, each of the two is a step of its own (SHARD-8.9), and what readers see waits.
func (c *needLedger) listShort() {
	c.listRows()
	c.sumRows()
}

// listShortPart does one of the two.
func (c *needLedger) listShortPart() {
	if c.unlisted == nil {
		c.sumRows()
		return
	}
	c.listRows()
	c.timers.add(c.now+1, timerListShort, "")
}

func (c *needLedger) listRows() {
	r := c.unlisted
	if r == nil {
		return
	}
	c.unlisted, c.unsummed = nil, r
	unmet := make(map[string]*shortRows, len(c.unmet))
	c.since = 0
	for _, b := range r.Blocks {
		if len(b.Missing) == 0 {
			continue
		}
		old := c.unmet[b.Cluster]
		if old == nil || old.of != b {
			old = c.shortIn(b, old)
		}
		unmet[b.Cluster] = old
		for i := range old.list {
			if at := old.list[i].since; c.since == 0 || at < c.since {
				c.since = at
			}
		}
	}
	c.unmet = unmet
}

func (c *needLedger) sumRows() {
	if r := c.unsummed; r != nil {
		c.unsummed = nil
		c.sumShortfalls(r)
		c.logOldest()
	}
}

// observeVictims notes the clusters that this plan begins to take machines from: what is short there is so since now, and
// not since the roll-up that once was met (SHARD-27.2).
func (c *needLedger) observeVictims(r *engine.Result) {
	for _, a := range r.Actions {
		if a.Kind != KindPreempt {
			continue
		}
		if _, again := c.cycle.planned[planKey{c.world.Inventory.ID(a.Machine), a.Kind}]; !again {
			c.lostMachine(c.world.Inventory.Cluster(a.Machine))
		}
	}
}

// shortIn lists the short rows of a new block.
func (c *needLedger) shortIn(b *engine.Block, old *shortRows) *shortRows {
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
				x.since = c.leftShortAt(b.Cluster, n)
			}
		}
		out.list = append(out.list, x)
	}
	return out
}

// add takes in rows of the same form that come after.
func (s *formSum) add(x *formSum) {
	if demand.CompareArrival(x.arrival, s.arrival) < 0 {
		s.arrival, s.reason = x.arrival, x.reason
	}
	s.residual, s.unit = s.residual.Add(x.residual), s.unit.Max(x.unit)
}

// shortSumBlocks is how many blocks with short rows one sum is of: with 5,000 clusters there are about as many sums.
const shortSumBlocks = 64

// sumOf sums the short rows of blocks.
func sumOf(blocks []*engine.Block) *shortSum {
	out := &shortSum{blocks: slices.Clone(blocks)}
	rows := 0
	for _, b := range blocks {
		rows += len(b.Missing)
	}
	out.forms = make([]formSum, 0, rows)
	at := make(map[*demand.Form]int, rows)
	for _, b := range blocks {
		for i := range b.Missing {
			m := &b.Missing[i]
			n, v := &b.Needs[m.Row], &b.Verdicts[m.Row]
			out.reasons[v.Reason]++
			out.forms = addForm(out.forms, at, &formSum{form: n.Form, residual: m.Residual, unit: n.MinUnit, arrival: n.Arrival, reason: v.Reason})
		}
	}
	return out
}

func addForm(list []formSum, at map[*demand.Form]int, x *formSum) []formSum {
	if k, known := at[x.form]; known {
		list[k].add(x)
		return list
	}
	at[x.form] = len(list)
	return append(list, *x)
}

// sumShortfalls sums what rows lack by fingerprint, the members of folded gangs among them. It goes by cluster and not by
// turn, which would jump through the memory of all blocks, and looks only at groups of blocks of which one is another now.
func (c *needLedger) sumShortfalls(r *engine.Result) {
	if !c.sumGroups(r) && !c.restored {
		return
	}
	c.restored = false
	rows := 0
	for _, s := range c.summed {
		rows += len(s.forms)
	}
	forms, at := make([]formSum, 0, rows), make(map[*demand.Form]int, rows)
	c.reasons = [8]int{}
	for _, s := range c.summed {
		for k, n := range s.reasons {
			c.reasons[k] += n
		}
		for i := range s.forms {
			forms = addForm(forms, at, &s.forms[i])
		}
	}
	short, all, order := make(map[string]*shortfall, len(forms)), make([]shortfall, len(forms)), make([]*shortfall, len(forms))
	for i := range forms {
		s, f := &forms[i], &all[i]
		*f = shortfall{Fingerprint: s.form.Fingerprint, First: c.now, Priority: s.form.Priority, Reqs: s.form.Requirements, Reason: s.reason,
			Bucket: s.form.Interruption, sum: s}
		if old := c.shortfalls[f.Fingerprint]; old != nil {
			f.First = old.First
		}
		short[f.Fingerprint], order[i] = f, f
	}
	slices.SortFunc(order, func(a, b *shortfall) int { // of a report (SHARD-26.1)
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.First, b.First), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	dims := c.world.Space.Dimensions
	for i, f := range order {
		if i < shortfallsMax { // a report names no more
			f.Residual, f.MinUnit = f.sum.residual.Quantities(dims), f.sum.unit.Quantities(dims)
		}
		f.sum = nil
	}
	c.shortfalls, c.order = short, order
}

// sumGroups brings the sums up to date and tells whether any is another now.
func (c *needLedger) sumGroups(r *engine.Result) (changed bool) {
	short := make([]*engine.Block, 0, len(c.summed)*shortSumBlocks)
	for _, b := range r.Blocks {
		if len(b.Missing) > 0 {
			short = append(short, b)
		}
	}
	n := 0
	for part := range slices.Chunk(short, shortSumBlocks) {
		switch {
		case n == len(c.summed):
			c.summed, changed = append(c.summed, sumOf(part)), true
		case !slices.Equal(c.summed[n].blocks, part):
			c.summed[n], changed = sumOf(part), true
		}
		n++
	}
	if n < len(c.summed) {
		clear(c.summed[n:])
		c.summed, changed = c.summed[:n], true
	}
	return changed
}

// logOldest names the three oldest shortfalls when that set changes (SHARD-26.3).
func (c *needLedger) logOldest() {
	var oldest []*shortfall
	for _, s := range c.order {
		if len(oldest) == 3 && s.First >= oldest[2].First {
			continue
		}
		at := len(oldest)
		for at > 0 && s.First < oldest[at-1].First {
			at--
		}
		oldest = slices.Insert(oldest, at, s)
		oldest = oldest[:min(3, len(oldest))]
	}
	var names []string
	for _, s := range oldest {
		names = append(names, s.Fingerprint)
	}
	slices.Sort(names)
	if text := strings.Join(names, ", "); text != c.oldest {
		c.oldest = text
		if text != "" {
			c.emit(Sample{Metric: MetricShortfallLog, Label1: fmt.Sprintf("oldest shortfalls: %s", text), Value: int64(len(c.order))})
		}
	}
}

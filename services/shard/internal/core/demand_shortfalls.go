package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// unmetSince is when a row became short, or 0. Each action asks, and thousands of rows can be short: the block of the last plan mostly says where it is.
func (c *needLedger) unmetSince(name string, row demand.RowKey) int64 {
	s := c.unmet[name]
	if s == nil || row == (demand.RowKey{}) {
		return 0
	}
	if s.of != nil {
		if at, ok := c.world.Demand.Position(name, row); ok && at < len(s.of.Needs) && s.of.Needs[at].RowKey() == row {
			if i, short := slices.BinarySearchFunc(s.list, int32(at), func(x shortRow, at int32) int { return cmp.Compare(x.at, at) }); short {
				return s.list[i].since
			}
			return 0
		}
	}
	for i := range s.list {
		if s.list[i].key == row {
			return s.list[i].since
		}
	}
	return 0
}

// rowsToList is how many rows of a plan are to be listed and summed: none if all that are short are those of the plan before. One row that is another now
// sums those of its group again, and brings all into order.
func (c *needLedger) rowsToList(r *engine.Result) (n int) {
	blocks, news := 0, false
	for _, b := range r.Blocks {
		if len(b.Missing) == 0 {
			continue
		}
		old := c.unmet[b.Cluster]
		blocks, n, news = blocks+1, n+len(b.Missing), news || old == nil || old.of != b
	}
	if !news && blocks == len(c.unmet) {
		return 0
	}
	return n
}

// listShort does what a plan leaves of this: it keeps since when each row is short, and sums shortfalls by fingerprint, as otherwise
// siblings hide each other. When many rows are new, it is done in parts, each a step of its own (SHARD-8.9), and what readers see waits.
func (c *needLedger) listShort() {
	for c.listShortPart(math.MaxInt) {
	}
	c.logOldest()
}

// listMore does a part of it, beside the loop.
func (c *needLedger) listMore() {
	more := false
	c.beside(c.partsBeside(), func() { more = c.listShortPart(listRowsPart) }, func() {
		if c.logOldest(); more {
			c.timers.add(c.now+1, timerListShort, "")
		}
	})
}

// listAgain makes the next plan list and sum all rows that are short.
func (c *needLedger) listAgain() {
	c.again = true
	for name, rows := range c.unmet { // order does not matter
		c.unmet[name] = &shortRows{list: rows.list}
	}
}

// isListed reports whether nothing of this is left to do.
func (c *needLedger) isListed() bool { return c.listing == nil && c.summing == nil }

// listRowsPart is how many rows a part lists.
const listRowsPart = 8 * demand.PartRows

// listShortPart does one part, and reports whether some are left.
func (c *needLedger) listShortPart(rows int) (more bool) {
	switch {
	case c.listing != nil && !c.listing.parked:
		c.listing.parked = true
		c.park(c.listing)
	case c.listing != nil:
		if c.listing.part(c, rows) {
			c.unmet, c.since, c.summing = c.listing.unmet, c.listing.since, &summing{r: c.listing.r, at: c.listing.at}
			c.listing = nil
		}
	case c.summing != nil:
		if c.sumShortfalls(c.summing) {
			c.summing, c.unlogged = nil, true
		}
	}
	return !c.isListed()
}

// park says which clusters have gangs that are held from now on, or no more.
func (c *needLedger) park(x *listing) {
	for _, name := range c.parking.Observe(x.r, x.nominal) {
		if cl := c.clusters.get(name); cl != nil {
			cl.holds = true
		}
	}
}

// listing lists the short rows of a plan.
type listing struct {
	r       *engine.Result
	at      int64 // when the plan was used,
	nominal int64 // and its cycle
	parked  bool  // its gangs are looked through
	unmet   map[string]*shortRows
	since   int64 // of the oldest
	block   int   // the next one

	list   *shortRows              // of that block, if it is begun,
	row    int                     // its next row,
	before []shortRow              // what is left of the list before,
	moved  map[demand.RowKey]int64 // and that, once rows come in another order than before
}

// part lists at most so many rows of blocks that are new, and reports whether all are listed.
func (x *listing) part(c *needLedger, rows int) bool {
	for ; x.block < len(x.r.Blocks); x.block++ {
		b := x.r.Blocks[x.block]
		if len(b.Missing) == 0 {
			continue
		}
		list := c.unmet[b.Cluster]
		if list == nil || list.of != b {
			end := min(len(b.Verdicts), x.row+min(rows, len(b.Verdicts)))
			rows -= end - x.row
			if x.shortIn(c, b, end); end < len(b.Verdicts) {
				return false
			}
			list = x.list
			x.list, x.row, x.before, x.moved = nil, 0, nil, nil
		}
		x.unmet[b.Cluster] = list
		for i := range list.list {
			if at := list.list[i].since; x.since == 0 || at < x.since {
				x.since = at
			}
		}
	}
	return true
}

// shortIn lists the short rows of a new block up to a row.
func (x *listing) shortIn(c *needLedger, b *engine.Block, end int) {
	if x.list == nil {
		x.list = &shortRows{of: b, list: make([]shortRow, 0, len(b.Missing))}
		if old := c.unmet[b.Cluster]; old != nil {
			x.before = old.list
		}
	}
	for ; x.row < end; x.row++ {
		if b.Verdicts[x.row].Status != engine.Short {
			continue
		}
		n := &b.Needs[x.row]
		row := shortRow{at: int32(x.row), key: n.RowKey()}
		switch known := false; {
		case len(x.before) > 0 && x.before[0].key == row.key:
			row.since, x.before = x.before[0].since, x.before[1:]
		case len(x.before) > 0 && x.moved == nil:
			x.moved = make(map[demand.RowKey]int64, len(x.before))
			for k := range x.before {
				x.moved[x.before[k].key] = x.before[k].since
			}
			fallthrough
		default:
			if row.since, known = x.moved[row.key]; !known {
				row.since = c.leftShortAt(b.Cluster, n)
			}
		}
		x.list.list = append(x.list.list, row)
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

// summing sums what the rows of a plan lack by fingerprint, the members of folded gangs among them: first by groups of blocks, then all of them, then
// it brings them into the order of a report.
type summing struct {
	r     *engine.Result
	at    int64     // when the plan was used
	known bool      // the groups are summed
	forms []formSum // of all of them
	next  int       // the first of these that is not among the shortfalls
	short map[string]*shortfall
	order []*shortfall
}

// sumShortfalls takes the next of these steps, and reports whether it was the last. It goes by cluster and not by turn, which would jump through the memory
// of all blocks, and looks only at groups of blocks of which one is another now.
func (c *needLedger) sumShortfalls(x *summing) (done bool) {
	switch {
	case !x.known:
		x.known = true
		done = !c.sumGroups(x.r) && !c.again
		c.again = false
	case x.order == nil:
		c.joinGroups(x)
		c.addShortfalls(x)
	case x.next < len(x.forms):
		c.addShortfalls(x)
	default:
		c.orderShortfalls(x)
		done = true
	}
	return done
}

// joinGroups sums the sums of all groups.
func (c *needLedger) joinGroups(x *summing) {
	c.reasons = [8]int{}
	if len(c.summed) == 1 {
		x.forms = c.summed[0].forms
	} else {
		rows := 0
		for _, s := range c.summed {
			rows += len(s.forms)
		}
		at := make(map[*demand.Form]int, rows)
		x.forms = make([]formSum, 0, rows)
		for _, s := range c.summed {
			for i := range s.forms {
				x.forms = addForm(x.forms, at, &s.forms[i])
			}
		}
	}
	for _, s := range c.summed {
		for k, n := range s.reasons {
			c.reasons[k] += n
		}
	}
	x.short, x.order = make(map[string]*shortfall, len(x.forms)), make([]*shortfall, 0, len(x.forms))
}

// addShortfalls makes the shortfalls of the next forms.
func (c *needLedger) addShortfalls(x *summing) {
	forms := x.forms[x.next:min(x.next+listRowsPart, len(x.forms))]
	x.next += len(forms)
	all := make([]shortfall, len(forms))
	for i := range forms {
		s, f := &forms[i], &all[i]
		*f = shortfall{Fingerprint: s.form.Fingerprint, First: x.at, Priority: s.form.Priority, Reqs: s.form.Requirements, Reason: s.reason,
			Bucket: s.form.Interruption, sum: s}
		if old := c.shortfalls[f.Fingerprint]; old != nil {
			f.First = old.First
		}
		x.short[f.Fingerprint] = f
		x.order = append(x.order, f)
	}
}

// orderShortfalls brings the shortfalls into the order of a report (SHARD-26.1), and makes them those that readers see.
func (c *needLedger) orderShortfalls(x *summing) {
	slices.SortFunc(x.order, func(a, b *shortfall) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.First, b.First), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	dims := c.world.Space.Dimensions
	for i, f := range x.order {
		if i < shortfallsMax { // a report names no more
			f.Residual, f.MinUnit = f.sum.residual.Quantities(dims), f.sum.unit.Quantities(dims)
		}
		f.sum = nil
	}
	c.shortfalls, c.order = x.short, x.order
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
	if !c.unlogged {
		return
	}
	c.unlogged = false
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

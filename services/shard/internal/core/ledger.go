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

// ledger is what the core remembers from plan to plan about needs: since when they are short, which gangs are parked,
// how well shares hold, which nodes do not join. Ages count nominal cycles, because with evaluation on arrival a count
// of evaluations is not a time (SHARD-26.2).
type ledger struct {
	parking engine.Parking
	sharing engine.Sharing
	join    engine.Join

	unmet      map[needKey]int64 // since when a row is short
	lost       map[string]int64  // last loss of a machine, by cluster
	shortfalls map[string]*shortfall
	oldest     string // the three oldest, as last logged
	unplaced   int    // rows that are stuck (ENG-11.11), of the last plan
}

type needKey struct {
	cluster string
	row     demand.RowKey
}

// shortfall is what all clusters together lack of one profile (SHARD-26.1).
type shortfall struct {
	Fingerprint string
	First       int64
	Priority    int32
	Residual    []resource.Quantity
	MinUnit     []resource.Quantity
	Reqs        []demand.Requirement
	Reason      engine.UnmetReason
	Group       string
	Bucket      demand.Bucket
}

func (l *ledger) init() {
	l.unmet, l.lost, l.shortfalls = map[needKey]int64{}, map[string]int64{}, map[string]*shortfall{}
}

// nominal is the nominal cycle that a moment lies in.
func (c *Core) nominal(mono int64) int64 { return mono / c.cfg.CycleInterval }

// ageCycles is whole nominal cycles since a moment, plus 1 (SHARD-26.2).
func (c *Core) ageCycles(since int64) int64 { return (c.now-since)/c.cfg.CycleInterval + 1 }

// advance prepares the ledgers for a plan.
func (l *ledger) advance(c *Core) { c.wakePools() }

// plan feeds the ledgers from a new plan (SHARD-6.7).
func (l *ledger) plan(c *Core, r *engine.Result) {
	before := l.parking.Entries()
	l.parking.Observe(r, c.nominal(c.now))
	for _, e := range before { // those whose hold may change with this plan
		c.clusters.ensure(e.Cluster).holds = true
	}
	for _, e := range l.parking.Entries() {
		if e.Stalled+1 >= c.policy.ParkAfter {
			c.clusters.ensure(e.Cluster).holds = true
		}
	}
	for _, name := range l.sharing.Observe(c.world, r, c.policy) {
		c.clusters.ensure(name).facts = true
		c.trigger(triggerNode)
	}
	l.markUnplaced(c)
	l.observeShort(c, r)
}

// markUnplaced tells the engine which rows the scheduler cannot place although they are covered; their verdicts say so
// (ENG-11.14).
func (l *ledger) markUnplaced(c *Core) {
	names := l.sharing.Stuck()
	for _, d := range c.world.Demand.Clusters() {
		if d.Unplaced != nil {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	l.unplaced = 0
	for _, name := range slices.Compact(names) {
		c.world.Demand.SetUnplaced(name, func(n *demand.Need) bool {
			is := l.sharing.Unplaced(name, n.RowKey(), c.now, c.policy)
			if is {
				l.unplaced++
			}
			return is
		})
	}
}

// observeShort keeps since when each row is short, and sums shortfalls by fingerprint: otherwise siblings hide each
// other.
func (l *ledger) observeShort(c *Core, r *engine.Result) {
	unmet := make(map[needKey]int64, len(r.Short))
	short := make(map[string]*shortfall, len(l.shortfalls))
	sums := map[string]map[string]int64{}
	for _, ref := range r.Short {
		if ref.Row >= engine.FoldedRow {
			continue
		}
		b := r.Blocks[ref.Block]
		n, v := &b.Needs[ref.Row], &b.Verdicts[ref.Row]
		key := needKey{b.Cluster, n.RowKey()}
		since, known := l.unmet[key]
		if !known {
			since = l.leftShortAt(c, b.Cluster, n)
		}
		unmet[key] = since
		fp := n.Form.Fingerprint
		s := short[fp]
		if s == nil {
			s = &shortfall{Fingerprint: fp, First: c.now, Priority: n.Form.Priority, Reqs: n.Form.Requirements, Reason: v.Reason,
				Bucket: n.Form.Interruption}
			if old := l.shortfalls[fp]; old != nil {
				s.First = old.First
			}
			short[fp], sums[fp] = s, map[string]int64{}
		}
		if v.Missing >= 0 {
			res := b.Missing[v.Missing].Residual
			for _, q := range res.Quantities(c.world.Space.Dimensions) {
				sums[fp][q.Name] = resource.AddSat(sums[fp][q.Name], q.Milli)
			}
		}
		s.MinUnit = largerOf(s.MinUnit, n.MinUnit.Quantities(c.world.Space.Dimensions))
	}
	for _, fp := range sortedKeys(short) {
		short[fp].Residual = sortedQuantities(sums[fp])
	}
	l.unmet, l.shortfalls = unmet, short
	l.logOldest(c)
}

// leftShortAt is the event that left a need short: its arrival, the change of its demand, or the loss of a machine
// (SHARD-27.2).
func (l *ledger) leftShortAt(c *Core, name string, n *demand.Need) int64 {
	at := n.Arrival
	cl := c.clusters.get(name)
	if cl != nil && cl.disposition == DispositionAccepted && cl.dispAt > at {
		at = cl.dispAt
	}
	if lost := l.lost[name]; lost > at {
		at = lost
	}
	return at
}

func (l *ledger) lostMachine(c *Core, name string) { l.lost[name] = c.now }

func (l *ledger) unmetSince(name string, row demand.RowKey) int64 { return l.unmet[needKey{name, row}] }

// rowsChanged makes the rows of a cluster appear anew in the next publication.
func (l *ledger) rowsChanged(name string) {}

// ordered lists the shortfalls for a report: priority descending, age descending, fingerprint ascending.
func (l *ledger) ordered() []*shortfall {
	out := make([]*shortfall, 0, len(l.shortfalls))
	for _, fp := range sortedKeys(l.shortfalls) {
		out = append(out, l.shortfalls[fp])
	}
	slices.SortStableFunc(out, func(a, b *shortfall) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.First, b.First))
	})
	return out
}

// logOldest names the three oldest shortfalls when that set changes (SHARD-26.3).
func (l *ledger) logOldest(c *Core) {
	list := l.ordered()
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

// after runs what follows a plan: hints and need statuses.
func (l *ledger) after(c *Core) {
	c.hintsDue()
}

func largerOf(a, b []resource.Quantity) []resource.Quantity {
	if len(a) == 0 {
		return b
	}
	m := map[string]int64{}
	for _, q := range a {
		m[q.Name] = q.Milli
	}
	for _, q := range b {
		m[q.Name] = max(m[q.Name], q.Milli)
	}
	return sortedQuantities(m)
}

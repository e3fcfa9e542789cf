package ledger

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// elsewhere is how many units of the needs of one cluster run on machines of other needs (ENG-11.18, 11.19). kube-scheduler puts Pods where
// there is room, so a machine may stay empty that the sum of its row asks for. What it holds is then served elsewhere, and the machine is
// excess.
type elsewhere struct {
	rows    map[demand.RowKey]rowElsewhere
	vacant  map[string]vacancy     // by machine: claimed machines whose nodes are empty
	stated  bool                   // the cluster says which rows are unbound
	unbound map[demand.RowKey]bool // rows that ask for more than Pods that run
	block   *engine.Block          // that was last looked at,
	supply  uint64                 // and the version of the machines of the cluster
}

// rowElsewhere is one row of which units are served elsewhere.
type rowElsewhere struct {
	units int64
	held  int64 // that its own claims and shares hold
}

// vacancy is since when a node is empty while the rows on its machine ask for no more than before.
type vacancy struct{ since, asked int64 }

// of is what is served elsewhere of a row that asks for so many units. When it asks for less, it is unknown which of its Pods ended: its
// own machines stay until they are empty.
func (x rowElsewhere) of(asked int64) rowElsewhere {
	x.units = max(0, min(x.units, asked-x.held))
	return x
}

// ReportUnbound takes the rows of a cluster that ask for more than Pods that run: for Pods without a node yet, or ahead of their Pods. Their
// machines may be empty because what they are for has not come.
func (s *Sharing) ReportUnbound(cluster string, rows map[demand.RowKey]bool) {
	x := &s.entry(cluster).elsewhere
	x.stated, x.unbound = true, rows
}

// observeElsewhere takes back what is served elsewhere where Pods wait or machines hold more, and adds what machines hold that stay empty.
func (e *sharingEntry) observeElsewhere(w *engine.World, b *engine.Block, now int64, p *engine.Policy) (changed bool) {
	x := &e.elsewhere
	for i := range b.Needs {
		n, k := &b.Needs[i], b.Needs[i].RowKey()
		r, had := x.rows[k]
		if !had {
			continue
		}
		if _, covered := e.since[k]; covered && (e.allThere(k) || now-e.since[k] >= p.StuckAfter) {
			r.units -= min(r.units, e.reported[k])
		}
		if b.Verdicts[i].Status != engine.Short {
			r.held = unitsHeld(w, b, int32(i), nil, true)
		}
		r = r.of(unitsOf(n))
		changed = changed || r.units != x.rows[k].units
		if x.rows[k] = r; r.units == 0 {
			delete(x.rows, k)
		}
	}
	d := w.Demand.Cluster(b.Cluster)
	if d == nil || !x.stated {
		x.vacant = nil
		return changed
	}
	_, supply := w.Inventory.Members(d.ID)
	if len(x.vacant) == 0 && x.block == b && x.supply == supply {
		return changed
	}
	x.block, x.supply = b, supply
	waits := len(e.reported) > 0 || now-e.reportedAt > reportLife
	if gone := e.stayEmpty(w, b, now, p); len(gone) > 0 && !waits {
		changed = e.serveElsewhere(w, b, gone) || changed
	}
	return changed
}

// stayEmpty lists the claimed machines whose nodes have been empty for long enough, and keeps since when those of the others are.
func (e *sharingEntry) stayEmpty(w *engine.World, b *engine.Block, now int64, p *engine.Policy) map[inventory.Index]bool {
	x, vacant := &e.elsewhere, map[string]vacancy{}
	gone := map[inventory.Index]bool{}
	for _, c := range b.Claims {
		r := w.Inventory.Row(c.Machine)
		if c.Kind != engine.ClaimBound || r.Seen() != inventory.Configured || r.Foreign() || r.Readiness() != inventory.ReadyOnce || r.Occupancy() != inventory.OccupancyEmpty {
			continue
		}
		asked, may := e.askedOn(b, c)
		if !may {
			continue
		}
		id := w.Inventory.ID(c.Machine)
		v, had := x.vacant[id]
		if !had || asked > v.asked {
			v.since = now
		}
		v.asked = asked
		vacant[id] = v
		if p.EmptyAfter >= 0 && now-v.since >= p.EmptyAfter {
			gone[c.Machine] = true
		}
	}
	x.vacant = vacant
	return gone
}

// askedOn is how many units the rows with a claim or a share on a machine ask for, and whether all of them may be served elsewhere: a gang
// stays where it is.
func (e *sharingEntry) askedOn(b *engine.Block, c engine.Claim) (asked int64, may bool) {
	rows := []int32{c.Row}
	for _, s := range b.Shares {
		if s.Machine == c.Machine {
			rows = append(rows, s.Row)
		}
	}
	for _, row := range rows {
		if row >= engine.FoldedRow {
			return 0, false
		}
		n := &b.Needs[row]
		k := n.RowKey()
		if n.Form.Same != nil || e.elsewhere.unbound[k] || b.Verdicts[row].Status != engine.Met || !wholeUnits(n) {
			return 0, false
		}
		asked = resource.AddSat(asked, unitsOf(n))
	}
	return asked, true
}

// wholeUnits reports whether what a need asks for is a number of its units (ENG-4.12).
func wholeUnits(n *demand.Need) bool {
	all := n.MinUnit.Times(unitsOf(n))
	return !all.IsZero() && all.Equal(&n.Aggregate)
}

// serveElsewhere takes back the headroom that rows have on empty machines, and counts what they ask for there as served elsewhere.
func (e *sharingEntry) serveElsewhere(w *engine.World, b *engine.Block, gone map[inventory.Index]bool) (changed bool) {
	x := &e.elsewhere
	rows := map[int32]bool{}
	for _, c := range b.Claims {
		rows[c.Row] = rows[c.Row] || gone[c.Machine]
	}
	for _, s := range b.Shares {
		rows[s.Row] = rows[s.Row] || gone[s.Machine]
	}
	for i := range b.Needs {
		if !rows[int32(i)] {
			continue
		}
		n, k := &b.Needs[i], b.Needs[i].RowKey()
		asked, r := unitsOf(n), rowElsewhere{held: unitsHeld(w, b, int32(i), gone, false)}
		if room, had := e.headroom.rows[k]; had && room.units > max(0, r.held-asked) { // ENG-11.17
			room.pods, changed = max(0, r.held-asked), true
			room.total = asked + room.pods
			e.headroom.rows[k] = room.of(asked)
		}
		if r.units = asked - r.held; r.units > x.rows[k].units {
			x.rows[k], changed = r, true
		}
	}
	return changed
}

// unitsHeld is how many units of a need its claims and shares hold, but for those on the machines that are left out. Shares of others
// stay on a claimed machine. Of a hard spread every value of the key counts if every is set: one where the row has given back its only machine
// may still count, for a machine of others (ENG-13.9).
func unitsHeld(w *engine.World, b *engine.Block, row int32, without map[inventory.Index]bool, every bool) (units int64) {
	n, cl := &b.Needs[row], w.Demand.Cluster(b.Cluster)
	sum := newUnitSum(w, n)
	if top := w.Inventory.TopologyOf(sum.key); every && sum.spreads && top != nil {
		for i := range top.Domains {
			sum.rooms.Add(top.Domains[i].Value, 0)
		}
	}
	for _, c := range b.Claims {
		if c.Row != row || cl == nil {
			continue
		}
		if without[c.Machine] {
			sum.add(c.Machine, 0)
			continue
		}
		room := roomOf(w, w.Inventory.Row(c.Machine).Class, cl, &n.MinUnit)
		for _, s := range b.Shares {
			if s.Machine == c.Machine && s.Row != row {
				room = room.Sub(unitOf(b, s.Row).Times(s.Units))
			}
		}
		sum.add(c.Machine, unitsIn(&room, n))
	}
	for _, s := range b.Shares {
		if s.Row == row && !without[s.Machine] {
			sum.add(s.Machine, s.Units)
		}
	}
	return sum.units()
}

// unitSum adds up units of one need on machines. Of a hard spread those count that run (ENG-13.9).
type unitSum struct {
	inv   *inventory.Table
	key   symbol.ID // of the hard spread, if spreads
	sum   int64
	rooms match.Rooms

	spreads bool
}

func newUnitSum(w *engine.World, n *demand.Need) *unitSum {
	u := &unitSum{inv: w.Inventory}
	if len(n.Form.Spread) > 0 && n.Form.Same == nil {
		s := n.Form.Spread[0]
		u.key, u.spreads = w.Space.Strings.Find(s.Key)
		u.rooms.Reset(s.MaxSkew, s.MinDomains, nil)
	}
	return u
}

func (u *unitSum) add(i inventory.Index, units int64) {
	if !u.spreads {
		u.sum = resource.AddSat(u.sum, units)
	} else if v, has := u.inv.Value(i, u.key); has {
		u.rooms.Add(v, units)
	}
}

func (u *unitSum) units() int64 { return resource.AddSat(u.sum, u.rooms.Served()) }

// unitOf is the min unit of a row, or of a folded need.
func unitOf(b *engine.Block, row int32) *resource.Vector {
	if row >= engine.FoldedRow {
		return &b.Folded[row-engine.FoldedRow].Need.MinUnit
	}
	return &b.Needs[row].MinUnit
}

// forget drops rows that are gone, and counts the others again for what they ask for now.
func (x *elsewhere) forget(needs []demand.Need) (changed bool) {
	live := make(map[demand.RowKey]rowElsewhere, len(x.rows))
	for i := range needs {
		k := needs[i].RowKey()
		if r, ok := x.rows[k]; ok {
			if r = r.of(unitsOf(&needs[i])); r.units > 0 {
				live[k] = r
			}
		}
	}
	changed = !maps.Equal(live, x.rows)
	x.rows = live
	return changed
}

// ElsewhereEntry is what is served elsewhere of one row.
type ElsewhereEntry struct {
	Row   demand.RowKey `n:"1"`
	Units int64         `n:"2"`
	Held  int64         `n:"3"`
}

// VacantEntry is one claimed machine whose node is empty.
type VacantEntry struct {
	Machine string `n:"1"`
	Since   int64  `n:"2"`
	Asked   int64  `n:"3"`
}

// save writes the ledger into an entry.
func (x *elsewhere) save(to *SharingEntry) {
	for _, k := range slices.SortedFunc(maps.Keys(x.rows), compareRowKeys) {
		to.Elsewhere = append(to.Elsewhere, ElsewhereEntry{k, x.rows[k].units, x.rows[k].held})
	}
	for _, id := range sortedKeys(x.vacant) {
		to.Vacant = append(to.Vacant, VacantEntry{id, x.vacant[id].since, x.vacant[id].asked})
	}
	to.StatesUnbound, to.Unbound = x.stated, slices.SortedFunc(maps.Keys(x.unbound), compareRowKeys)
}

func (x *elsewhere) restore(from *SharingEntry) {
	*x = elsewhere{rows: map[demand.RowKey]rowElsewhere{}, vacant: map[string]vacancy{}, stated: from.StatesUnbound, unbound: map[demand.RowKey]bool{}}
	for _, r := range from.Elsewhere {
		x.rows[r.Row] = rowElsewhere{r.Units, r.Held}
	}
	for _, v := range from.Vacant {
		x.vacant[v.Machine] = vacancy{v.Since, v.Asked}
	}
	for _, k := range from.Unbound {
		x.unbound[k] = true
	}
}

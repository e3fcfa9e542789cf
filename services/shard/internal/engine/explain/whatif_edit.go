package explain

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Edit is one change of what a plan reads, for a what-if (ENG-20.1). It does to a World what the core would do if the same
// thing happened. Editing a World says why it had no effect, or "".
type Edit interface {
	Apply(w *engine.World) (warning string)
}

// Pool selects machines. Empty fields select all.
type Pool struct {
	InstanceType string
	Zone         string
	CapacityType inventory.CapacityType // UnspecifiedCapacity selects all
}

// The edits of the demand.
type (
	// ReplaceRows makes Rows the whole demand of a cluster, as a roll-up does.
	ReplaceRows struct {
		Cluster  string
		Rows     []demand.Row
		Overhead []resource.Quantity
	}
	// AddRow adds one row. It adds up with a row of equal key, as in a roll-up.
	AddRow struct {
		Cluster string
		Row     demand.Row
	}
	// ChangeRow replaces one row by another one.
	ChangeRow struct {
		Cluster string
		Key     demand.RowKey
		Row     demand.Row
	}
	// RemoveRows removes the rows whose fingerprint or row id is Name.
	RemoveRows struct{ Cluster, Name string }
	// ScaleRows multiplies every aggregate of a cluster, rounding up.
	ScaleRows struct {
		Cluster    string
		PerMillion int64
	}
	// DropCluster ends the demand of a cluster, as retiring it does: its machines are excess from then on.
	DropCluster struct{ Cluster string }
	// LiftHolds lets held Needs go: those of one row, of a cluster if Key is nil, or of all clusters if Cluster is empty.
	LiftHolds struct {
		Cluster string
		Key     *demand.RowKey
	}
)

// The edits of the inventory.
type (
	// PutMachine adds a machine, or replaces what its provider says about it.
	PutMachine struct{ Machine inventory.Machine }
	// RemoveMachine forgets a machine.
	RemoveMachine struct{ ID string }
	// ScalePrice multiplies the prices of a pool.
	ScalePrice struct {
		Pool       Pool
		PerMillion int64
	}
	// StockOut withholds the slots of a pool as a provider without stock does. Restock ends every such mark.
	StockOut struct{ Pool Pool }
	Restock  struct{ Pool Pool }
	// DrainZone takes a zone out of service: none of its machines counts for anybody or can be had.
	DrainZone struct{ Zone string }
	// SetNode says whether the Node of a bound machine is Ready.
	SetNode struct {
		ID    string
		Ready bool
	}
)

const unknownCluster = "no such cluster: "

// rowsOf lists the rows of a cluster in plain form.
func rowsOf(w *engine.World, cluster string) ([]demand.Row, []resource.Quantity, bool) {
	if w.Demand.Cluster(cluster) == nil {
		return nil, nil, false
	}
	saved, overhead := w.Demand.Save(cluster)
	rows := make([]demand.Row, len(saved))
	for i := range saved {
		rows[i] = saved[i].Row
	}
	return rows, overhead, true
}

// Apply replaces the demand of a cluster, known or not.
func (e ReplaceRows) Apply(w *engine.World) string {
	if c := w.Demand.Cluster(e.Cluster); c == nil {
		w.Demand.SetFacts(e.Cluster, demand.Facts{Heard: true, SharingPerMille: 1000})
	}
	if !w.Demand.Replace(e.Cluster, e.Rows, e.Overhead, w.Inventory.Now()).Changed {
		return "the cluster already requests exactly this: " + e.Cluster
	}
	return ""
}

// Apply adds the row to a cluster, known or not.
func (e AddRow) Apply(w *engine.World) string {
	rows, overhead, _ := rowsOf(w, e.Cluster)
	return ReplaceRows{e.Cluster, append(rows, e.Row), overhead}.Apply(w)
}

// Apply replaces the row, if there is one with that key.
func (e ChangeRow) Apply(w *engine.World) string {
	rows, overhead, ok := rowsOf(w, e.Cluster)
	at := slices.IndexFunc(rows, func(r demand.Row) bool { return r.Fingerprint == e.Key.Fingerprint && r.Group == e.Key.Group })
	if !ok || at < 0 {
		return "no such row in cluster " + e.Cluster
	}
	rows[at] = e.Row
	return ReplaceRows{e.Cluster, rows, overhead}.Apply(w)
}

// Apply removes the named rows.
func (e RemoveRows) Apply(w *engine.World) string {
	rows, overhead, ok := rowsOf(w, e.Cluster)
	left := slices.DeleteFunc(slices.Clone(rows), func(r demand.Row) bool { return r.Fingerprint == e.Name || r.RowID == e.Name })
	if !ok || len(left) == len(rows) {
		return "no row " + e.Name + " in cluster " + e.Cluster
	}
	return ReplaceRows{e.Cluster, left, overhead}.Apply(w)
}

// Apply scales the rows; amounts saturate.
func (e ScaleRows) Apply(w *engine.World) string {
	rows, overhead, ok := rowsOf(w, e.Cluster)
	if !ok {
		return unknownCluster + e.Cluster
	}
	for i := range rows {
		for j := range rows[i].Aggregate {
			rows[i].Aggregate[j].Milli = TimesMillionths(rows[i].Aggregate[j].Milli, e.PerMillion, 999_999)
		}
	}
	return ReplaceRows{e.Cluster, rows, overhead}.Apply(w)
}

// TimesMillionths is (v × perMillion + add) ÷ a million, saturating. Neither is below 0.
func TimesMillionths(v, perMillion, add int64) int64 {
	hi, lo := bits.Mul64(uint64(max(v, 0)), uint64(max(perMillion, 0)))
	var carry uint64
	lo, carry = bits.Add64(lo, uint64(add), 0)
	hi += carry
	if hi >= 1_000_000 {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, 1_000_000)
	return int64(min(q, 1<<63-1))
}

// Apply empties the demand and opens the reclaim gate.
func (e DropCluster) Apply(w *engine.World) string {
	c := w.Demand.Cluster(e.Cluster)
	if c == nil {
		return unknownCluster + e.Cluster
	}
	f := c.Facts
	f.Heard = true
	heard := w.Demand.SetFacts(e.Cluster, f)
	if _, overhead, _ := rowsOf(w, e.Cluster); !w.Demand.Replace(e.Cluster, nil, overhead, w.Inventory.Now()).Changed && !heard {
		return "the cluster already requests nothing: " + e.Cluster
	}
	return ""
}

// Apply lifts the holds.
func (e LiftHolds) Apply(w *engine.World) string {
	did := false
	for _, c := range slices.Clone(w.Demand.Clusters()) {
		if e.Cluster != "" && c.Name != e.Cluster {
			continue
		}
		holds := c.Holds
		at := 0
		changed := w.Demand.SetHolds(c.Name, func(n *demand.Need) demand.Hold {
			at++
			if (e.Key == nil || n.RowKey() == *e.Key) && holds[at-1] != demand.HeldTooManyDomains {
				return demand.NotHeld
			}
			return holds[at-1]
		})
		did = did || changed
	}
	if !did {
		return "there are no machines"
	}
	return ""
}

// Apply stores the machine. What the shard remembers of a machine that is in another state now is forgotten, as it is when
// such a fact is observed.
func (e PutMachine) Apply(w *engine.World) string {
	inv := w.Inventory
	i, known := inv.Find(e.Machine.ID)
	was, cluster := inventory.State(0), ""
	if known {
		was, cluster = inv.State(i), inv.Cluster(i)
	}
	i, changed := inv.Put(e.Machine)
	if !changed {
		return "the machine is already like this: " + e.Machine.ID
	}
	if was != e.Machine.State || cluster != e.Machine.Cluster {
		inv.SetSince(i, inv.Now())
		inv.SetPromise(i, nil)
		if !e.Machine.State.Bound() || cluster != e.Machine.Cluster {
			inv.SetAttribution(i, nil)
			inv.SetReadiness(i, inventory.NoReport)
		}
	}
	return ""
}

// Apply forgets the machine.
func (e RemoveMachine) Apply(w *engine.World) string {
	i, ok := w.Inventory.Find(e.ID)
	if !ok {
		return "no such machine: " + e.ID
	}
	w.Inventory.Remove(i)
	return ""
}

// each visits the machines of a pool.
func (p Pool) each(w *engine.World, visit func(i inventory.Index, m inventory.Machine) bool) (changed bool) {
	for i := range w.Inventory.All() {
		m := w.Inventory.Machine(i)
		if (p.InstanceType == "" || p.InstanceType == m.InstanceType) && (p.Zone == "" || p.Zone == m.Zone) &&
			(p.CapacityType == inventory.UnspecifiedCapacity || p.CapacityType == m.CapacityType) {
			changed = visit(i, m) || changed
		}
	}
	return changed
}

const emptyPool = "this changes no machine of that pool"

// Apply multiplies the prices, to the nearest millionth of a dollar.
func (e ScalePrice) Apply(w *engine.World) string {
	if !e.Pool.each(w, func(_ inventory.Index, m inventory.Machine) bool {
		m.Price = TimesMillionths(m.Price, e.PerMillion, 500_000)
		_, changed := w.Inventory.Put(m)
		return changed
	}) {
		return emptyPool
	}
	return ""
}

// Apply marks the slots.
func (e StockOut) Apply(w *engine.World) string {
	if !e.Pool.each(w, func(i inventory.Index, m inventory.Machine) bool {
		return m.State == inventory.Speculative && w.Inventory.Withhold(i, inventory.Withheld{Reason: inventory.WithheldStockOut})
	}) {
		return emptyPool
	}
	return ""
}

// Apply lifts the marks that stand for missing stock, quota or a pause after a failure.
func (e Restock) Apply(w *engine.World) string {
	if !e.Pool.each(w, func(i inventory.Index, _ inventory.Machine) bool {
		did := false
		for _, m := range slices.Clone(w.Inventory.Withheld(i)) {
			if restocked(m.Reason) {
				did = w.Inventory.Lift(i, m.Reason, m.Cluster) || did
			}
		}
		return did
	}) {
		return emptyPool
	}
	return ""
}

// restocked reports whether Restock ends marks for this reason.
func restocked(r inventory.WithheldReason) bool {
	return r == inventory.WithheldStockOut || r == inventory.WithheldQuota || r == inventory.WithheldBackoff
}

// Apply shows every machine of the zone as failed and its host as lost: it costs nothing.
func (e DrainZone) Apply(w *engine.World) string {
	inv := w.Inventory
	if !(Pool{Zone: e.Zone}).each(w, func(i inventory.Index, m inventory.Machine) bool {
		if e.Zone == "" {
			return false
		}
		changed := inv.SetStuck(i, true)
		if m.Exists() {
			m.State, m.Failure = inventory.Failed, inventory.FailureHostLost
			inv.Put(m)
			changed = true
		}
		return changed
	}) {
		return "no machine in zone " + e.Zone + " is changed by this"
	}
	return ""
}

// Apply stores what a node report would say.
func (e SetNode) Apply(w *engine.World) string {
	inv := w.Inventory
	i, ok := inv.Find(e.ID)
	if !ok || !inv.State(i).Bound() {
		return "no bound machine " + e.ID
	}
	ready := inventory.ReadyOnce
	if !e.Ready {
		ready = inventory.NotReady
		if inv.Readiness(i).WasReady() {
			ready = inventory.ReadyLost
		}
	}
	if !inv.SetReadiness(i, ready) {
		return "the node is already like this: " + e.ID
	}
	return ""
}

package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// Parking holds back gangs that no domain can satisfy, except for a probe now and then (ENG-18.2, 18.3). The core passes it each
// plan and asks it for holds before the next one. The zero value is an empty ledger.
type Parking struct {
	entries map[parkingKey]*ParkingEntry
}

type parkingKey struct {
	cluster string
	row     demand.RowKey
}

// ParkingEntry is one gang that is short and that no domain can satisfy.
type ParkingEntry struct {
	Cluster string        `n:"1"`
	Row     demand.RowKey `n:"2"`
	Best    int64         `n:"3"` // best coverage so far (Verdict.Coverage)
	Stalled int64         `n:"4"` // nominal cycles without a better one
	Last    int64         `n:"5"` // the last nominal cycle that was counted
}

// Observe takes the verdicts of a plan made in the given nominal cycle, and names the clusters whose gangs may be held otherwise now, in order. However
// many plans a nominal cycle has, it is counted once.
func (p *Parking) Observe(r *engine.Result, nominal int64) (news []string) {
	changed := map[string]bool{}
	seen := make(map[parkingKey]*ParkingEntry, len(p.entries))
	for _, ref := range r.Short {
		if ref.Row >= engine.FoldedRow {
			continue
		}
		b := r.Blocks[ref.Block]
		need, v := &b.Needs[ref.Row], &b.Verdicts[ref.Row]
		if need.Form.Same == nil {
			continue
		}
		k := parkingKey{b.Cluster, need.RowKey()}
		e := p.entries[k]
		if v.Hold != demand.NotHeld && v.Hold != demand.HeldParked {
			if e != nil { // it had no allocation, so this plan says nothing about it
				seen[k] = e
			}
			continue
		}
		if v.Satisfiable {
			continue
		}
		switch {
		case e == nil:
			e = &ParkingEntry{Cluster: b.Cluster, Row: k.row, Best: v.Coverage, Last: nominal}
		case v.Coverage > e.Best:
			e.Best, e.Stalled, e.Last = v.Coverage, 0, nominal
		case nominal > e.Last:
			e.Stalled, e.Last = e.Stalled+1, nominal
		default:
			seen[k] = e
			continue
		}
		seen[k], changed[b.Cluster] = e, true
	}
	for k := range p.entries {
		if seen[k] == nil {
			changed[k.cluster] = true
		}
	}
	p.entries = seen
	return sortedKeys(changed)
}

// Fruitless ends the probes of a plan that had no effect and names their clusters: parked gangs that had their allocation and
// are still short, not satisfiable and no better covered than before. The plan is then made again with these gangs held, so
// that a probe leaves no trace. Otherwise what the allocation took from other needs would go back to them in the next plan, and
// what they bought instead would be excess (ENG-18.3).
func (p *Parking) Fruitless(r *engine.Result, policy *engine.Policy) (clusters []string) {
	if len(p.entries) == 0 {
		return nil
	}
	for _, ref := range r.Short {
		if ref.Row >= engine.FoldedRow {
			continue
		}
		b := r.Blocks[ref.Block]
		need, v := &b.Needs[ref.Row], &b.Verdicts[ref.Row]
		if need.Form.Same == nil || v.Hold != demand.NotHeld || v.Satisfiable {
			continue
		}
		e := p.entries[parkingKey{b.Cluster, need.RowKey()}]
		if e == nil || e.Stalled < policy.ParkAfter || v.Coverage > e.Best {
			continue
		}
		e.Stalled++
		clusters = append(clusters, b.Cluster)
	}
	return clusters
}

// Parked reports whether a row is to be held in the next plan.
func (p *Parking) Parked(cluster string, row demand.RowKey, policy *engine.Policy) bool {
	e := p.entries[parkingKey{cluster, row}]
	return e != nil && e.Stalled >= policy.ParkAfter && e.Stalled%policy.ParkReprobe != 0
}

// Len is the number of entries.
func (p *Parking) Len() int { return len(p.entries) }

// Entries lists the ledger by cluster and row.
func (p *Parking) Entries() []ParkingEntry {
	out := make([]ParkingEntry, 0, len(p.entries))
	for _, e := range p.entries {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b ParkingEntry) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), compareRowKeys(a.Row, b.Row))
	})
	return out
}

// Restore replaces the ledger.
func (p *Parking) Restore(entries []ParkingEntry) {
	p.entries = make(map[parkingKey]*ParkingEntry, len(entries))
	for _, e := range entries {
		p.entries[parkingKey{e.Cluster, e.Row}] = &e
	}
}

func compareRowKeys(a, b demand.RowKey) int {
	return cmp.Or(strings.Compare(a.Fingerprint, b.Fingerprint), strings.Compare(a.Group, b.Group))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

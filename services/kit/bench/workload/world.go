package workload

import "math/rand/v2"

// Size of a steady workload.
type Size struct{ Machines, Needs, Clusters int }

// World is a fleet and the demand on it.
type World struct {
	Fleet  *Fleet
	Demand *Demand

	// Attribution, if set, gives the shard_metadata of machines bound for a row. What is in it is the shard's business.
	Attribution func(row int32) map[string]string

	churn *rand.Rand
}

// Steady is W-fleet and W-demand as they have settled: every Configured machine is bound for a row that it satisfies,
// 95 % of the rows are covered by their machines, and the others can never be met.
func Steady(size Size, seed uint64) *World {
	w := &World{Fleet: NewFleet(size.Machines, seed), churn: Stream(seed, "churn")}
	w.Demand = newDemand(zipfCounts(Stream(seed, "demand/count"), size.Clusters, size.Needs))
	w.Demand.drawForms(seed)
	w.plant(seed)
	return w
}

// Unbind gives every host back: Configured and Configuring machines become Idle, the demand stays. This is the cold
// form, where every need is new.
func (w *World) Unbind() {
	f := w.Fleet
	for i := range f.ID {
		if f.State[i] == Configured || f.State[i] == Configuring || f.State[i] == Draining {
			f.State[i], f.Cluster[i], f.Need[i] = Idle, -1, -1
		}
	}
}

// Sum is the SHA-256 of fleet and demand.
func (w *World) Sum() string {
	d := newDigest()
	w.Fleet.sum(d)
	w.Demand.sum(d)
	return d.hex()
}

// Change is what one round of churn did.
type Change struct {
	Clusters []int32 // they send a roll-up in which one need has changed
	Rows     []int32 // the need of each
	Machines []int32 // they are in another state
}

// Churn is W-churn(p), one round: a fraction p of the clusters changes one need by 1 to 10 %, and p/10 of the machines
// take the next step of their life. Amounts move around what was generated, so that a thousand rounds do not drift.
// Configured machines stay.
func (w *World) Churn(p float64) Change {
	var out Change
	d, f := w.Demand, w.Fleet
	for _, c := range sample(w.churn, d.Clusters(), max(1, int(p*float64(d.Clusters())+0.5))) {
		row := d.First[c] + int32(w.churn.IntN(int(d.First[c+1]-d.First[c])))
		percent := int64(1 + w.churn.IntN(10))
		if w.churn.IntN(2) == 0 {
			percent = -percent
		}
		if d.base == nil {
			d.base = append([]int64(nil), d.CPU...)
		}
		next := max(d.base[row]*(100+percent)/100, d.UnitCPU[row])
		if next == d.CPU[row] {
			next++
		}
		d.CPU[row] = next
		out.Clusters, out.Rows = append(out.Clusters, c), append(out.Rows, row)
	}
	for _, i := range sample(w.churn, f.Len(), int(p/10*float64(f.Len())+0.5)) {
		if w.step(int(i)) {
			out.Machines = append(out.Machines, i)
		}
	}
	return out
}

// step moves one machine along its life: bought, idle, given back; or through its binding.
func (w *World) step(i int) bool {
	f := w.Fleet
	switch f.State[i] {
	case Speculative:
		f.State[i] = Creating
	case Creating:
		f.State[i] = Idle
	case Idle:
		f.State[i] = Deleting
	case Deleting:
		f.State[i] = Speculative
	case Configuring:
		f.State[i] = Configured
	case Draining:
		f.State[i], f.Cluster[i], f.Need[i] = Idle, -1, -1
	default:
		return false
	}
	return true
}

// sample draws k different numbers below n, in random order, without touching all n.
func sample(r *rand.Rand, n, k int) []int32 {
	k = min(k, n)
	out := make([]int32, 0, k)
	seen := make(map[int32]bool, k)
	for len(out) < k {
		if i := int32(r.IntN(n)); !seen[i] {
			seen[i] = true
			out = append(out, i)
		}
	}
	return out
}

package reference

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// publish writes costs, counters, blocks, promises that changed hands, and the short needs in order.
func (n settling) publish() {
	out := n.Result
	for _, m := range n.Machines {
		if m.Exists() && !m.Foreign {
			out.CostBefore = resource.AddSat(out.CostBefore, m.Price)
		}
		if m.Promise != nil && !m.Foreign && (m.Seen == inventory.Creating || m.Seen == inventory.Idle || m.Seen == inventory.Draining) {
			if m.Promise.Cause == inventory.ForPreempt {
				out.Counters.PromisesPreempt++
			} else {
				out.Counters.PromisesCreate++
			}
		}
	}
	out.CostAfter = out.CostBefore
	for _, a := range out.Actions {
		switch a.Kind {
		case engine.Provision:
			out.CostAfter = resource.AddSat(out.CostAfter, n.World.Inventory.Price(a.Machine))
		case engine.Delete:
			out.CostAfter -= n.World.Inventory.Price(a.Machine)
		}
	}
	for _, c := range n.Clusters {
		out.Blocks = append(out.Blocks, n.block(c))
	}
	for _, m := range n.Machines {
		if m.goesTo != nil && m.preempt == nil {
			out.Promised = append(out.Promised, engine.Promised{Machine: m.Index, To: inventory.Promise{Cluster: m.goesTo.Cluster.Name,
				For: out.Attribution(ref(m.goesTo)), Cause: m.Promise.Cause, Expires: m.Promise.Expires}})
		}
	}
	for _, d := range n.needs {
		if n.isShort(d) {
			out.Short = append(out.Short, ref(d))
		}
	}
	out.Counters.Displaced = n.displaced
}

// block writes the claims, shares and verdicts of a cluster.
func (n settling) block(c *Cluster) *engine.Block {
	b := &engine.Block{Cluster: c.Name, Needs: c.Needs, Verdicts: make([]engine.Verdict, len(c.Needs))}
	for _, f := range c.folded {
		b.Folded = append(b.Folded, engine.Folded{Need: f.Need, Members: f.members})
	}
	for _, d := range c.normalised {
		for _, m := range d.claims {
			kind := engine.ClaimBound
			switch {
			case m.kept:
				kind = engine.ClaimKept
			case m.acquired && m.Seen == inventory.Idle:
				kind = engine.ClaimIdle
			case m.acquired:
				kind = engine.ClaimPurchased
			case !m.Seen.Bound():
				kind = engine.ClaimInFlight
			}
			b.Claims = append(b.Claims, engine.Claim{Machine: m.Index, Row: d.row, Kind: kind})
		}
		for _, m := range d.promised {
			b.Claims = append(b.Claims, engine.Claim{Machine: m.Index, Row: d.row, Kind: engine.ClaimPromised})
		}
		n.Result.Counters.Shares += min(1, len(d.received))
		for _, s := range d.received {
			at := slices.IndexFunc(b.Shares, func(x engine.Share) bool { return x.Machine == s.on.Index && x.Row == d.row })
			if at < 0 {
				at = len(b.Shares)
				b.Shares = append(b.Shares, engine.Share{Machine: s.on.Index, Row: d.row})
			}
			b.Shares[at].Units += s.units
		}
	}
	for _, m := range n.Machines {
		if m.Cluster == c.Name && m.excluded {
			b.Excluded = append(b.Excluded, m.Index)
		}
		if m.Cluster == c.Name && m.protected {
			b.Protected = append(b.Protected, m.Index)
		}
	}
	slices.SortFunc(b.Claims, func(x, y engine.Claim) int { return cmp.Compare(x.Machine, y.Machine) })
	slices.SortFunc(b.Shares, func(x, y engine.Share) int {
		return cmp.Or(cmp.Compare(x.Machine, y.Machine), cmp.Compare(x.Row, y.Row))
	})
	slices.Sort(b.Excluded)
	slices.Sort(b.Protected)
	for _, d := range c.normalised {
		n.judge(b, d)
	}
	slices.SortFunc(b.Missing, func(x, y engine.Missing) int { return cmp.Compare(x.Row, y.Row) })
	for i := range b.Missing {
		b.Verdicts[b.Missing[i].Row].Missing = int32(i)
	}
	return b
}

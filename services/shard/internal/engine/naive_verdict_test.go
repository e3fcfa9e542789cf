package engine

import (
	"math/big"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// verdicts writes the verdict of a Need, or of each member of a folded one (ENG-8.5, ENG-19.1).
func (n *naive) verdicts(b *Block, d *nNeed) {
	v := n.verdict(d)
	rest := n.residual(d)
	if len(d.members) == 0 {
		n.close(b, d, d.row, v, rest)
		if d.same != nil && d.chosen {
			b.Domains = append(b.Domains, d.domain)
			b.Verdicts[d.row].Domain = int32(len(b.Domains))
		}
		return
	}
	unit := d.n.MinUnit
	here := count(d.n.Aggregate.Sub(n.withoutConfigured(d)), unit)
	soon := count(d.n.Aggregate.Sub(rest), unit)
	cost := v.Cost
	for i, row := range d.members {
		m := Verdict{Status: Short, Fold: d.row, Satisfiable: true, Missing: -1, Hold: d.c.d.Holds[row],
			Cost: cost/int64(len(d.members)) + min(1, max(0, cost%int64(len(d.members))-int64(i)))}
		left := unit
		if i < int(soon) {
			m.Status, m.Shared, m.CoveragePerMille, m.Coverage, left = OnTheWay, 1, 1000, int64(unit.Len())*1_000_000, resource.Vector{}
			m.Coming = 1
		}
		if i < int(here) {
			m.Status, m.Coming = Met, 0
		}
		if m.Status == Short {
			m.Victims = v.Victims
		}
		n.close(b, d, row, m, left)
	}
}

// close adds detail, reason and residual to a verdict and stores it.
func (n *naive) close(b *Block, d *nNeed, row int32, v Verdict, rest resource.Vector) {
	switch v.Status {
	case Met:
		v.Detail = n.metDetail(d, row)
	case OnTheWay:
		v.Detail = n.comingDetail(d)
	default:
		v.Detail = n.shortDetail(d, v.Hold)
		v.Reason = reasonOf(v.Detail)
		if d.same != nil && !v.Satisfiable {
			v.Reason = TopologyUnsatisfiable
		}
		m := Missing{Row: row, Residual: rest}
		if freed := d.freed; !freed.IsZero() {
			m.Freed = &freed
		}
		b.Missing = append(b.Missing, m)
	}
	b.Verdicts[row] = v
}

// verdict is ENG-19.2 and ENG-19.3; satisfiable and coverage are what parking reads (ENG-18.2).
func (n *naive) verdict(d *nNeed) Verdict {
	v := Verdict{Missing: -1, Fold: -1, Hold: d.hold, Victims: int32(d.victims), CoveragePerMille: 1000}
	here, rest := n.withoutConfigured(d), n.residual(d)
	switch {
	case here.IsZero():
		v.Status = Met
	case rest.IsZero():
		v.Status = OnTheWay
	default:
		v.Status = Short
	}
	have := n.credited(d)
	v.Coverage = score(have, d.n.Aggregate, true).Int64()
	for i := range d.n.Aggregate.Len() {
		want := d.n.Aggregate.Val(i)
		part := big.NewInt(min(want, have.Get(d.n.Aggregate.Dim(i))))
		part.Mul(part, big.NewInt(1000)).Quo(part, big.NewInt(want))
		v.CoveragePerMille = min(v.CoveragePerMille, int32(part.Int64()))
	}
	for _, m := range d.claims {
		v.Cost = resource.AddSat(v.Cost, m.m.Price)
		if m.kept {
			continue
		}
		if m.state != inventory.Configured {
			v.Coming++
		}
		switch {
		case m.acquired && m.state == inventory.Speculative:
			v.Provision++
		case m.acquired:
			v.Bootstrap++
		default:
			v.Claimed++
			if m.state == inventory.Idle && d.hold == demand.NotHeld && !withheldFor(m, d.c.d.Name) {
				v.Bootstrap++
			}
		}
	}
	v.Coming += int32(len(d.promised))
	on := map[*nMachine]bool{}
	for _, s := range d.received {
		on[s.on] = true
	}
	v.Shared = int32(len(on))
	v.Satisfiable = v.Status != Short || d.same != nil && d.possible
	return v
}

// withoutConfigured is the residual if only Configured machines, and shares on them, count (ENG-19.2).
func (n *naive) withoutConfigured(d *nNeed) resource.Vector {
	rest := d.n.Aggregate
	for _, m := range d.claims {
		if !m.kept && m.state == inventory.Configured {
			rest = rest.Sub(n.worth(d, m))
		}
	}
	for _, s := range d.received {
		if s.on.state == inventory.Configured {
			rest = rest.Sub(s.credit)
		}
	}
	return rest
}

// count is floor(have ÷ unit) over all dimensions.
func count(have, unit resource.Vector) int64 { return units(have, unit) }

// metDetail is ENG-19.5 for a Need that is met; a Node that was Ready once and is lost stays credited (ENG-17.9).
func (n *naive) metDetail(d *nNeed, row int32) Detail {
	for _, m := range d.claims {
		if m.state == inventory.Configured && m.ready == inventory.ReadyLost && d.c.d.Facts.ReportsReadiness {
			return DetailNodeNotReady
		}
	}
	switch {
	case d.c.d.Unplaced != nil && d.c.d.Unplaced[row]:
		return DetailUnplaced
	case d.same != nil && len(d.n.Form.Spread) > 0:
		return DetailSpreadIgnored
	}
	return NoDetail
}

func (n *naive) comingDetail(d *nNeed) Detail {
	for _, m := range n.machines {
		if m.shunned && n.own(d, m) {
			return DetailNodeNotJoined
		}
	}
	detail := DetailStarting
	list := append([]*nMachine(nil), d.promised...)
	for _, m := range d.claims {
		if !m.kept && m.state != inventory.Configured {
			list = append(list, m)
		}
	}
	for _, s := range d.received {
		if s.on.state != inventory.Configured {
			list = append(list, s.on)
		}
	}
	for _, m := range list {
		switch m.state {
		case inventory.Draining, inventory.Configured:
			return DetailWaitingForDrain
		case inventory.Creating, inventory.Speculative:
			detail = DetailCreating
		}
	}
	return detail
}

// shortDetail is the first row of ENG-19.4 that applies.
func (n *naive) shortDetail(d *nNeed, hold demand.Hold) Detail {
	switch hold {
	case demand.HeldOffline:
		return DetailClusterOffline
	case demand.HeldBootstrapBackoff:
		return DetailBootstrapBackoff
	case demand.HeldParked:
		return DetailParked
	}
	rest := n.residual(d)
	var match, fit, left []*nMachine
	for _, m := range n.machines {
		if !n.match(d, m) {
			continue
		}
		match = append(match, m)
		if !n.usable(d, m) {
			continue
		}
		fit = append(fit, m)
		s := n.supply(m, d.c)
		pool := m.state == inventory.Idle || m.state == inventory.Speculative
		if pool && !m.foreign && m.promise == nil && m.claim == nil && m.goesTo == nil && s.Touches(&rest) {
			left = append(left, m)
		}
	}
	if len(match) == 0 {
		return DetailNoMatch
	}
	for i := range d.n.Aggregate.Len() {
		offered := false
		for _, m := range match {
			s := n.supply(m, d.c)
			offered = offered || s.Get(d.n.Aggregate.Dim(i)) > 0
		}
		if !offered {
			return DetailDimensionMissing
		}
	}
	if len(fit) == 0 {
		return DetailTooSmall
	}
	if d.same != nil && !n.domainExists(d, fit) {
		return DetailDomainTooSmall
	}
	if d.spread != nil {
		free, fits := 0, 0
		for _, m := range left {
			if n.free(d, m) {
				free++
				if n.eligible(d, m) {
					fits++
				}
			}
		}
		if free > 0 && fits == 0 {
			return DetailSpreadBlocked
		}
	}
	for _, m := range fit {
		s := n.supply(m, d.c)
		if m.shunned && m.m.Cluster == d.c.d.Name && s.Touches(&rest) {
			return DetailNodeNotJoined
		}
	}
	if d.victims > 0 {
		return DetailPreemptionShort
	}
	return n.withheldDetail(d, left)
}

// domainExists says whether some domain could hold d if all its owned machines were free.
func (n *naive) domainExists(d *nNeed, fit []*nMachine) bool {
	for _, v := range values(fit, d.same.Key) {
		var sum resource.Vector
		for _, m := range fit {
			mine := m.state.Bound() && m.m.Cluster == d.c.d.Name
			if value(m, d.same.Key) == v && m.state != inventory.Failed && (!m.foreign || mine) {
				sum = sum.Add(n.yields(d, m))
			}
		}
		if sum.Covers(&d.n.Aggregate) {
			return true
		}
	}
	return false
}

func (n *naive) withheldDetail(d *nNeed, left []*nMachine) Detail {
	counts := map[Detail]int{}
	for _, m := range left {
		if !withheldFor(m, d.c.d.Name) {
			return DetailHeldByOthers
		}
		for _, w := range m.marks {
			if w.Cluster != "" && w.Cluster != d.c.d.Name {
				continue
			}
			switch w.Reason {
			case inventory.WithheldStockOut:
				counts[DetailStockOut]++
			case inventory.WithheldQuota:
				counts[DetailQuota]++
			default:
				counts[DetailWithheld]++
			}
			break
		}
	}
	best := DetailHeldByOthers
	for _, x := range []Detail{DetailStockOut, DetailQuota, DetailWithheld} {
		if counts[x] > counts[best] {
			best = x
		}
	}
	return best
}

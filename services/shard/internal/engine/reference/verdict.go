package reference

import (
	"math/big"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// verdicts says of each row how it stands and why (ENG-19).
type verdicts struct{ acquisition }

// judge writes the verdict of a Need, or of each member of a folded one (ENG-8.5, ENG-19.1).
func (n verdicts) judge(b *engine.Block, d *Need) {
	v := n.verdict(d)
	rest := n.residual(d)
	if len(d.members) == 0 {
		n.close(b, d, d.row, v, rest)
		if d.Same != nil && d.chosen {
			b.Domains = append(b.Domains, d.domain)
			b.Verdicts[d.row].Domain = int32(len(b.Domains))
		}
		return
	}
	unit := d.MinUnit
	here := count(d.Aggregate.Sub(n.withoutConfigured(d)), unit)
	soon := count(d.Aggregate.Sub(rest), unit)
	cost := v.Cost
	for i, row := range d.members {
		m := engine.Verdict{Status: engine.Short, Fold: d.row, Satisfiable: true, Missing: -1, Hold: d.Cluster.Holds[row],
			Cost: cost/int64(len(d.members)) + min(1, max(0, cost%int64(len(d.members))-int64(i)))}
		left := unit
		if i < int(soon) {
			m.Status, m.Shared, m.CoveragePerMille, m.Coverage, left = engine.OnTheWay, 1, 1000, int64(unit.Len())*1_000_000, resource.Vector{}
			m.Coming = 1
		}
		if i < int(here) {
			m.Status, m.Coming = engine.Met, 0
		}
		if m.Status == engine.Short {
			m.Victims = v.Victims
		}
		n.close(b, d, row, m, left)
	}
}

// close adds detail, reason and residual to a verdict and stores it.
func (n verdicts) close(b *engine.Block, d *Need, row int32, v engine.Verdict, rest resource.Vector) {
	switch v.Status {
	case engine.Met:
		v.Detail = n.metDetail(d, row)
	case engine.OnTheWay:
		v.Detail = n.comingDetail(d)
	default:
		v.Detail = n.shortDetail(d, v.Hold)
		v.Reason = v.Detail.Reason()
		if d.Same != nil && !v.Satisfiable {
			v.Reason = engine.TopologyUnsatisfiable
		}
		m := engine.Missing{Row: row, Residual: rest}
		if freed := d.freed; !freed.IsZero() {
			m.Freed = &freed
		}
		b.Missing = append(b.Missing, m)
	}
	b.Verdicts[row] = v
}

// verdict is status and counts of a need (ENG-19.2, ENG-19.3). Parking reads Satisfiable and Coverage (ENG-18.2).
func (n verdicts) verdict(d *Need) engine.Verdict {
	v := engine.Verdict{Missing: -1, Fold: -1, Hold: d.hold, Victims: int32(d.victims), CoveragePerMille: 1000}
	here, rest := n.withoutConfigured(d), n.residual(d)
	switch {
	case !rest.IsZero(): // also if Configured machines would do: what comes may let a value of a hard spread hold less (ENG-13.9)
		v.Status = engine.Short
	case here.IsZero():
		v.Status = engine.Met
	default:
		v.Status = engine.OnTheWay
	}
	have := n.credited(d)
	v.Coverage = score(have, d.Aggregate, true).Int64()
	for i := range d.Aggregate.Len() {
		want := d.Aggregate.Val(i)
		part := big.NewInt(min(want, have.Get(d.Aggregate.Dim(i))))
		part.Mul(part, big.NewInt(1000)).Quo(part, big.NewInt(want))
		v.CoveragePerMille = min(v.CoveragePerMille, int32(part.Int64()))
	}
	for _, m := range d.claims {
		v.Cost = resource.AddSat(v.Cost, m.Price)
		if m.kept {
			continue
		}
		if m.Seen != inventory.Configured {
			v.Coming++
		}
		switch {
		case m.acquired && m.Seen == inventory.Speculative:
			v.Provision++
		case m.acquired:
			v.Bootstrap++
		default:
			v.Claimed++
			if m.Seen == inventory.Idle && d.hold == demand.NotHeld && !WithheldFor(m, d.Cluster.Name) {
				v.Bootstrap++
			}
		}
	}
	v.Coming += int32(len(d.promised))
	on := map[*Machine]bool{}
	for _, s := range d.received {
		on[s.on] = true
	}
	v.Shared = int32(len(on))
	v.Satisfiable = v.Status != engine.Short || d.Same != nil && d.satisfiable
	return v
}

// withoutConfigured is the residual if only Configured machines, and shares on them, count (ENG-19.2).
func (n verdicts) withoutConfigured(d *Need) resource.Vector {
	rest := d.Aggregate
	if d.Spread != nil {
		return rest.Sub(n.servedOn(d, slices.DeleteFunc(slices.Clone(d.claims), func(m *Machine) bool { return m.kept || m.Seen != inventory.Configured }),
			slices.DeleteFunc(slices.Clone(d.received), func(s *Share) bool { return s.on.Seen != inventory.Configured })))
	}
	for _, m := range d.claims {
		if !m.kept && m.Seen == inventory.Configured {
			rest = rest.Sub(n.worth(d, m))
		}
	}
	for _, s := range d.received {
		if s.on.Seen == inventory.Configured {
			rest = rest.Sub(s.credit)
		}
	}
	return rest
}

// count is floor(have ÷ unit) over all dimensions.
func count(have, unit resource.Vector) int64 { return units(have, unit) }

// metDetail is the detail of a need that is met (ENG-19.5). A node that was Ready once and is lost stays credited (ENG-17.9).
func (n verdicts) metDetail(d *Need, row int32) engine.Detail {
	for _, m := range d.claims {
		if m.Seen == inventory.Configured && m.ready == inventory.ReadyLost && d.Cluster.Facts.ReportsReadiness {
			return engine.DetailNodeNotReady
		}
	}
	switch {
	case d.Cluster.Unplaced != nil && d.Cluster.Unplaced[row]:
		return engine.DetailUnplaced
	case d.Spread == nil && len(d.Form.Spread) > 0:
		return engine.DetailSpreadIgnored
	}
	return engine.NoDetail
}

// comingDetail says what a covered need waits for (ENG-19.5).
func (n verdicts) comingDetail(d *Need) engine.Detail {
	for _, m := range n.Machines {
		if m.excluded && n.own(d, m) {
			return engine.DetailNodeNotJoined
		}
	}
	detail := engine.DetailStarting
	list := append([]*Machine(nil), d.promised...)
	for _, m := range d.claims {
		if !m.kept && m.Seen != inventory.Configured {
			list = append(list, m)
		}
	}
	for _, s := range d.received {
		if s.on.Seen != inventory.Configured {
			list = append(list, s.on)
		}
	}
	for _, m := range list {
		switch m.Seen {
		case inventory.Draining, inventory.Configured:
			return engine.DetailWaitingForDrain
		case inventory.Creating, inventory.Speculative:
			detail = engine.DetailCreating
		}
	}
	return detail
}

// shortDetail is the first row of ENG-19.4 that applies.
func (n verdicts) shortDetail(d *Need, hold demand.Hold) engine.Detail {
	switch hold {
	case demand.HeldOffline:
		return engine.DetailClusterOffline
	case demand.HeldBootstrapBackoff:
		return engine.DetailBootstrapBackoff
	case demand.HeldParked:
		return engine.DetailParked
	case demand.HeldPostponed:
		return engine.DetailPostponed
	}
	rest := n.residual(d)
	var match, fit, left []*Machine
	for _, m := range n.Machines {
		if !n.Match(d, m) {
			continue
		}
		match = append(match, m)
		if !n.Usable(d, m) {
			continue
		}
		fit = append(fit, m)
		s := n.Supply(m, d.Cluster)
		pool := m.Seen == inventory.Idle || m.Seen == inventory.Speculative
		if pool && !m.Foreign && m.Promise == nil && m.claim == nil && m.goesTo == nil && s.Touches(&rest) {
			left = append(left, m)
		}
	}
	if len(match) == 0 {
		return engine.DetailNoMatch
	}
	for i := range d.Aggregate.Len() {
		offered := false
		for _, m := range match {
			s := n.Supply(m, d.Cluster)
			offered = offered || s.Get(d.Aggregate.Dim(i)) > 0
		}
		if !offered {
			return engine.DetailDimensionMissing
		}
	}
	if len(fit) == 0 {
		return engine.DetailTooSmall
	}
	if d.Same != nil && !n.domainExists(d, fit) {
		return engine.DetailDomainTooSmall
	}
	if d.Spread != nil {
		free, fits, room := 0, 0, n.roomsWithFree(d)
		for _, m := range left {
			if n.free(d, m) {
				free++
				if _, more := room.with(d, m, n.unitsOn(d, m)); more {
					fits++
				}
			}
		}
		if free > 0 && fits == 0 {
			return engine.DetailSpreadBlocked
		}
	}
	for _, m := range fit {
		s := n.Supply(m, d.Cluster)
		if m.excluded && m.Cluster == d.Cluster.Name && s.Touches(&rest) {
			return engine.DetailNodeNotJoined
		}
	}
	if d.victims > 0 {
		return engine.DetailPreemptionShort
	}
	detail, lacks := n.withheldDetail(d, left), d.LacksToStart(rest)
	if detail == engine.DetailHeldByOthers && !lacks.IsZero() {
		return engine.DetailGangShort
	}
	if detail == engine.DetailHeldByOthers && d.Same == nil && d.Spread == nil {
		for _, m := range fit {
			s := n.Supply(m, d.Cluster)
			if m.Foreign && (m.Seen == inventory.Idle || m.Seen == inventory.Speculative) && s.Touches(&rest) {
				return engine.DetailOtherShard
			}
		}
	}
	return detail
}

// domainExists says whether some domain could hold d if all its owned machines were free.
func (n verdicts) domainExists(d *Need, fit []*Machine) bool {
	for _, v := range values(fit, d.Same.Key) {
		var sum resource.Vector
		for _, m := range fit {
			mine := m.Seen.Bound() && m.Cluster == d.Cluster.Name
			if Value(m, d.Same.Key) == v && m.Seen != inventory.Failed && (!m.Foreign || mine) {
				sum = sum.Add(n.Yields(d, m))
			}
		}
		if sum.Covers(&d.Aggregate) {
			return true
		}
	}
	return false
}

// withheldDetail says which mark withholds most of what is left, or that others hold it.
func (n verdicts) withheldDetail(d *Need, left []*Machine) engine.Detail {
	counts := map[engine.Detail]int{}
	for _, m := range left {
		if !WithheldFor(m, d.Cluster.Name) {
			return engine.DetailHeldByOthers
		}
		for _, w := range m.Marks {
			if w.Cluster != "" && w.Cluster != d.Cluster.Name {
				continue
			}
			counts[engine.DetailOfMark(w.Reason)]++
			break
		}
	}
	best := engine.DetailHeldByOthers
	for _, x := range engine.MarkDetails {
		if counts[x] > counts[best] {
			best = x
		}
	}
	return best
}

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// judgeStarts asks of each acquisition whether it was needed and of each reclaim whether it was not, by counting what
// the process itself believes to be there.
func (c *checker) judgeStarts(p *process) {
	names := map[string]bool{}
	for _, r := range c.fresh {
		names[r.Cluster] = true
	}
	for _, name := range sortedKeys(names) {
		s := c.mirror[name]
		if s == nil || !s.known || c.retired[name] {
			continue
		}
		have := c.supplyOf(p, name)
		for _, r := range c.fresh {
			if r.Cluster != name || c.w.fail != nil {
				continue
			}
			c.w.tally.Checks++
			switch {
			case r.Kind == core.KindReclaim && r.Cause == engine.CauseExcess:
				c.judgeReclaim(r, s, have)
			case r.Cause == engine.CauseIdle || r.Cause == engine.CauseSpeculative: // a hand-over was bought before
				c.judgeBuy(p, r, s, have)
			}
		}
	}
}

// supply is one machine that counts for a cluster.
type supply struct {
	inventory.Machine
	leaving bool   // a drain of it is open
	doubt   bool   // stuck, or its node never joined: the engine may not count it
	row     string // fingerprint that it was acquired for
	gained  bool   // taken over from another cluster by this plan or shortly before it
}

// supplyOf lists what is bound to a cluster or on its way to it.
func (c *checker) supplyOf(p *process, name string) []supply {
	var out []supply
	for _, id := range p.core.Ids("", 1<<20) {
		v, _ := p.core.Machine(id)
		m := v.Machine
		mine := m.Cluster == name && (m.State == inventory.Configuring || m.State == inventory.Configured)
		if !mine {
			mine = v.Intended == name || v.Intended == "" && c.intent[id] == name && (m.State == inventory.Creating || m.State == inventory.Idle)
		}
		if !mine || m.State == inventory.Failed {
			continue
		}
		op := c.ops[c.ofM[id]]
		s := supply{Machine: m, row: v.Attribution.Fingerprint, leaving: op.Kind == core.KindReclaim || op.Kind == core.KindPreempt, doubt: c.stuck[id] || slices.Contains(v.Flags, core.FlagStuck) || m.Probability >= announced}
		if m.State == inventory.Configured && v.Readiness < inventory.ReadyOnce && p.core.Now()-v.Since >= c.w.policy.JoinTimeout {
			s.doubt = true
		}
		if s.gained = v.Intended == name && c.intent[id] != name && c.moved[id] != name; s.gained {
			c.moved[id] = name
		}
		out = append(out, s)
	}
	return out
}

// credit is what one machine can be for a row: whole units of it, in each resource.
func credit(m *inventory.Machine, row *demand.Row) (units int64) {
	if !matches(&row.Profile, m) {
		return 0
	}
	units = 1 << 40
	for _, q := range row.MinUnit {
		if q.Milli > 0 {
			units = min(units, amount(m.Allocatable, q.Name)/q.Milli)
		}
	}
	return units
}

// judgeReclaim: a machine that a row still needs is not excess. What other machines of the cluster could give the row is
// counted in full, so only a plain mistake is found.
func (c *checker) judgeReclaim(r core.Record, s *said, have []supply) {
	i := slices.IndexFunc(have, func(x supply) bool { return x.ID == r.Machine })
	if i < 0 || have[i].doubt {
		return
	}
	m := &have[i].Machine
	for k := range s.rows {
		row := &s.rows[k]
		if row.Group != "" || len(row.Profile.Spread) > 0 || credit(m, row) == 0 {
			continue
		}
		for _, want := range row.Aggregate {
			sum := int64(0)
			for j := range have {
				if o := c.ops[c.ofM[have[j].ID]]; j != i && o.Kind != core.KindReclaim && credit(&have[j].Machine, row) > 0 {
					sum += amount(have[j].Allocatable, want.Name)
				}
			}
			if sum < want.Milli && amount(m.Allocatable, want.Name) > 0 {
				c.w.broken("reclaim-needed", "ENG-P5", r.Machine, r.Cluster, "%s is reclaimed from %s, where row %s wants %d of %s and all others together have %d",
					r.Machine, r.Cluster, row.RowID, want.Milli, want.Name, sum)
				return
			}
		}
	}
}

// judgeBuy: no row is bought for twice. The rows that could use the machines at hand claim at most so many of them; when
// there are more, one is free for the row that something was bought for.
func (c *checker) judgeBuy(p *process, r core.Record, s *said, have []supply) {
	k := slices.IndexFunc(s.rows, func(x demand.Row) bool { return x.Fingerprint == r.Fingerprint && x.Group == r.Group })
	if k < 0 || s.rows[k].Group != "" || len(s.rows[k].Profile.Spread) > 0 {
		return
	}
	target := &s.rows[k]
	var usable []supply
	for _, x := range have {
		if !x.leaving && !x.doubt && !x.gained && !c.bought(x.ID) && credit(&x.Machine, target) > 0 {
			usable = append(usable, x)
		}
	}
	most := int64(0)
	for i := range s.rows {
		row := &s.rows[i]
		least := int64(0)
		for j := range usable {
			if units := credit(&usable[j].Machine, row); units > 0 && (least == 0 || units < least) {
				least = units
			}
		}
		if least == 0 {
			continue
		}
		if row.Group != "" || len(row.Profile.Spread) > 0 {
			return // gangs choose by domain; a count says nothing
		}
		most += (unitsOf(row) + p.core.FreezeBuffer(r.Cluster, demand.RowKey{Fingerprint: row.Fingerprint, Group: row.Group}) + least - 1) / least // ENG-11.16
	}
	if len(usable) > 0 && int64(len(usable)) >= most {
		c.w.broken("bought-twice", "SHARD-33.5.6", r.Machine, r.Cluster, "%s of %s for row %s of %s, whose rows can use at most %d of the %d machines that are there or on their way: %s",
			r.Kind, r.Machine, target.RowID, r.Cluster, most, len(usable), supplyText(usable))
	}
}

func supplyText(list []supply) string {
	var b strings.Builder
	for i := range list {
		m := &list[i]
		fmt.Fprintf(&b, " %s (%s %s, for %s)", m.ID, m.InstanceType, m.State, m.row)
	}
	return b.String()
}

// bought reports whether a machine was acquired in this step: one plan may cover a row with more machines than the fewest,
// bought and taken over.
func (c *checker) bought(id string) bool {
	return slices.ContainsFunc(c.fresh, func(r core.Record) bool { return r.Machine == id && r.Cause != engine.CauseHandover })
}

func unitsOf(row *demand.Row) int64 {
	units := int64(0)
	for _, q := range row.Aggregate {
		if u := amount(row.MinUnit, q.Name); u > 0 {
			units = max(units, (q.Milli+u-1)/u)
		}
	}
	return units
}

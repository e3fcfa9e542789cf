package reference

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// excludeNotJoined excludes Configured machines whose node never became Ready in time, oldest first. Guards limit how many at
// once, because many at once say that something else is wrong (ENG-17.1 to 17.6).
func (n normalising) excludeNotJoined() {
	for _, c := range n.Clusters {
		f := c.Facts
		if !f.ReportsReadiness {
			continue
		}
		configured := 0
		var overdue []*Machine
		for _, m := range n.Machines {
			if m.Seen != inventory.Configured || m.Cluster != c.Name {
				continue
			}
			configured++
			if !m.Foreign && !m.ready.WasReady() && n.Now-max(m.since, f.ReportingSince) >= n.Policy.JoinTimeout {
				overdue = append(overdue, m)
			}
		}
		slices.SortStableFunc(overdue, func(a, b *Machine) int { return cmp.Or(cmp.Compare(a.since, b.since), byID(a, b)) })
		allowed := max(1, int(n.Policy.JoinGuardPerMille)*configured/1000) - int(f.JoinDrained)
		allowed = min(allowed, int(n.Policy.JoinFailures-f.JoinFailures))
		if len(overdue) >= 5 && 2*len(overdue) > configured {
			allowed = 0
		}
		for i, m := range overdue {
			m.excluded, m.protected = i < allowed, i >= allowed
		}
		n.Result.Counters.JoinOverdue += len(overdue)
		n.Result.Counters.JoinGuarded += len(overdue) - max(0, min(allowed, len(overdue)))
	}
}

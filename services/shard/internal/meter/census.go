package meter

import (
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Census sets the gauges that count machines. Series of kinds that no machine has any more are deleted, so that their
// number stays that of the kinds there are.
func (t *Meter) Census(s *core.Census) {
	g := &t.gauges
	now := make(map[core.CensusKey]bool, len(s.Machines))
	for k, n := range s.Machines {
		now[k] = true
		g.inventory.WithLabelValues(kindLabels(k)...).Set(float64(n))
	}
	for k := range t.kinds {
		if !now[k] {
			g.inventory.DeleteLabelValues(kindLabels(k)...)
		}
	}
	t.kinds = now
	now = make(map[core.CensusKey]bool, len(s.Spend))
	for k, micro := range s.Spend {
		now[k] = true
		g.spend.WithLabelValues(public(k.Capacity.String()), public(k.State.String())).Set(float64(micro) / 1e6)
	}
	for k := range t.spent {
		if !now[k] {
			g.spend.DeleteLabelValues(public(k.Capacity.String()), public(k.State.String()))
		}
	}
	t.spent = now
	for cluster, micro := range s.Clusters {
		g.clusterSpend.WithLabelValues(cluster).Set(float64(micro) / 1e6)
	}
	for cluster := range t.paying {
		if _, still := s.Clusters[cluster]; !still {
			g.clusterSpend.DeleteLabelValues(cluster)
		}
	}
	t.paying = s.Clusters
	for _, state := range [...]inventory.State{inventory.Creating, inventory.Configuring, inventory.Draining, inventory.Deleting} {
		g.stuck.WithLabelValues(public(state.String())).Set(float64(s.Stuck[state]))
	}
	g.failed.WithLabelValues("false").Set(float64(s.Failed[0]))
	g.failed.WithLabelValues("true").Set(float64(s.Failed[1]))
	for r, name := range core.WithheldReasons() {
		if name != "" {
			g.withheld.WithLabelValues(name).Set(float64(s.Withheld[r]))
		}
	}
	g.unjoined.Set(float64(s.Unjoined))
}

func kindLabels(k core.CensusKey) []string {
	return []string{public(k.State.String()), public(k.Capacity.String()), strconv.Itoa(int(k.Bucket))}
}

// public is a state or a capacity type as a label: the words of the wire contract, written together, such as Configured and BareMetal
// (SHARD-29.6). Dashboards of others look for them.
func public(word string) (out string) {
	for part := range strings.SplitSeq(word, "-") {
		out += strings.ToUpper(part[:1]) + part[1:]
	}
	return out
}

// demand sets what the plan says about demand and how machines are shared.
func (t *Meter) demand(s *core.Status) {
	g := &t.gauges
	if s.Cycle == 0 {
		return
	}
	asked := map[int]int{}
	for _, d := range s.Demand {
		asked[int(d.Bucket)] = d.Machines
	}
	for b := range demandBuckets {
		if n := asked[b]; n > 0 || t.asked[b] {
			t.asked[b] = true
			g.demand.WithLabelValues(strconv.Itoa(b)).Set(float64(n))
		}
	}
	for i, level := range ledger.SharingLevels() {
		g.sharing.WithLabelValues(strconv.Itoa(int(level))).Set(float64(s.Sharing[i]))
	}
	g.unplaced.Set(float64(s.Unplaced))
}

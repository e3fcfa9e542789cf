package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// page is the published page.
func page(all []figures, scale float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# B14: BigFleet beside Karpenter\n\nWritten by `make peer` on %s, %d processors, size %.2g of the published one. One row is one turn; each scene has as many turns of each side as rounds.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), scale)
	b.WriteString(preamble)
	var order []string
	by := map[string][]figures{}
	for _, f := range all {
		if by[f.scene] == nil {
			order = append(order, f.scene)
		}
		by[f.scene] = append(by[f.scene], f)
	}
	for _, name := range order {
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		b.WriteString("| Side | Round | p50 | p99 | All run after | Never ran | Machines | Most | $/h | Waste of cpu | Settled | Settled $/h | Evicted | Processor time | Memory | API writes |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
		rows := by[name]
		slices.SortStableFunc(rows, func(a, b figures) int { return cmp.Or(cmp.Compare(a.side, b.side), cmp.Compare(a.round, b.round)) })
		for _, f := range rows {
			fmt.Fprintf(&b, "| %s | %d | %.1f s | %.1f s | %.1f s | %d | %d | %d | %.2f | %.0f %% | %d | %.2f | %d | %.1f s | %d MiB | %d |\n",
				f.side, f.round+1, f.took.At(0.5).Seconds(), f.took.At(0.99).Seconds(), f.last.Seconds(), f.never, f.machines, f.most, f.dollars, 100*f.waste,
				f.settled, f.settledDollars, f.evicted, f.processor.Seconds(), f.memory>>20, f.writes)
		}
	}
	return b.String()
}

const preamble = `Karpenter is its own main for kwok (module ` + "`sigs.k8s.io/karpenter`" + `, version in [e2e/peer/karpenter/go.mod](../../e2e/peer/karpenter/go.mod)) with a NodePool of its defaults.
Both buy on demand from one catalogue: two families from 2 to 32 cpu in three zones, equal prices, equal room on each node. Both give a machine back after it was not needed for 20 s.

Scenes: *burst*, 1,000 equal Pods of 1 cpu; *mix*, 500 Pods of 0.25 cpu, 300 of 1, 50 of 6, and 100 of 1 in one zone; *day*, 200 Pods of 1 cpu; then
*rollout*, their Deployment gets a new template; *scale-down*, it goes to a tenth.

What is not comparable:

- Times depend on what else the machine does. Processor time, machines, dollars, evictions and writes do so less.
- BigFleet is five programs, of which the shard and the provider serve many clusters in production; Karpenter is one for its cluster. Its column holds the
  provider as well, because it is in the same process.
- BigFleet's provider sells a quota of 200 machines of each type in each zone, and a machine that is given back may stay idle and paid for a while. Karpenter's provider
  has no limit, and what it gives back is gone.
- Machines come at once on both sides. Karpenter waits for a pause in the arrival of Pods before it buys (its default, 1 s to 10 s); with machines that
  boot for a minute that matters less.
- API writes are those of all clients without leases: what the scheduler, the controllers and kwok write is the same on both sides.
- *Evicted* counts evictions that the API server granted. A Pod that the Deployment itself deletes is none.

Where BigFleet may be behind, and why:

- *Machines, waste, $/h* of burst, mix and day: it buys within a second of each wave of Pods, so it sees fewer of them at once and buys smaller machines. Each node keeps 0.1 cpu for
  its kubelet, which is a larger part of a small machine. Per cpu all types of this catalogue cost the same.
- *Rollout*: Pods here start and end within a second or two, so that both sides wait for places and buy nothing. Where that takes longer, BigFleet buys after five seconds for what the surge
  adds beyond the replicas, gives it back afterwards, and evicts the Pods on it within their budgets. *Settled* is after 75 s without a change.
- *Settled $/h* of scale-down: it keeps machines in the order of what they cost to disturb until they hold the demand, and gives back the rest. It does not look for a cheaper set, and
  moves no running Pods for one.
- *Evicted* of day: of several waves of Pods each gets what it lacks. Where the machines of a later one hold what a small one was bought for, that one is given back, and the few Pods on it are evicted, within
  their budgets.
- *Memory*: five programs, each with its clients, where the other side has one.
- *API writes*: each Pod has a CapacityRequest, which is what its owner reads to learn why it waits.
`

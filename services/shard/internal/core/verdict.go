package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// Details that the shard adds to the engine's (SHARD-23.4). The numbers are those of bigfleet.v1alpha1.NeedDetail.
const (
	DetailBootstrapError  int32 = 21
	DetailProviderBreaker int32 = 22
	DetailPaused          int32 = 23
	DetailRail            int32 = 24
	DetailNewCluster      int32 = 25
)

// Detail is the finer reason of a row: the shard's own where it knows better than the engine.
func (r *NeedRow) Detail() int32 {
	switch {
	case r.Verdict.Hold == demand.HeldNewCluster && r.Verdict.Status == engine.Short:
		return DetailNewCluster
	case r.BlobText != "" && (r.Verdict.Detail == engine.DetailBootstrapBackoff || r.Verdict.Status == engine.OnTheWay):
		return DetailBootstrapError
	case r.Suppressed == heldPaused || r.Suppressed == heldDryRun:
		return DetailPaused
	case r.Suppressed == heldBreaker || r.Suppressed == heldFence:
		return DetailProviderBreaker
	case r.Suppressed != heldNothing:
		return DetailRail
	}
	return int32(r.Verdict.Detail)
}

// Text is one sentence about a row for people.
func (r *NeedRow) Text() string {
	d := &r.Verdict
	switch r.Detail() {
	case DetailBootstrapError:
		return "Boot data could not be rendered: " + strings.TrimSuffix(r.BlobText, ".") + "."
	case DetailPaused:
		return "Actuation is paused or in dry run; what is planned for this need does not start."
	case DetailProviderBreaker:
		return "The provider does not answer; commands wait until it does."
	case DetailNewCluster:
		return "The cluster is new to this shard, which looks at its provider once more before it buys anything for it."
	case DetailRail:
		return "What is planned for this need waits for a limit of the shard: " + strings.ReplaceAll(r.Suppressed.String(), "_", " ") + "."
	}
	switch {
	case d.Detail != engine.NoDetail:
		return d.Detail.Sentence()
	case d.Status == engine.Short:
		return d.Reason.String()
	case d.Status == engine.OnTheWay:
		return fmt.Sprintf("%d machines are on their way.", r.Coming())
	}
	return "Covered."
}

// Own says whether the detail is the shard's own and not the engine's.
func (r *NeedRow) Own() bool { return r.Detail() >= DetailBootstrapError }

// Remedy says what can be done about a row, or "".
func (r *NeedRow) Remedy() string {
	switch r.Detail() {
	case DetailBootstrapError:
		return "Put the bootstrap template of the cluster right; the need is tried again by itself."
	case DetailPaused:
		if r.Suppressed == heldDryRun {
			return "End the dry run once you agree with the plan: `bigfleet dry-run off`."
		}
		return "`bigfleet get pauses` says who paused it and why; `bigfleet resume` lifts it."
	case DetailProviderBreaker:
		return "Bring the provider back; it is tried again by itself. `bigfleet provider ping ADDRESS` shows whether it answers."
	case DetailNewCluster:
		return "Nothing is to be done: this lasts one List of the provider, or two reconcile intervals if it does not answer."
	case DetailRail:
		return "Wait, or raise the limit in the shard's configuration."
	}
	return r.Verdict.Detail.Remedy()
}

// Suggestion is one change that would help a row with this detail, in words for the owner of a Pod: what only those can do
// who run the fleet is left out, and "" means wait.
func Suggestion(detail int32) string {
	switch {
	case detail == DetailBootstrapError:
		return engine.DetailBootstrapBackoff.Remedy()
	case detail > DetailBootstrapError:
		return ""
	}
	return engine.Detail(detail).Remedy()
}

// Coming is how many machines are on their way for the row, those included that the last plan takes or buys.
func (r *NeedRow) Coming() int32 {
	return max(r.Verdict.Coming, r.Verdict.Bootstrap+r.Verdict.Provision)
}

// suppression tells what keeps the actions planned for needs of a cluster from starting, if it is something that a
// person should hear of. Limits that pass by themselves within moments are not.
func (c *Core) suppression(name string, v *engine.Verdict) hold {
	k := KindBootstrap
	if v.Bootstrap == 0 {
		if v.Provision == 0 {
			return heldNothing
		}
		k = KindProvision
	}
	if h := c.rails.stops(c, k, name, ""); h != heldNothing {
		return h
	}
	open := len(c.providers) > 0
	for _, p := range c.providers {
		open = open && p.breaker.state(c.now) == 2
	}
	switch {
	case open:
		return heldBreaker
	case k == KindProvision && c.cfg.ProvisionRate > 0 && !c.rails.creates.has():
		return heldRate
	}
	return heldNothing
}

// statusDue tells each cluster's operator which verdicts on its rows have changed, at most once per 5 s and row
// (SHARD-25.5). It runs when blocks were spelled out anew, and again when a row had to wait.
func (c *Core) statusDue() {
	next := int64(0)
	for _, b := range c.pub.list {
		cl := c.clusters.get(b.Cluster)
		if cl == nil || !cl.connected() || !cl.has.needStatus || cl.stated == b && !cl.statusWaits {
			continue
		}
		cl.stated, cl.statusWaits = b, false
		for i := range b.Rows {
			r := &b.Rows[i]
			if r.RowID == "" {
				continue
			}
			if at := c.stateNeed(cl, r); at > 0 {
				cl.statusWaits = true
				if next == 0 || at < next {
					next = at
				}
			}
		}
		c.forgetStatuses(cl, b)
	}
	if c.pub.statusAt = next; next > 0 {
		c.timers.add(next, timerHints, "")
	}
}

// tellUnread tells a cluster's operator why nothing is decided while a provider does not answer its first List: no cycle runs
// before (SHARD-6.6), so no verdict speaks of the rows, and their Pods would wait without a word.
func (c *Core) tellUnread(cl *cluster) {
	dead := slices.ContainsFunc(c.providers, func(p *provider) bool { return !p.listed && p.fails > 0 })
	demanded := c.world.Demand.Cluster(cl.name)
	if !dead || demanded == nil || !cl.has.needStatus {
		return
	}
	for i := range demanded.Needs {
		n := &demanded.Needs[i]
		if n.RowID == "" || cl.statuses[n.RowID] != nil {
			continue
		}
		cl.statuses[n.RowID] = &statusSent{at: c.now}
		c.emit(SendNeedStatus{Cluster: cl.name, Session: cl.session, RowID: n.RowID, Key: n.RowKey(), Detail: DetailProviderBreaker,
			Text: "The provider has not answered since the shard started; nothing is decided before it does.", Since: c.toWall(c.now)})
	}
}

// stateNeed sends one verdict if it differs from what was sent last, or returns when it may.
func (c *Core) stateNeed(cl *cluster, r *NeedRow) (waitUntil int64) {
	text, detail := r.Text(), r.Detail()
	satisfied := r.Verdict.Status != engine.Short && detail != DetailBootstrapError // a machine is there, and cannot be used
	// To a plan without a view all machines are another shard's, which says nothing to the owner of a Pod.
	if !satisfied && c.ownsNothingYet() {
		text, detail = "The coordinator has not said yet which machines are this shard's; nothing is bought before it does.", DetailNewCluster
	}
	h := newHash().bool(satisfied).u64(uint64(r.Verdict.Reason)).u64(uint64(uint32(detail))).str(text).i64(r.Since).u64(uint64(uint32(r.Coming()))).sum()
	sent := cl.statuses[r.RowID]
	switch {
	case sent != nil && sent.hash == h:
		return 0
	case sent != nil && c.now-sent.at < needStatusEvery:
		return sent.at + needStatusEvery
	}
	cl.statuses[r.RowID] = &statusSent{hash: h, at: c.now}
	s := SendNeedStatus{Cluster: cl.name, Session: cl.session, RowID: r.RowID, Key: r.key(), Satisfied: satisfied,
		Reason: int32(r.Verdict.Reason), Detail: detail, Text: text, Residual: r.Residual, OnTheWay: int64(r.Coming())}
	if !satisfied {
		s.Since = c.toWall(r.Since)
	}
	c.emit(s)
	return 0
}

// forgetStatuses drops what was said of rows that are gone.
func (c *Core) forgetStatuses(cl *cluster, b *NeedBlock) {
	if len(cl.statuses) <= len(b.Rows) {
		return
	}
	live := make(map[string]bool, len(b.Rows))
	for i := range b.Rows {
		live[b.Rows[i].RowID] = true
	}
	for _, id := range sortedKeys(cl.statuses) {
		if !live[id] {
			delete(cl.statuses, id)
		}
	}
}

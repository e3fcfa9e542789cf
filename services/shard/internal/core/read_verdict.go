package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Details that the shard adds to the engine's (SHARD-23.4). The numbers are those of bigfleet.v1alpha1.NeedDetail.
const (
	DetailBootstrapError  int32 = 21
	DetailProviderBreaker int32 = 22
	DetailPaused          int32 = 23
	DetailRail            int32 = 24
	DetailNewCluster      int32 = 25
	DetailProviderDown    int32 = 26
	DetailLimit           int32 = 27
	DetailConfigureFailed int32 = 28
	DetailTooManyDomains  int32 = 32
)

const tooManyDomainsRemedy = "Use a topology key that machines share. A spread over kubernetes.io/hostname limits the Pods of each host."

// HeldBack reports whether the plan covers the row and something keeps it from being carried out: a pause, a dry run, a
// limit, a provider that does not answer.
func (r *NeedRow) HeldBack() bool {
	return r.Verdict.Status == engine.OnTheWay && r.Blocked != notBlocked
}

// Unmet reports whether the row is short or held back: not covered by machines that are there, or on a way that is moving
// (SHARD-23.8). Verdicts, metrics and events all count by it.
func (r *NeedRow) Unmet() bool {
	return r.Verdict.Status == engine.Short || r.HeldBack() || r.Detail() == DetailBootstrapError
}

// Detail is the finer reason of a row: the shard's own where it knows better than the engine.
func (r *NeedRow) Detail() int32 {
	switch {
	case r.Verdict.Hold == demand.HeldNewCluster && r.Verdict.Status == engine.Short:
		return DetailNewCluster
	case r.Verdict.Hold == demand.HeldTooManyDomains && r.Verdict.Status == engine.Short:
		return DetailTooManyDomains
	case r.BlobText != "" && (r.Verdict.Detail == engine.DetailBootstrapBackoff || r.Verdict.Status == engine.OnTheWay):
		return DetailBootstrapError
	case r.ConfigureFailed != "" && r.Verdict.Detail == engine.DetailBootstrapBackoff:
		return DetailConfigureFailed
	}
	switch r.Blocked {
	case notBlocked:
		return int32(r.Verdict.Detail)
	case blockedPaused, blockedDryRun:
		return DetailPaused
	case blockedOutage, blockedUnread:
		return DetailProviderDown
	case blockedBreaker, blockedFence:
		return DetailProviderBreaker
	case blockedCeiling:
		return DetailLimit
	}
	return DetailRail
}

// Text is one sentence about a row for people.
func (r *NeedRow) Text() string {
	d := &r.Verdict
	switch r.Detail() {
	case DetailBootstrapError:
		return "Boot data could not be rendered: " + strings.TrimSuffix(r.BlobText, ".") + "."
	case DetailConfigureFailed:
		return "The last machine for this need could not be configured: " + strings.TrimSuffix(r.ConfigureFailed, ".") + "."
	case DetailPaused:
		return "The actions planned for this need are not started: " + r.BlockedBy + "."
	case DetailProviderDown, DetailProviderBreaker:
		if r.Blocked == blockedUnread {
			return "Machines that are not known yet may serve this need: " + r.BlockedBy + ". Until then one machine at a time is added, for Pods that find no Node."
		}
		return "Suitable machines are withheld: " + r.BlockedBy + "."
	case DetailNewCluster:
		return "The cluster is new to this shard, which reads its provider's inventory again before it buys anything for it."
	case DetailTooManyDomains:
		return fmt.Sprintf("Machines have more than %d values of the topology key %s, which therefore has no domains: nothing is bought for this need.", inventory.DomainsMax, r.Form.TopologyKey())
	case DetailLimit:
		return "The actions planned for this need are held by a limit of its cluster: " + r.BlockedBy + "."
	case DetailRail:
		return "The actions planned for this need are held by a limit of the shard: " + r.BlockedBy + "."
	}
	switch {
	case d.Detail != engine.NoDetail:
		return d.Detail.Sentence()
	case d.Status == engine.Short:
		return d.Reason.String()
	case d.Status == engine.OnTheWay:
		return fmt.Sprintf("%d machines are on their way.", r.Coming())
	}
	return "Met."
}

// Own says whether the detail is the shard's own and not the engine's.
func (r *NeedRow) Own() bool { return !engine.Detail(r.Detail()).Planned() }

// Remedy says what can be done about a row, or "".
func (r *NeedRow) Remedy() string {
	switch r.Detail() {
	case DetailBootstrapError:
		return "Correct the bootstrap template of the cluster; the need is retried automatically."
	case DetailConfigureFailed:
		return "This is the provider's message. Check the provider first, then the bootstrap template; the need is retried automatically."
	case DetailPaused:
		if r.Blocked == blockedDryRun {
			return "End the dry run once you agree with the plan: `bigfleet dry-run off`."
		}
		return "`bigfleet get pauses` says who paused it and why; `bigfleet resume` ends it."
	case DetailProviderBreaker, DetailProviderDown:
		return "Restore the provider; the shard retries automatically. `bigfleet provider ping ADDRESS` shows whether it answers."
	case DetailNewCluster:
		return "No action is needed: this ends with the next List of the provider, or after two reconcile intervals if it does not answer."
	case DetailTooManyDomains:
		return tooManyDomainsRemedy
	case DetailRail, DetailLimit:
		return "Wait, or raise the limit in the shard's configuration."
	}
	return r.Verdict.Detail.Remedy()
}

// Suggestion is one change that would help a row with this detail, in words for the owner of a Pod: what only the
// operators of the fleet can do is left out, and "" means wait.
func Suggestion(detail int32) string {
	switch {
	case detail == DetailBootstrapError:
		return engine.DetailBootstrapBackoff.Remedy()
	case detail == DetailTooManyDomains:
		return tooManyDomainsRemedy
	case !engine.Detail(detail).Planned():
		return ""
	}
	return engine.Detail(detail).Remedy()
}

// Coming is how many machines are on their way for the row, those included that the last plan takes or buys.
func (r *NeedRow) Coming() int32 {
	return max(r.Verdict.Coming, r.Verdict.Bootstrap+r.Verdict.Provision)
}

// blockedRows is what keeps the decisions of the last plan from starting, by the row that they serve.
type blockedRows map[blockedRow]blockedReason

type blockedRow struct {
	block *engine.Block
	row   int32
}

// blockedRows collects what blocks decisions and does not pass by itself within moments, and the rows whose machines are on
// their way at a provider that does not answer.
func (c *publisher) blockedRows(r *engine.Result) blockedRows {
	out := blockedRows{}
	for _, k := range [...]Kind{KindBootstrap, KindProvision} {
		for i := range c.cycle.waiting[k] {
			d := &c.cycle.waiting[k][i]
			switch d.blocked {
			case blockedPaused, blockedDryRun, blockedBreaker, blockedFence, blockedRate, blockedQuota, blockedCeiling, blockedUnread:
				if ref := d.action.Need; !ref.None() {
					out[blockedRow{r.Blocks[ref.Block], ref.Row}] = d.blocked
				}
			}
		}
	}
	if !c.outages.anyOutage() {
		return out
	}
	blocks := make(map[string]*engine.Block, len(r.Blocks))
	for _, b := range r.Blocks {
		blocks[b.Cluster] = b
	}
	for _, o := range c.ops.list {
		b := blocks[o.Cluster]
		if o.Deleted || b == nil || !c.world.Inventory.Stalled(o.Index) {
			continue
		}
		if at, found := c.world.Demand.Position(o.Cluster, o.Need); found && at < len(b.Needs) {
			out[blockedRow{b, int32(at)}] = c.outages.outageReason()
		}
	}
	return out
}

// blockedReasonOf says what keeps a row from being served although it is planned for, or its supply from being used, and
// names it.
func (c *publisher) blockedReasonOf(b *engine.Block, i int, rows blockedRows) (blockedReason, string) {
	v := &b.Verdicts[i]
	if v.Status == engine.Met {
		return notBlocked, ""
	}
	h := notBlocked
	if len(rows) > 0 {
		h = rows[blockedRow{b, int32(i)}]
		if v.Fold >= 0 {
			h = max(h, rows[blockedRow{b, v.Fold}])
		}
	}
	switch {
	case v.Status == engine.Short && !c.allListed():
		h = blockedUnread
	case v.Bootstrap > 0:
		h = cmp.Or(c.guards.blocks(KindBootstrap, b.Cluster, ""), h)
	case v.Provision > 0:
		h = cmp.Or(c.guards.blocks(KindProvision, b.Cluster, ""), h)
	case v.Status == engine.Short && (v.Detail == engine.DetailWithheld && c.outages.anyOutage() || v.Detail == engine.DetailHeldByOthers && h != notBlocked):
		h = c.outages.outageReason()
	case h == blockedOutage || h == blockedBreaker:
		h = notBlocked // other machines are on their way
	}
	if h == notBlocked {
		return h, ""
	}
	return h, c.blockedText(h, b.Cluster)
}

// blockedText names what holds actions for a cluster back.
func (c *publisher) blockedText(h blockedReason, cluster string) string {
	switch h {
	case blockedPaused:
		return c.guards.pauseText(cluster)
	case blockedDryRun:
		return "the shard is in dry run"
	case blockedRate:
		return fmt.Sprintf("--provision-rate allows %d Creates per minute", c.cfg.ProvisionRate)
	case blockedFence:
		return "the provider rejected a command as that of an older process; a second attempt decides whether that is true"
	case blockedCeiling:
		return c.guards.ceilingText(cluster)
	case blockedQuota:
		return "the quota slice of this shard is used up"
	case blockedOutage, blockedBreaker, blockedUnread:
		if text := c.outages.outages(); text != "" {
			return text
		}
	}
	return strings.ReplaceAll(h.String(), "_", " ")
}

// heldSince returns since when a row is unmet: what marks says of a short row; of one that is held back, when that began.
func (cl *cluster) heldSince(b *engine.Block, i int, m rowMark, now int64) int64 {
	held := b.Verdicts[i].Status == engine.OnTheWay && m.blocked != notBlocked
	if !held && len(cl.heldBack) == 0 {
		return m.since
	}
	key := b.Needs[i].RowKey()
	if !held {
		delete(cl.heldBack, key)
		return m.since
	}
	if cl.heldBack == nil {
		cl.heldBack = map[demand.RowKey]int64{}
	}
	if cl.heldBack[key] == 0 {
		cl.heldBack[key] = now
	}
	return cl.heldBack[key]
}

// statusDue notifies each cluster's operator which verdicts on its rows have changed, at most once per 5 s and row
// (SHARD-25.5). It runs when blocks were rebuilt, and again when a row had to wait or was left over.
func (c *publisher) statusDue() {
	next := int64(0)
	for _, b := range c.list {
		cl := c.clusters.get(b.Cluster)
		if cl == nil || !cl.connected() || !cl.has.needStatus {
			continue
		}
		if cl.stated == b && !cl.statusWaits && (cl.statusAsOf == 0 || cl.statusAsOf == c.classes()) {
			continue
		}
		if at := c.stateNeeds(cl, b, statusPart); at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if c.statusAt = next; next > 0 {
		c.timers.add(next, timerHints, "")
	}
}

// statusPart is how many rows of one cluster are looked at in one step: each takes microseconds, and others wait for all of them.
const statusPart = 1024

// exactRows is for how many rows of a cluster a status names the requirements that no machine meets. One of them takes as long as exactCost others: each
// requirement may be compared with each class of machines.
const exactRows, exactCost = 1024, 15

// stateNeeds looks at the next rows of a block, and returns when to continue, or 0. A block that replaces one before all rows were
// looked at continues at the same place, so that the last rows have their turn.
func (c *publisher) stateNeeds(cl *cluster, b *NeedBlock, most int) (next int64) {
	if cl.stated != b || cl.statusLeft == 0 {
		cl.stated, cl.statusWaits, cl.statusLeft, cl.statusAsOf = b, false, len(b.Rows), 0
	}
	for ; cl.statusLeft > 0 && most > 0; most-- {
		if cl.StatusNext >= len(b.Rows) {
			cl.StatusNext = 0
		}
		place, r := cl.StatusNext, &b.Rows[cl.StatusNext]
		cl.StatusNext, cl.statusLeft = cl.StatusNext+1, cl.statusLeft-1
		if r.RowID == "" {
			continue
		}
		if place < exactRows && r.Verdict.Detail == engine.DetailNoMatch {
			most -= exactCost
		}
		if at := c.stateNeed(cl, r, place); at > 0 && (cl.statusFrom == 0 || at < cl.statusFrom) {
			cl.statusFrom = at
		}
	}
	if cl.statusLeft > 0 {
		cl.statusWaits = true
		return c.now + 1
	}
	c.forgetStatuses(cl, b)
	next, cl.statusFrom = cl.statusFrom, 0
	cl.statusWaits = next > 0
	return next
}

// notifyUnread notifies a cluster's operator why nothing is decided while a provider does not answer its first Lists: no cycle runs
// meanwhile (SHARD-6.6), so no verdict speaks of the rows, and their Pods would wait without a word.
func (c *publisher) notifyUnread(cl *cluster) {
	dead := slices.IndexFunc(c.providers, func(p *provider) bool { return !p.Listed && p.Fails > 0 })
	demanded := c.world.Demand.Cluster(cl.Name)
	if dead < 0 || demanded == nil || !cl.has.needStatus {
		return
	}
	for i := range demanded.Needs {
		n := &demanded.Needs[i]
		if n.RowID == "" || cl.statuses[n.RowID] != nil {
			continue
		}
		cl.statuses[n.RowID] = &statusSent{at: c.now}
		c.emit(SendNeedStatus{Cluster: cl.Name, Session: cl.Session, RowID: n.RowID, Key: n.RowKey(), Detail: DetailProviderBreaker,
			Text: "Machines that are not known yet may serve this need: provider " + c.providers[dead].Name + " has not answered since the shard started.", Since: c.toWall(c.now)})
	}
}

// stateNeed sends one verdict if it differs from what was sent last, or returns when it may.
func (c *publisher) stateNeed(cl *cluster, r *NeedRow, place int) (waitUntil int64) {
	text, detail := r.Text(), r.Detail()
	satisfied := !r.Unmet()
	// To a plan without a view all machines are another shard's, which says nothing to the owner of a Pod.
	if !satisfied && c.ownership.ownsNothingYet() {
		text, detail = "The coordinator has not yet assigned machines to this shard; nothing is bought until it does.", DetailNewCluster
	}
	sent, now := cl.statuses[r.RowID], statusSent{at: c.now}
	if detail == int32(engine.DetailNoMatch) && place < exactRows {
		now.byNone, now.classes = c.metByNone(r.Form, sent), c.classes()
		cl.statusAsOf = now.classes
		text += now.byNone
	}
	now.hash = newHash().bool(satisfied).u64(uint64(r.Verdict.Reason)).u64(uint64(uint32(detail))).str(text).i64(r.Since).u64(uint64(uint32(r.Coming()))).sum()
	switch {
	case sent != nil && sent.hash == now.hash:
		if sent.classes != now.classes {
			now.at = sent.at
			cl.statuses[r.RowID] = &now
		}
		return 0
	case sent != nil && c.now-sent.at < needStatusEvery:
		return sent.at + needStatusEvery
	}
	cl.statuses[r.RowID] = &now
	s := SendNeedStatus{Cluster: cl.Name, Session: cl.Session, RowID: r.RowID, Key: r.key(), Satisfied: satisfied,
		Reason: int32(r.Verdict.Reason), Detail: detail, Text: text, Residual: r.Residual, OnTheWay: int64(r.Coming())}
	if !satisfied {
		s.Since = c.toWall(r.Since)
	}
	c.emit(s)
	return 0
}

// metByNone names the requirements that no machine meets. It is found again when the classes of machines have changed.
func (c *publisher) metByNone(f *demand.Form, sent *statusSent) string {
	if sent != nil && sent.classes == c.classes() {
		return sent.byNone
	}
	return match.MetByNone(c.world.Inventory, f)
}

// classes is the version of the classes of machines, never 0.
func (c *publisher) classes() uint64 { return c.world.Inventory.ClassVersion() + 1 }

// forgetStatuses drops what was said of rows that are gone.
func (c *publisher) forgetStatuses(cl *cluster, b *NeedBlock) {
	if len(cl.statuses) <= len(b.Rows) {
		return
	}
	live := make(map[string]bool, len(b.Rows))
	for i := range b.Rows {
		live[b.Rows[i].RowID] = true
	}
	for id := range cl.statuses { // order does not matter
		if !live[id] {
			delete(cl.statuses, id)
		}
	}
}

package shards

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// Run does what happens without a report, until the leadership ends.
func (d *ShardRegistry) Run() {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var sweep <-chan time.Time
	if d.config.SweepEvery > 0 {
		t := time.NewTicker(d.config.SweepEvery)
		defer t.Stop()
		sweep = t.C
	}
	defer d.registrar.wait()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-second.C:
			d.tick(time.Now())
		case <-sweep:
			d.sweep(time.Now())
		}
	}
}

// tick looks at the whole fleet once. A failed commit is tried again with the next tick.
func (d *ShardRegistry) tick(now time.Time) {
	st := d.config.Group.State()
	d.forget()
	d.ages.refresh(st, now)
	ops := d.sessions(st, now)
	ops = append(ops, d.merge(st, now)...)
	if !st.Merging() {
		ops = append(ops, d.emptyShards(st)...)
		ops = append(ops, d.autoAssign(st, now)...)
	}
	ops = append(ops, d.purge(st, now)...)
	ops = append(ops, d.level(st, now)...)
	for id := range d.waitedFor(st) {
		ops = append(ops, st.AckedOperations(id, d.acked)...)
	}
	for len(ops) > 0 {
		n := min(len(ops), batchMax)
		ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
		err := d.commit(ctx, ops[:n]...)
		cancel()
		if err != nil {
			if d.ctx.Err() == nil {
				d.config.Log.Warn("housekeeping was not committed", "err", err)
			}
			return
		}
		ops = ops[n:]
	}
}

// waitedFor are the shards that handovers wait for.
func (d *ShardRegistry) waitedFor(st *fleet.State) map[string]bool {
	out := map[string]bool{}
	for _, s := range d.all() {
		if st.Awaited(s.id) {
			out[s.id] = true
		}
	}
	return out
}

// sessions follows live sessions: conflicts, rebinds, clusters that no shard reports (COORD-10.3, 10.4, 10.7).
func (d *ShardRegistry) sessions(st *fleet.State, now time.Time) []*pb.Operation {
	type live struct {
		shard string
		since time.Time
	}
	sessions := map[string][]live{}
	reported := map[string]bool{}
	complete, partial := map[string]bool{}, map[string]bool{} // shards that report: with their whole list, and without
	for _, s := range d.all() {
		s.mu.Lock()
		if s.fresh(now) { // what a shard said last says nothing of a session once it is silent
			for id, since := range s.liveSince {
				sessions[id] = append(sessions[id], live{s.id, since})
			}
			for id := range s.links {
				reported[id] = true
			}
			if s.linksComplete {
				complete[s.id] = true
			} else {
				partial[s.id] = true
			}
		}
		s.mu.Unlock()
	}
	var ops []*pb.Operation
	conflicts := map[string]string{}
	for _, id := range sortedKeys(sessions) {
		bound := st.Cluster(id).GetShardId()
		if bound == "" {
			continue // the next report binds it
		}
		list := sessions[id]
		slices.SortFunc(list, func(x, y live) int { return cmp.Or(x.since.Compare(y.since), cmp.Compare(x.shard, y.shard)) })
		atHome := slices.ContainsFunc(list, func(l live) bool { return l.shard == bound })
		for _, l := range list {
			switch {
			case l.shard == bound:
			case atHome:
				conflicts[id] = l.shard
			case complete[bound] && now.Sub(l.since) >= rebindAfter && len(ops) < batchMax && !st.Merging():
				ops = append(ops, &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{ClusterId: id, ShardId: l.shard,
					Source: v1.ClusterBinding_SOURCE_REPORT, Rebind: true, Expected: bound, Holders: d.Holders(st, id, l.shard)}}})
			default:
				continue
			}
			if l.shard != bound {
				break
			}
		}
	}
	ops = append(ops, d.noteConflicts(conflicts)...)
	return append(ops, d.noteUnseen(st, reported, partial, now)...)
}

// noteConflicts audits each conflict once.
func (d *ShardRegistry) noteConflicts(conflicts map[string]string) []*pb.Operation {
	d.conflictMu.Lock()
	defer d.conflictMu.Unlock()
	var ops []*pb.Operation
	for _, id := range sortedKeys(conflicts) {
		if d.conflicts[id] != conflicts[id] {
			d.config.Log.Error("a cluster has live sessions at two shards", "cluster", id, "shard", conflicts[id])
			ops = append(ops, d.audited(conflicts[id], "binding-conflict", sprintf("cluster %s has a second live session at shard %s", id, conflicts[id]))...)
		}
	}
	d.conflicts = conflicts
	return ops
}

// noteUnseen marks clusters that no shard has reported for a while, and removes the mark. A shard that reports without
// its whole list may have them.
func (d *ShardRegistry) noteUnseen(st *fleet.State, reported, partial map[string]bool, now time.Time) []*pb.Operation {
	if now.Sub(d.opened) < staleAfter*ReportInterval {
		return nil
	}
	var ops []*pb.Operation
	for c := range st.Clusters() {
		id := c.GetClusterId()
		switch {
		case c.GetShardId() == "" || len(ops) >= batchMax:
		case reported[id]:
			delete(d.unseen, id)
			if c.GetUnseenSinceUnixNanos() != 0 {
				ops = append(ops, markCluster(id, 0))
			}
		case c.GetUnseenSinceUnixNanos() != 0 || partial[c.GetShardId()]:
		case d.unseen[id].IsZero():
			d.unseen[id] = now
		case now.Sub(d.unseen[id]) >= unseenAfter:
			ops = append(ops, markCluster(id, d.unseen[id].UnixNano()))
		}
	}
	return ops
}

func markCluster(id string, since int64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_MarkCluster{MarkCluster: &pb.MarkCluster{ClusterId: id, UnseenSinceUnixNanos: since}}}
}

// Stale reports a cluster that no shard has reported for 30 days (COORD-10.7).
func Stale(c *pb.Cluster, now time.Time) bool {
	return c.GetUnseenSinceUnixNanos() != 0 && now.Sub(time.Unix(0, c.GetUnseenSinceUnixNanos())) >= staleCluster
}

// merge ends the collection of holdings after a restore (COORD-12.5, 15.16): when three intervals passed and every shard
// was heard, or after mergeWaitMax, since a shard that is gone must not hold the fleet up forever.
func (d *ShardRegistry) merge(st *fleet.State, now time.Time) []*pb.Operation {
	age := now.Sub(d.opened)
	if !st.Merging() || age < staleAfter*ReportInterval {
		return nil
	}
	for sh := range st.Shards() {
		if !fleet.Live(sh) || st.Merged(sh.GetShardId()) || age >= mergeWaitMax {
			continue
		}
		s := d.known(sh.GetShardId())
		if s == nil {
			return nil
		}
		s.mu.Lock()
		waits := s.view || !s.heard
		s.mu.Unlock()
		if waits {
			return nil
		}
	}
	return []*pb.Operation{{Kind: &pb.Operation_FinishMerge{FinishMerge: &pb.FinishMerge{}}}}
}

// emptyShards moves the domains of draining shards away, one at a time, then what they own by default (COORD-12.22).
func (d *ShardRegistry) emptyShards(st *fleet.State) []*pb.Operation {
	var ops []*pb.Operation
	for sh := range st.Shards() {
		if sh.GetState() != v1.ShardState_SHARD_STATE_DRAINING {
			continue
		}
		to := d.lightest(st, sh.GetProvider(), sh.GetShardId())
		if to == "" {
			continue
		}
		var first *pb.Domain
		moving := false
		for dom := range st.DomainsOf(sh.GetShardId()) {
			if fleet.InHandover(dom) {
				moving = true
			} else if first == nil && dom.GetOwner() == sh.GetShardId() {
				first = dom
			}
		}
		provider := st.Provider(sh.GetProvider())
		switch {
		case moving:
		case first != nil:
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_MoveDomain{MoveDomain: &pb.MoveDomain{Key: first.GetKey(), Value: first.GetValue(), To: to}}})
		case provider.GetDefaultOwner() == sh.GetShardId() && provider.GetNextDefaultOwner() == "":
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: &v1.ProviderRegistration{
				Name: provider.GetName(), Addresses: provider.GetAddresses(), Region: provider.GetRegion(), PartitionKeys: provider.GetPartitionKeys(),
				UnownedPolicy: provider.GetUnownedPolicy(), DefaultOwner: to}}}})
		}
	}
	return ops
}

// lightest is the active, fresh shard of a provider with the fewest machines.
func (d *ShardRegistry) lightest(st *fleet.State, provider, but string) string {
	best, least := "", int32(0)
	for id := range st.ShardsOf(provider) {
		s := d.known(id)
		if id == but || s == nil || st.Shard(id).GetState() != v1.ShardState_SHARD_STATE_ACTIVE {
			continue
		}
		s.mu.Lock()
		fresh, n := s.fresh(time.Now()), s.summary.GetTotalMachines()
		s.mu.Unlock()
		if fresh && (best == "" || n < least) {
			best, least = id, n
		}
	}
	return best
}

// autoAssign gives unowned values of the first partition key to the lightest shard (COORD-9.8). The coordinator
// knows values only from supply buckets, so only of the keys that buckets carry.
func (d *ShardRegistry) autoAssign(st *fleet.State, now time.Time) []*pb.Operation {
	d.assigned = slices.DeleteFunc(d.assigned, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	var ops []*pb.Operation
	for p := range st.Providers() {
		if p.GetUnownedPolicy() != v1.UnownedPolicy_UNOWNED_POLICY_AUTO_ASSIGN || len(p.GetPartitionKeys()) == 0 {
			continue
		}
		key := p.GetPartitionKeys()[0]
		for _, value := range d.values(st, p.GetName(), key) {
			to := d.lightest(st, p.GetName(), "")
			if st.Domain(key, value) != nil || to == "" || len(d.assigned) >= autoAssignRate {
				continue
			}
			d.assigned = append(d.assigned, now)
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: key, Value: value, ShardId: to}}})
		}
	}
	return ops
}

func (d *ShardRegistry) values(st *fleet.State, provider, key string) []string {
	set := map[string]bool{}
	for id := range st.ShardsOf(provider) {
		s := d.known(id)
		if s == nil {
			continue
		}
		s.mu.Lock()
		for _, b := range s.supply {
			switch key {
			case fleet.ZoneKey:
				set[b.Kind.Zone] = true
			case "topology.kubernetes.io/region":
				set[b.Kind.Region] = true
			}
		}
		s.mu.Unlock()
	}
	delete(set, "")
	return sortedKeys(set)
}

// purge drops finished moves that no cooldown needs any more.
func (d *ShardRegistry) purge(st *fleet.State, now time.Time) []*pb.Operation {
	kept := max(moveKept, time.Duration(st.Policy().GetMachineCooldownSeconds())*time.Second)
	var old, young []int64 // by the clocks of their proposers
	for m := range st.Moves() {
		switch at := m.GetUpdatedAtUnixNanos(); {
		case fleet.Open(m):
		case d.ages.of(m, now) >= kept:
			old = append(old, at)
		default:
			young = append(young, at)
		}
	}
	if len(old) == 0 {
		return nil
	}
	before := slices.Max(old) + 1
	if len(young) > 0 {
		before = min(before, slices.Min(young))
	}
	if before <= slices.Min(old) {
		return nil // behind a younger one of a clock that went back
	}
	return []*pb.Operation{{Kind: &pb.Operation_PurgeMoves{PurgeMoves: &pb.PurgeMoves{BeforeUnixNanos: before}}}}
}

// level raises the feature level when every replica has supported it for a while (COORD-4.5).
func (d *ShardRegistry) level(st *fleet.State, now time.Time) []*pb.Operation {
	lowest := d.config.LevelMax
	for p := range st.Peers() {
		if !p.GetRemoved() {
			lowest = min(lowest, p.GetFeatureLevelMax())
		}
	}
	if lowest <= st.Meta().GetFeatureLevel() {
		d.levelSince = time.Time{}
		return nil
	}
	if d.levelSince.IsZero() {
		d.levelSince = now
	}
	if now.Sub(d.levelSince) < levelSupported {
		return nil
	}
	return []*pb.Operation{{Kind: &pb.Operation_SetFeatureLevel{SetFeatureLevel: &pb.SetFeatureLevel{Level: lowest}}}}
}

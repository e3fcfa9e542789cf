package report

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

const (
	scanMachines = 1024 // a visit takes a third of a millisecond, ten if no two of them are alike
	bucketsMax   = 256
)

// build makes a report of the last view and takes what rides on it. It returns nil before the first view.
func (r *Reporter) build(ctx context.Context) *pb.ShardReport {
	v := r.cfg.View()
	if v == nil {
		return nil
	}
	found, complete := r.scan(ctx)
	r.mu.Lock()
	acks, violations := r.acks, r.violations
	r.acks, r.violations = nil, nil
	r.mu.Unlock()
	r.cycle++
	st := &v.Status
	out := &pb.ShardReport{
		ShardId: r.cfg.ShardID, Cycle: r.cycle, TimestampUnixNanos: time.Now().UnixNano(), ShardEpoch: r.cfg.Epoch, ShardAddress: r.cfg.Address,
		ShardVersion: r.cfg.Version, ObservedTerm: st.Coord.Lineage.Term, ClusterUuid: st.Coord.Lineage.UUID, InstructionAcks: acks, OwnershipViolations: violations,
		Capabilities: []string{"view/1", "moves/1"}, Summary: summary(found), Supply: buckets(found), SupplyComplete: complete,
	}
	out.Summary.ProviderAddress, out.Summary.PerStateCounts = r.cfg.ProviderAddress, convert.States(st.States)
	out.Summary.CostPerHour, out.Summary.Paused = convert.Dollars(st.Cost), st.Paused
	if r.cfg.Stores != nil {
		out.Summary.ProviderStores, _ = r.cfg.Stores()
	}
	if w := st.Coord.View; w != nil {
		out.ViewVersion = &pb.ViewVersion{Term: w.Term, Index: w.Index}
		out.ReturnedExceptions = r.returned(w)
	}
	for i := range st.Shortfalls {
		out.Shortfalls = append(out.Shortfalls, shortfall(v, &st.Shortfalls[i]))
	}
	if now := links(v); r.linksDue(now) {
		out.Clusters, out.ClustersComplete = now, true
	}
	if r.holdings {
		out.Holdings = holdings(&st.Coord)
	}
	return out
}

func shortfall(v *core.Publish, s *core.Shortfall) *pb.Shortfall {
	return &pb.Shortfall{Requirements: convert.Requirements(s.Reqs), Deficit: convert.Quantities(hardware(s.Residual)), Priority: s.Priority,
		AgeCycles: int32(s.AgeCycles), InterruptionPenaltyBucket: pb.PenaltyBucket(s.Bucket), AgeSeconds: (v.At - s.Since) / core.Second,
		MinUnit: convert.Quantities(hardware(s.MinUnit)), Fingerprint: s.Fingerprint, UnmetReason: pb.UnmetReason(s.Reason),
		TopologyBound: slices.ContainsFunc(s.Reqs, func(q demand.Requirement) bool { return q.Op == demand.Same })}
}

// hardware leaves out the limits of kubelets and CSI drivers, which the supply of other shards need not state, unless nothing else is asked for.
func hardware(list []resource.Quantity) []resource.Quantity {
	out := slices.DeleteFunc(slices.Clone(list), func(q resource.Quantity) bool { return resource.IsLimit(q.Name) })
	if len(out) == 0 {
		return list
	}
	return out
}

func links(v *core.Publish) (out []*pb.ClusterLink) {
	for _, c := range v.Clusters {
		x := &pb.ClusterLink{ClusterId: c.Name, LiveSession: c.Connected, RollupAgeSeconds: -1, Quarantined: c.Held > 0,
			BoundMachines: int32(c.States[inventory.Configuring] + c.States[inventory.Configured] + c.States[inventory.Draining])}
		if c.Fresh > 0 {
			x.RollupAgeSeconds = (v.At - c.Fresh) / core.Second
		}
		out = append(out, x)
	}
	return out
}

// linksDue reports whether this report carries the list of clusters: after a change, and from time to time (COORD-10.2).
func (r *Reporter) linksDue(now []*pb.ClusterLink) bool {
	if r.cycle-r.sentLink < linksEvery && r.sentLink != 0 && !r.holdings && slices.EqualFunc(now, r.links, sameLink) {
		return false
	}
	r.sentLink, r.links = r.cycle, now
	return true
}

// sameLink reports whether a cluster stands as it was last reported. That its roll-up grew older is not a change.
func sameLink(a, b *pb.ClusterLink) bool {
	return a.ClusterId == b.ClusterId && a.LiveSession == b.LiveSession && a.BoundMachines == b.BoundMachines && a.Quarantined == b.Quarantined
}

func holdings(c *core.CoordinatorStatus) *pb.Holdings {
	out := &pb.Holdings{}
	for _, r := range c.Reservations {
		out.Reservations = append(out.Reservations, &pb.Reservation{MoveId: r.Move, MachineIds: r.Machines})
	}
	for _, d := range c.Domains {
		out.Domains = append(out.Domains, &pb.DomainRef{TopologyKey: d.Key, TopologyValue: d.Value})
	}
	if v := c.View; v != nil {
		for _, d := range v.Owned {
			out.Domains = append(out.Domains, &pb.DomainRef{TopologyKey: d.Key, TopologyValue: d.Value})
		}
		out.ExceptionsIn, out.ExceptionsOut, out.ReleasedClusters = exceptions(v.In), exceptions(v.Out), v.Released
	}
	return out
}

func exceptions(list []core.Exception) (out []*pb.MachineException) {
	for _, e := range list {
		out = append(out, &pb.MachineException{MachineId: e.Machine, OwnerShardId: e.Owner, MoveId: e.Move})
	}
	return out
}

// scan counts the machines in short visits of the core, so that the loop is never held up (SHARD-21.2), and reports whether it saw all.
func (r *Reporter) scan(ctx context.Context) (found map[core.SupplyKey]*core.Supply, complete bool) {
	found = map[core.SupplyKey]*core.Supply{}
	for next := 0; next >= 0; {
		if !r.visits.Visit(ctx, func() { next = r.cfg.Core.CountSupply(found, next, scanMachines) }) {
			return found, false
		}
	}
	return found, true
}

// summary sums up what was counted.
func summary(found map[core.SupplyKey]*core.Supply) *pb.ShardSummary {
	out := &pb.ShardSummary{PerInstanceTypeCounts: map[string]int32{}, PerZoneCounts: map[string]int32{}}
	for k, s := range found { // order does not matter: these are sums
		all := int32(0)
		for _, n := range s.States {
			all += n
		}
		out.TotalMachines += all
		out.FreeMachines += s.States[inventory.Idle] + s.States[inventory.Speculative]
		out.PerInstanceTypeCounts[k.Type] += all
		out.PerZoneCounts[k.Zone] += all
	}
	return out
}

// buckets lists the supply, the largest first, at most as many as the coordinator keeps.
func buckets(found map[core.SupplyKey]*core.Supply) (out []*pb.SupplyBucket) {
	for k, s := range found { // sorted below
		out = append(out, &pb.SupplyBucket{InstanceType: k.Type, Zone: k.Zone, CapacityType: pb.CapacityType(k.Capacity), Arch: k.Arch, Os: k.OS,
			Region: k.Region, Idle: s.States[inventory.Idle], Speculative: s.States[inventory.Speculative], Configured: s.States[inventory.Configured],
			Allocatable: convert.Quantities(s.Offer), PricePerHour: convert.Dollars(s.Price)})
	}
	slices.SortFunc(out, func(a, b *pb.SupplyBucket) int {
		return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(b.Speculative, a.Speculative), strings.Compare(a.InstanceType, b.InstanceType),
			strings.Compare(a.Zone, b.Zone), cmp.Compare(a.CapacityType, b.CapacityType), strings.Compare(a.Region, b.Region),
			strings.Compare(a.Arch, b.Arch), strings.Compare(a.Os, b.Os))
	})
	return out[:min(len(out), bucketsMax)]
}

// returned lists the machines whose exception ended, as far as the disk knows of it (COORD-9.7). They are named until a view
// does not list them any more.
func (r *Reporter) returned(v *core.View) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range v.Returned {
		if _, stored := r.given[e.Machine]; stored {
			out = append(out, e.Machine)
		}
	}
	for id, shown := range r.given {
		if named := slices.Contains(out, id); named {
			r.given[id] = true
		} else if shown { // the coordinator heard of it: a view came without it
			delete(r.given, id)
		}
	}
	slices.Sort(out)
	return out
}

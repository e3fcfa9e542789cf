package inspect

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

var kinds = [...]core.Kind{engine.Bootstrap, engine.Provision, engine.Preempt, engine.Reclaim, engine.Delete}

// GetStatus describes the shard.
func (s *Server) GetStatus(ctx context.Context, _ *connect.Request[pb.GetStatusRequest]) (*connect.Response[pb.GetStatusResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v := s.cfg.View()
	st := &v.Status
	out := &pb.GetStatusResponse{
		ShardId: s.cfg.ShardID, Version: s.cfg.Version, ShardEpoch: st.Epoch, StartedAtUnixNanos: s.cfg.Started.UnixNano(),
		NotReadyReasons: s.cfg.NotReady(), Superseded: st.Superseded != "", DryRun: st.DryRun, Cycle: st.Cycle,
		CycleAtUnixNanos: v.Wall(st.CycleAt), CycleDurationNanos: int64(s.cfg.CycleTook()), MachinesByState: convert.States(st.States),
		ForeignMachines: int32(st.Foreign), Needs: int32(st.Needs), UnsatisfiedNeeds: int32(st.Short), Sessions: int32(st.Sessions),
		SilentClusters: int32(st.Silent), Waiting: map[string]int32{}, InFlight: map[string]int32{}, ReclaimTokens: float64(st.Tokens) / 1000,
		CostPerHour: convert.Dollars(st.Cost), Pauses: Pauses(st), Coordinator: coordinator(v),
	}
	out.Ready = len(out.NotReadyReasons) == 0
	for _, k := range kinds {
		if n := st.Waiting[k]; n > 0 {
			out.Waiting[pb.ActionKind(k).String()] = int32(n)
		}
		if n := st.InFlight[k]; n > 0 {
			out.InFlight[pb.ActionKind(k).String()] = int32(n)
		}
	}
	out.Providers = s.providers(v)
	for _, d := range st.Drains {
		out.Drains = append(out.Drains, drain(v, &d))
	}
	out.Warnings = warnings(st, v)
	return connect.NewResponse(out), nil
}

func (s *Server) providers(v *core.Publish) (out []*pb.ProviderStatus) {
	for _, p := range v.Status.Providers {
		x := &pb.ProviderStatus{Name: p.Name, Address: s.cfg.Addresses[p.Name], InventoryAgeSeconds: -1, ListMode: "full",
			Breaker: [...]string{"closed", "half-open", "open"}[p.Breaker], Concurrency: int32(p.Limit), RemovalsHeld: int32(p.Held),
			LastError: p.LastError, LastErrorAtUnixNanos: v.Wall(p.ErrorAt), Machines: int32(p.Machines)}
		if p.ListedAt > 0 {
			x.InventoryAgeSeconds = time.Duration(v.At - p.ListedAt).Seconds()
		}
		if p.Incremental {
			x.ListMode = "incremental"
		}
		for _, o := range v.Status.Pools {
			if o.Provider == p.Name {
				x.StockedOutPools = append(x.StockedOutPools, &pb.PoolStatus{Pool: o.Key, InstanceType: o.Type, Zone: o.Zone,
					CapacityType: pb.CapacityType(o.Class), RetryAtUnixNanos: v.Wall(o.RetryAt), Failures: int32(o.Fails)})
			}
		}
		out = append(out, x)
	}
	return out
}

// Pauses lists the pauses in force, the start-up flag included.
func Pauses(st *core.Status) (out []*pb.Pause) {
	if st.Config.Paused {
		out = append(out, &pb.Pause{PauseId: "flag", Reason: "--actuation-paused"})
	}
	if st.Coord.Decommissioned {
		out = append(out, &pb.Pause{PauseId: "decommissioned", Reason: st.Coord.Text})
	}
	if st.Coord.Disputed {
		out = append(out, &pb.Pause{PauseId: "epoch-disputed", Reason: st.Coord.Text})
	}
	for i := range st.Pauses {
		out = append(out, Pause(&st.Pauses[i]))
	}
	return out
}

// Pause writes one pause.
func Pause(p *core.Pause) *pb.Pause {
	x := &pb.Pause{PauseId: p.ID, ClusterId: p.Cluster, Provider: p.Provider, Reason: p.Reason, Actor: p.Actor,
		CreatedAtUnixNanos: p.Created, ExpiresAtUnixNanos: p.Expires}
	if p.Fragile {
		x.Reason += " (could not be stored: lost at a restart)"
	}
	for _, k := range p.Kinds {
		x.Kinds = append(x.Kinds, pb.ActionKind(k))
	}
	return x
}

func coordinator(v *core.Publish) *pb.CoordinatorClientStatus {
	c := &v.Status.Coord
	out := &pb.CoordinatorClientStatus{Address: c.Address, Term: c.Lineage.Term, ClusterUuid: c.Lineage.UUID,
		LastReportAtUnixNanos: v.Wall(c.RepliedAt), LastError: c.Error}
	if c.View != nil {
		out.ViewTerm, out.ViewIndex = c.View.Term, c.View.Index
	}
	if c.Decommissioned || c.Disputed {
		out.Notice = c.Text
	}
	return out
}

func drain(v *core.Publish, d *core.DrainStatus) *pb.DrainView {
	if o := d.Asked; o != nil {
		return &pb.DrainView{MachineId: d.Machine, ClusterId: d.Cluster, StartedAtUnixNanos: o.Since, PodsLeft: int32(min(o.Pods, math.MaxInt32)), Reason: o.Detail}
	}
	return &pb.DrainView{MachineId: d.Machine, ClusterId: d.Cluster, InstructionId: d.Instruction, StartedAtUnixNanos: v.Wall(d.Started),
		DeadlineUnixNanos: v.Wall(d.Ends), State: pb.DrainState(d.Note.State), PodsLeft: int32(d.Note.PodsLeft), BlockingBudgets: d.Note.Blocking}
}

// warnings are sentences for people about what needs a look.
func warnings(st *core.Status, v *core.Publish) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if st.Superseded != "" {
		add("superseded: %s. It takes no action. Find the other process with this id, and do not restart both", st.Superseded)
	}
	for _, p := range st.Providers {
		switch {
		case p.ListedAt == 0:
			add("provider %s was never listed: %s", p.Name, p.LastError)
		case time.Duration(v.At-p.ListedAt) > 5*time.Minute:
			add("the inventory of provider %s is %s old: %s", p.Name, time.Duration(v.At-p.ListedAt).Round(time.Second), p.LastError)
		}
		if p.Held > 0 {
			add("%d removals at provider %s are held, because its List shrank", p.Held, p.Name)
		}
		if p.Breaker == 2 {
			add("the breaker of provider %s is open: %s", p.Name, p.LastError)
		}
	}
	if st.Held > 0 {
		add("the roll-ups of %d clusters are held by the guard: they request almost nothing", st.Held)
	}
	if st.Silent > 0 {
		add("clusters that have machines and have not reported for a long time: %d", st.Silent)
	}
	if n := st.States[inventory.Failed]; n > 0 {
		add("%d machines are Failed", n)
	}
	if st.Plaintext {
		add("no TLS: anyone who reaches this port can act as any cluster; use TLS outside of trials")
	}
	if c := &st.Coord; c.Disputed || c.Decommissioned {
		add("coordinator: %s", c.Text)
	}
	slices.Sort(out)
	return out
}

// ListClusters pages through clusters, by id.
func (s *Server) ListClusters(ctx context.Context, r *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	only, err := narrow(ctx, r.Msg.ClusterId)
	if err != nil {
		return nil, err
	}
	after, err := untoken(r.Msg.PageToken, 1)
	if err != nil {
		return nil, err
	}
	v := s.cfg.View()
	list := v.Clusters
	if len(after) > 0 {
		list = sortedClusters(list, after[0])
	}
	size := pageSize(r.Msg.PageSize, 1000)
	out := &pb.ListClustersResponse{}
	for _, c := range list {
		if only != "" && c.Name != only || r.Msg.SilentOnly && !c.Silent {
			continue
		}
		if len(out.Clusters) == size {
			out.NextPageToken = token(out.Clusters[size-1].ClusterId)
			break
		}
		out.Clusters = append(out.Clusters, cluster(v, c))
	}
	return connect.NewResponse(out), nil
}

func cluster(v *core.Publish, c *core.ClusterView) *pb.ClusterView {
	out := &pb.ClusterView{ClusterId: c.Name, Connected: c.Connected, ConnectedSinceUnixNanos: v.Wall(c.Since), Features: c.Features,
		OperatorVersion: c.Version, LastDisposition: pb.RollupDisposition(c.Disposition), LastRollupAtUnixNanos: v.Wall(c.DispositionAt),
		LastRollupReason: c.Reason, HeldCount: int32(c.Held), GateOpen: c.GateOpen, Needs: int32(c.Needs), UnsatisfiedNeeds: int32(c.Short),
		MachinesByState: convert.States(c.States), ReclaimTokens: float64(c.Tokens) / 1000, Silent: c.Silent, Retired: c.Retired,
		CostPerHour: convert.Dollars(c.Cost)}
	for _, b := range c.Backoffs {
		what := "the cluster"
		if b.Subject != "" {
			what = b.Subject
		}
		out.Backoffs = append(out.Backoffs, fmt.Sprintf("%s: %s; next try %s", what, b.Text, time.Unix(0, v.Wall(b.Until)).UTC().Format(time.RFC3339)))
	}
	return out
}

package doctor_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// coordinator is a leader that answers what a test makes it answer.
type coordinator struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler
	bigfleetv1alpha1connect.UnimplementedCoordinatorAdminHandler
	fleet *bigfleetv1alpha1.FleetStatus
	build string
}

func (c *coordinator) GetCoordinatorStatus(context.Context, *connect.Request[bigfleetv1alpha1.GetCoordinatorStatusRequest]) (*connect.Response[bigfleetv1alpha1.GetCoordinatorStatusResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.GetCoordinatorStatusResponse{NodeId: "c-0", Leader: &bigfleetv1alpha1.LeaderHint{LeaderId: "c-0"}, Build: c.build}), nil
}

func (c *coordinator) GetFleetStatus(context.Context, *connect.Request[bigfleetv1alpha1.GetFleetStatusRequest]) (*connect.Response[bigfleetv1alpha1.GetFleetStatusResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.GetFleetStatusResponse{Status: c.fleet}), nil
}

func (c *coordinator) ListShards(context.Context, *connect.Request[bigfleetv1alpha1.ListShardsRequest]) (*connect.Response[bigfleetv1alpha1.ListShardsResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.ListShardsResponse{Shards: c.fleet.GetShards()}), nil
}

func (s *shard) ListClusters(context.Context, *connect.Request[bigfleetv1alpha1.ListClustersRequest]) (*connect.Response[bigfleetv1alpha1.ListClustersResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.ListClustersResponse{Clusters: s.clusters}), nil
}

// OPS-4.21, COORD-1.4, 13.15: quorum, report ages, address and epoch disputes, conflicts, version skew, roll-ups. Each fault is caused, found,
// and gone once it is put right.
func TestThePlane(t *testing.T) {
	type world struct {
		coordinator
		shard
	}
	for _, c := range []struct {
		name, message, fix string
		warns              bool
		spoil              func(w *world)
	}{
		{name: "nothing"},
		{name: "a voter is away", message: "its leader hears from 2 of 3 voters", fix: "raft remove-peer", spoil: func(w *world) { w.fleet.HealthyVoters = 2 }},
		{name: "an even group", message: "4 voters: they tolerate as many failures as 3", fix: "Add a replica", warns: true, spoil: func(w *world) { w.fleet.Voters, w.fleet.HealthyVoters = 4, 4 }},
		{name: "two shards, one cluster", message: "shards shard-0 and shard-9 both have a session of it", fix: "clusters bind red", spoil: func(w *world) {
			w.fleet.Conflicts = []*bigfleetv1alpha1.ClusterBinding{{ClusterId: "red", ShardId: "shard-0", ConflictingShardId: "shard-9"}}
		}},
		{name: "no report for long", message: "it last reported to the coordinator 5m", fix: "shards remove shard-0", warns: true, spoil: func(w *world) { w.fleet.Shards[0].ReportAgeSeconds = 300 }},
		{name: "another shard's address", message: "answers shard shard-7", fix: "address of its own", spoil: func(w *world) { w.status.ShardId = "shard-7" }},
		{name: "a newer process", message: "the coordinator has heard epoch 9 of it, and this process has epoch 8", fix: "never restart both", spoil: func(w *world) { w.fleet.Shards[0].Epoch = 9 }},
		{name: "three minor versions", message: "shard shard-0 runs v1.5, operator of red runs v1.2", fix: "one minor version at a time", spoil: func(w *world) { w.status.Version = "v1.5.0" }},
		{name: "two minor versions", message: "newer features are not used", fix: "one minor version at a time", warns: true, spoil: func(w *world) { w.status.Version, w.build = "v1.4.0", "v1.3.0" }},
		{name: "instructions given up", message: "2 instructions to shards were abandoned", fix: "get instructions", warns: true, spoil: func(w *world) { w.fleet.StuckInstructions = 2 }},
		{name: "a held roll-up", message: "its roll-up is held", fix: "rollups accept red", warns: true, spoil: func(w *world) {
			w.clusters[0].LastDisposition = bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_HELD
		}},
		{name: "a rejected roll-up", message: "its roll-up is rejected", fix: "compatible versions", spoil: func(w *world) {
			w.clusters[0].LastDisposition = bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_REJECTED
		}},
		{name: "demand that is set aside", message: "its demand is set aside, and its machines stay", fix: "history cluster/red", spoil: func(w *world) {
			w.clusters[0].LastDisposition, w.clusters[0].LastRollupReason = bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_REJECTED, "too_wide"
		}},
		{name: "a large roll-up", message: "has 30000 rows", fix: "fewer rows", warns: true, spoil: func(w *world) { w.clusters[0].Needs = 30_000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{shard: *healthy()}
			w.status.ShardEpoch, w.status.Version, w.build = 8, "v1.2.3", "v1.3.0"
			w.clusters = []*bigfleetv1alpha1.ClusterView{{ClusterId: "red", Connected: true, Needs: 10, OperatorVersion: "v1.2.0"}}
			w.fleet = &bigfleetv1alpha1.FleetStatus{Voters: 3, HealthyVoters: 3, Shards: []*bigfleetv1alpha1.ShardRegistryEntry{{ShardId: "shard-0", Epoch: 8, ReportAgeSeconds: 3}}}
			if c.spoil != nil {
				c.spoil(w)
			}
			w.fleet.Shards[0].Address = serve(t, w.shard.handler(), nil)
			mux := http.NewServeMux()
			mux.Handle(bigfleetv1alpha1connect.NewCoordinatorHandler(&w.coordinator))
			mux.Handle(bigfleetv1alpha1connect.NewCoordinatorAdminHandler(&w.coordinator))
			out, code := doctor(t, 0, "--coordinator", serve(t, mux, nil))
			switch {
			case c.spoil == nil:
				healed(t, out, code)
			case c.warns:
				findsAs(t, "warn", out, c.message, c.fix)
				if code != exit.OK {
					t.Errorf("exit code %d for a warning", code)
				}
			default:
				finds(t, out, code, c.message, c.fix)
			}
		})
	}
}

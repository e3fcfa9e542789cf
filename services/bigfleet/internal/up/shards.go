package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// shardsMax is the number of zones of the simulated cloud: shards share it zone by zone.
const shardsMax = zones

// shardRole is one shard of the world.
type shardRole struct {
	role
	id, listen string
	read       bigfleetv1alpha1connect.ShardReadClient
}

// addShards runs the shards, each again and again: a story may stop and start it.
func (w *World) addShards(g *process.Group) error {
	for i := range w.cfg.Shards {
		s := &shardRole{id: fmt.Sprintf("shard-%d", i)}
		if i == 0 && w.cfg.ShardID != "" {
			s.id = w.cfg.ShardID
		}
		s.name = "shard " + s.id
		var err error
		if s.listen, err = after(w.cfg.ShardListen, i); err != nil {
			return fmt.Errorf("--shard-listen: %w", err)
		}
		rpcs, err := w.hold(s.listen, "--shard-listen")
		if err != nil {
			return err
		}
		s.listen = rpcs.addr
		asked, usual := w.cfg.ShardMetrics, fmt.Sprintf("127.0.0.1:%d", 8780+i)
		if asked != "" && asked != telemetry.Off {
			if asked, err = after(asked, i); err != nil {
				return fmt.Errorf("--shard-metrics-addr: %w", err)
			}
		}
		metrics, err := w.metrics("shard", s.id, asked, usual, "--shard-metrics-addr")
		if err != nil {
			return err
		}
		client, err := rpc.NewClient(rpc.ClientConfig{Addr: s.listen, Limits: rpc.ReadClientLimits()})
		if err != nil {
			return err
		}
		s.read = rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)
		dir := filepath.Join(w.dir, "shard")
		if i > 0 {
			dir = filepath.Join(w.dir, s.id)
		}
		s.run = w.equipped("shard", metrics, func(ctx context.Context, tel *telemetry.Telemetry, ops []*telemetry.OpsPort) error {
			l, err := rpcs.listen(ctx)
			if err != nil {
				return err
			}
			return shard.Run(ctx, shard.Config{
				ID: s.id, DataDir: dir, Listen: s.listen, Listener: l, Telemetry: tel, Ops: ops, ShutdownGrace: shutdownGrace,
				Providers: w.providers(), CoordinatorAddr: w.coordinatorAddr(), CoordinatorHeartbeat: heartbeat, ReconcileInterval: w.pace(listEvery),
				ReleaseDelay: w.pace(releaseDelay), ReleaseDelayEmpty: w.pace(releaseDelay), ReclaimCapWindow: w.pace(reclaimWindow), SessionHandoverWait: handoverWait,
			})
		})
		w.shards = append(w.shards, s)
		g.Add(process.Component{Name: s.id, Run: func(ctx context.Context) error {
			defer client.CloseIdle()
			return s.loop(ctx)
		}})
	}
	w.Read = w.shards[0].read
	return nil
}

func (w *World) providers() (out []shard.Provider) {
	for _, p := range w.cfg.Providers {
		out = append(out, shard.Provider{Name: p.Name, Addr: p.Addr})
	}
	return out
}

// StopShard takes the first shard away until StartShard.
func (w *World) StopShard() error { return w.shards[0].Stop(context.Background()) }

// StartShard lets it run again.
func (w *World) StartShard() error { return w.shards[0].Start() }

// shardOf is where the operator of the cluster with this index reports.
func (w *World) shardOf(i int) *shardRole { return w.shards[i%len(w.shards)] }

// partitionLate is after how long the reason of a wait is printed.
const partitionLate = 10 * time.Second

// partition shares the simulated cloud among the shards, zone by zone. One shard owns everything without an assignment.
func (w *World) partition(ctx context.Context) error {
	if len(w.shards) < 2 {
		return nil
	}
	core, admin := rpc.Stub(w.toCoordinator, bigfleetv1alpha1connect.NewCoordinatorClient), rpc.Stub(w.toCoordinator, bigfleetv1alpha1connect.NewCoordinatorAdminClient)
	var refused error
	late := time.After(partitionLate)
	unassigned := map[string]string{} // zone to shard
	for zone := range zones {
		unassigned[zoneName(zone)] = w.shards[zone%len(w.shards)].id
	}
	for ctx.Err() == nil {
		for zone, id := range unassigned { // refused until the shard has registered
			if _, err := core.AssignDomain(ctx, connect.NewRequest(&pb.AssignDomainRequest{TopologyKey: corev1.LabelTopologyZone, TopologyValue: zone, ShardId: id})); err != nil {
				refused = err
			} else {
				delete(unassigned, zone)
			}
		}
		if moves, err := admin.ListDomainMoves(ctx, connect.NewRequest(&pb.ListDomainMovesRequest{})); len(unassigned) == 0 && err == nil && len(moves.Msg.GetMoves()) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-late: // said once; the shards stay usable for what they own
			w.view.log("zones are still being assigned to the shards, %d remain; last refusal: %v", len(unassigned), refused)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// lookAtShards asks every shard at once. Those that were stopped and those that do not answer in time are named.
func (w *World) lookAtShards(ctx context.Context) (sum *pb.GetStatusResponse, away, late []string) {
	bounded, cancel := context.WithTimeout(ctx, viewEvery)
	defer cancel()
	said := make([]*pb.GetStatusResponse, len(w.shards))
	var wg sync.WaitGroup
	for i, s := range w.shards {
		wg.Go(func() {
			if got, err := s.read.GetStatus(bounded, connect.NewRequest(&pb.GetStatusRequest{})); err == nil {
				said[i] = got.Msg
			}
		})
	}
	wg.Wait()
	for i, s := range w.shards {
		switch {
		case said[i] != nil:
			sum = merged(sum, said[i])
		case s.Away():
			away = append(away, s.id)
		default:
			late = append(late, s.id)
		}
	}
	return sum, away, late
}

// merged adds what can be added; the rest is that of the first.
func merged(sum, s *pb.GetStatusResponse) *pb.GetStatusResponse {
	if sum == nil {
		return s
	}
	sum.Ready = sum.GetReady() && s.GetReady()
	sum.Needs += s.GetNeeds()
	sum.UnsatisfiedNeeds += s.GetUnsatisfiedNeeds()
	sum.Sessions += s.GetSessions()
	sum.CostPerHour += s.GetCostPerHour()
	if sum.MachinesByState == nil {
		sum.MachinesByState = map[string]int32{}
	}
	for k, n := range s.GetMachinesByState() {
		sum.MachinesByState[k] += n
	}
	return sum
}

// checkShards says what cannot be.
func (c *Config) checkShards() error {
	switch {
	case c.Shards == 0:
		c.Shards = 1
	case c.Shards < 1 || c.Shards > shardsMax:
		return fmt.Errorf("--shards %d: it must be 1 to %d, one zone of the simulated cloud for each", c.Shards, shardsMax)
	}
	var wrong []string
	if c.Shards > 1 {
		for what, is := range map[string]bool{"--no-coordinator": c.NoCoordinator, "--provider": len(c.Providers) > 0, "--kubeconfig": len(c.Targets) > 0} {
			if is {
				wrong = append(wrong, what)
			}
		}
	}
	if len(wrong) > 0 {
		return errors.New("--shards needs the coordinator, which divides the simulated cloud: leave out " + strings.Join(wrong, " and "))
	}
	return nil
}

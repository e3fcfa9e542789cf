package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// worldFleet is a fleet of W-fleet: the verbs of fleet on machines as the workload spells them.
type worldFleet struct {
	*fleet
	world *workload.World
	index map[string]int
}

// settled is where a machine in motion arrives: nothing here moves it on.
var settled = [...]uint8{1: 1, 2: 3, 3: 3, 4: 5, 5: 5, 6: 3, 7: 3, 8: 8}

func newWorldFleet(w *workload.World) *worldFleet {
	f := &worldFleet{fleet: newFleet(0, w.Fleet.Len()), world: w, index: make(map[string]int, w.Fleet.Len())}
	for i, id := range w.Fleet.ID {
		f.index[id] = i
		f.states[i] = settled[w.Fleet.State[i]]
		if c := w.Fleet.Cluster[i]; c >= 0 {
			f.bound[i] = binding{cluster: workload.ClusterName(c)}
		}
	}
	f.spell = func(i int) *pb.Machine {
		m := w.Machine(i)
		m.State, m.Cluster, m.ShardMetadata, m.Host = pb.MachineState(f.states[i]), f.bound[i].cluster, f.bound[i].meta, nil
		if m.State != pb.MachineState_MACHINE_STATE_SPECULATIVE {
			m.Host = &pb.HostRef{Provider: "bench", Ref: m.Id}
		}
		return m
	}
	f.find = func(id string) (int, error) {
		i, known := f.index[id]
		if !known {
			return 0, connect.NewError(connect.CodeNotFound, fmt.Errorf("no machine %s", id))
		}
		return i, nil
	}
	return f
}

func steadyWorld(s settings) *workload.World {
	return workload.Steady(workload.Size{Machines: s.machines, Needs: s.needs, Clusters: s.sessions}, 1)
}

// provideWorld serves W-fleet until it is killed, and says where.
func provideWorld(ctx context.Context, s settings) error {
	addr, err := newWorldFleet(steadyWorld(s)).serve(ctx)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	select {}
}

// steady is W-demand: a session for each cluster with its whole roll-up, and then, when a byte has come, a changed need of one
// hundredth of the clusters a second, until it is killed. Each second it prints how many roll-ups were acknowledged.
func steady(ctx context.Context, s settings) error {
	w := steadyWorld(s)
	var acked atomic.Int64
	all := make([]*stream, w.Demand.Clusters())
	for c := range all {
		o, err := open(ctx, s.addr, workload.ClusterName(int32(c)))
		if err != nil {
			return err
		}
		go o.receive(&acked)
		if err := o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: rollup(w, int32(c))}}); err != nil {
			return err
		}
		all[c] = o
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		for range time.Tick(time.Second) {
			for _, c := range w.Churn(0.01).Clusters {
				if err := all[c].send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: rollup(w, c)}}); err != nil {
					fmt.Fprintln(os.Stderr, "cluster", c, err)
				}
			}
		}
	}()
	for range time.Tick(time.Second) {
		fmt.Println(strconv.FormatInt(acked.Load(), 10))
	}
	return nil
}

func rollup(w *workload.World, c int32) *pb.ClusterCapacityNeeds {
	r := w.Rollup(c)
	r.TimestampUnixNanos = time.Now().UnixNano()
	return r
}

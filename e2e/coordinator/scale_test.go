package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/leader"
)

// fullReport is a report as a busy shard sends it: a hundred shortfalls and some buckets.
func fullReport(shard int, cycle int64) *v1.ShardReport {
	r := &v1.ShardReport{ShardId: fmt.Sprintf("shard-%04d", shard), ShardEpoch: 1, Cycle: cycle, ShardAddress: fmt.Sprintf("shard-%04d:7780", shard),
		Capabilities: []string{"view/1", "moves/1"}, SupplyComplete: true, ClustersComplete: true,
		Summary:  &v1.ShardSummary{TotalMachines: 500_000, FreeMachines: 1000, ProviderAddress: fmt.Sprintf("provider-%d:9000", shard%40)},
		Clusters: []*v1.ClusterLink{{ClusterId: fmt.Sprintf("cluster-%04d", shard), LiveSession: true, BoundMachines: 10}}}
	for i := range 20 {
		r.Shortfalls = append(r.Shortfalls, &v1.Shortfall{Fingerprint: fmt.Sprintf("f-%d", i), Priority: 10, AgeSeconds: 5, Deficit: &v1.Resources{Resources: map[string]string{"cpu": "10", "memory": "40Gi"}},
			MinUnit: &v1.Resources{Resources: map[string]string{"cpu": "1"}}})
		r.Supply = append(r.Supply, &v1.SupplyBucket{InstanceType: fmt.Sprintf("t%d", i), Zone: "zone-a", CapacityType: v1.CapacityType_CAPACITY_TYPE_ON_DEMAND, Idle: 1, Speculative: 50,
			Configured: 300, PricePerHour: 0.1, Allocatable: &v1.Resources{Resources: map[string]string{"cpu": "4", "memory": "16Gi"}}})
	}
	return r
}

// COORD-21.32, 19: 4,000 unknown shards report within ten seconds, or all at once with BIGFLEET_COORDINATOR_AT_ONCE=1, and
// are registered in few log entries; afterwards they report on their interval. Memory of the leader and latencies are
// printed.
func TestFourThousandShards(t *testing.T) {
	manyShards := number(t, "BIGFLEET_COORDINATOR_SHARDS", 400) // the recorded run has 4000; it needs a machine of its own
	storm := number(t, "BIGFLEET_COORDINATOR_AT_ONCE", 0) > 0
	g := newGroup(t)
	leads := g.leader()
	follow, err := leader.New(leader.Config{Addrs: g.rpc, AttemptTimeout: 20 * time.Second}) // as shards do, but for the time of an attempt
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follow.Close)
	before, err := g.status(leads)
	if err != nil {
		t.Fatal(err)
	}
	atOnce := manyShards // shards do not wait for each other
	send := func(shard int, cycle int64) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		r := fullReport(shard, cycle)
		start := time.Now()
		_, err := follow.Report(ctx, r)
		return time.Since(start), err
	}
	all := func(cycle int64, pace func(i int)) []time.Duration {
		var group sync.WaitGroup
		var mu sync.Mutex
		var took []time.Duration
		slots := make(chan struct{}, atOnce) // calls at a time
		for i := range manyShards {
			pace(i)
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				d, err := send(i, cycle)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("shard %d: %v", i, err)
				}
				took = append(took, d)
			})
		}
		group.Wait()
		return took
	}
	begin := time.Now()
	start := begin
	paced := func(i int) { // 400 a second, as 4,000 shards every ten seconds
		time.Sleep(time.Until(start.Add(time.Duration(i) * 2500 * time.Microsecond)))
	}
	first := all(1, func(i int) {
		if !storm {
			paced(i)
		}
	})
	registered := time.Since(begin)
	after, err := g.status(g.leader())
	if err != nil {
		t.Fatal(err)
	}
	entries := after.GetAppliedIndex() - before.GetAppliedIndex()
	rounds := number(t, "BIGFLEET_COORDINATOR_ROUNDS", 1)
	var steady []time.Duration
	for cycle := range rounds {
		start = time.Now()
		steady = append(steady, all(int64(cycle)+2, paced)...)
	}
	leads = g.leader()
	got, err := stub(t, g.rpc[leads], api.NewCoordinatorClient).ListShards(t.Context(), connect.NewRequest(&v1.ListShardsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Msg.GetShards()); n != manyShards {
		t.Errorf("%d shards are registered", n)
	}
	memory, err := g.procs[leads].ResidentBytes()
	if err != nil {
		t.Logf("memory: %v", err)
	}
	storming, regular := measure.NewSeries("", nanoseconds(first)), measure.NewSeries("", nanoseconds(steady))
	t.Logf("%d unknown shards: registered in %s, %d log entries; report p50 %.0f ms, p99 %.0f ms", manyShards, registered.Round(time.Millisecond), entries,
		storming.Quantile(0.5)/1e6, storming.Quantile(0.99)/1e6)
	t.Logf("400 reports a second: p50 %.1f ms, p99 %.1f ms; resident memory of the leader %d MiB", regular.Quantile(0.5)/1e6, regular.Quantile(0.99)/1e6, memory>>20)
	size := func(work string) map[string]any {
		return map[string]any{"nodes": 3, "shards": manyShards, "at_once": storm, "work": work}
	}
	publish(t, measure.Result{Size: size("registration"), WorkloadSum: "unknown shards, 20 shortfalls and 20 buckets each", Subject: storming,
		Bounds: []measure.Bound{measure.AtMost("all registered", "ns", float64(registered), 15e9), measure.AtMost("log entries", "count", float64(entries), 64)},
		Oracle: measure.Oracle{Name: "every shard is registered once", Checks: manyShards}})
	publish(t, measure.Result{Size: size("400 reports a second"), WorkloadSum: "known shards, 20 shortfalls and 20 buckets each", Subject: regular,
		Bounds: []measure.Bound{measure.AtMost("report p99", "ns", regular.Quantile(0.99), 10e6), measure.AtMost("resident memory of the leader", "B", float64(memory), 512<<20)},
		Oracle: measure.Oracle{Name: "every report is answered", Checks: len(steady)}})
	g.agree()
}

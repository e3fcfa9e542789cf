package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// fullReport is a report as a busy shard sends it: twenty shortfalls and twenty buckets.
func fullReport(shard int, cycle int64) *v1.ShardReport {
	r := &v1.ShardReport{ShardId: shardName(shard), ShardEpoch: 1, Cycle: cycle, ShardAddress: shardName(shard) + ":7780",
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

func shardName(shard int) string { return fmt.Sprintf("shard-%04d", shard) }

// crowd is many shards in one process. They report as shards do: 5 s for a report, 2 s for each attempt of it, and again
// after 1 to 3 s if no coordinator has answered yet, or as an answer says (COORD-7.14).
type crowd struct {
	t       *testing.T
	clients []*coordclient.Client // one for each shard, or one for all
	failed  atomic.Int64          // reports without an answer
}

const (
	reportDeadline = 5 * time.Second
	crowdPatience  = 5 * time.Minute // for the answer that one shard needs
)

// newCrowd makes the clients. Under TLS each shard has its own certificate, hence its own connection.
func newCrowd(t *testing.T, g *group, shards int, each bool, ca *devca.CA) *crowd {
	c := &crowd{t: t}
	n := 1
	if each || ca != nil {
		n = shards
	}
	dir := t.TempDir()
	for i := range n {
		config := coordclient.Config{Addrs: g.rpc}
		if ca != nil {
			config.Identity = source(t, ca, dir, identity.ID{Kind: identity.Shard, Name: shardName(i)})
		}
		client, err := coordclient.New(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		c.clients = append(c.clients, client)
	}
	return c
}

func source(t *testing.T, ca *devca.CA, dir string, who identity.ID) *identity.Source {
	t.Helper()
	files, err := ca.Write(dir, who.Name, devca.For(who))
	if err != nil {
		t.Fatal(err)
	}
	out, err := identity.Load(files, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// report returns how long one shard was without an answer.
func (c *crowd) report(shard int, cycle int64) time.Duration {
	r := fullReport(shard, cycle)
	client := c.clients[shard%len(c.clients)]
	start := time.Now()
	for {
		ctx, cancel := context.WithTimeout(c.t.Context(), reportDeadline)
		_, err := client.Report(ctx, r)
		cancel()
		took := time.Since(start)
		if err == nil {
			return took
		}
		c.failed.Add(1)
		if took > crowdPatience {
			c.t.Errorf("shard %d: no answer for %s: %v", shard, took.Round(time.Second), err)
			return took
		}
		pause := time.Second + rand.N(2*time.Second)
		if hint, ok := rpc.Detail[*v1.RetryHint](err); ok && hint.GetAfterMillis() > 0 {
			pause = time.Duration(hint.GetAfterMillis()) * time.Millisecond
		}
		time.Sleep(pause)
	}
}

// all reports once for each shard: in the same moment, or rate a second.
func (c *crowd) all(shards int, cycle int64, rate int) []time.Duration {
	took := make([]time.Duration, shards)
	var group sync.WaitGroup
	start := time.Now()
	for i := range shards {
		if rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
		group.Go(func() { took[i] = c.report(i, cycle) })
	}
	group.Wait()
	return took
}

// secureGroup is a group with mTLS on both ports.
func secureGroup(t *testing.T) (*group, *devca.CA) {
	ca, err := devca.New("storm")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range 3 {
		if _, err := ca.Write(dir, id(i), devca.For(identity.ID{Kind: identity.Coordinator, Name: id(i)}, "127.0.0.1")); err != nil {
			t.Fatal(err)
		}
	}
	g := &group{t: t, direct: true, identity: source(t, ca, dir, identity.ID{Kind: identity.Admin})}
	return startGroup(t, g, program, "--tls-cert", dir+"/{id}.crt", "--tls-key", dir+"/{id}.key", "--tls-ca", dir+"/ca.crt"), ca
}

// COORD-21.32, 19, 7.11: 4,000 unknown shards report within ten seconds, or all at once with
// BIGFLEET_COORDINATOR_AT_ONCE=1, and are registered in few log entries; afterwards they report on their interval. They share
// connections, have one each with BIGFLEET_COORDINATOR_EACH=1, and mTLS on it with BIGFLEET_COORDINATOR_TLS=1. Memory of
// the leader and latencies are printed.
func TestFourThousandShards(t *testing.T) {
	manyShards := number(t, "BIGFLEET_COORDINATOR_SHARDS", 400) // the recorded run has 4000; it needs a machine of its own
	storm := number(t, "BIGFLEET_COORDINATOR_AT_ONCE", 0) > 0
	each, secure := number(t, "BIGFLEET_COORDINATOR_EACH", 0) > 0, number(t, "BIGFLEET_COORDINATOR_TLS", 0) > 0
	var g *group
	var ca *devca.CA
	if secure {
		g, ca = secureGroup(t)
	} else {
		g = startGroup(t, &group{t: t, direct: true}, program)
	}
	c := newCrowd(t, g, manyShards, each, ca)
	before, err := g.status(g.leader())
	if err != nil {
		t.Fatal(err)
	}
	const steadyRate = 400 // a second, as 4,000 shards every ten seconds
	rate := steadyRate
	if storm {
		rate = 0
	}
	begin := time.Now()
	first := c.all(manyShards, 1, rate)
	registered := time.Since(begin)
	failed := c.failed.Load()
	after, err := g.status(g.leader())
	if err != nil {
		t.Fatal(err)
	}
	entries, reigns := after.GetAppliedIndex()-before.GetAppliedIndex(), after.GetFencingTerm()-before.GetFencingTerm()
	var steady []time.Duration
	for cycle := range number(t, "BIGFLEET_COORDINATOR_ROUNDS", 1) {
		steady = append(steady, c.all(manyShards, int64(cycle)+2, steadyRate)...)
	}
	leads := g.leader()
	if n := g.registered(leads); n != manyShards {
		t.Errorf("%d shards are registered", n)
	}
	memory, err := g.procs[leads].ResidentBytes()
	if err != nil {
		t.Logf("memory: %v", err)
	}
	storming, regular := measure.NewSeries("", nanoseconds(first)), measure.NewSeries("", nanoseconds(steady))
	t.Logf("%d unknown shards: registered in %s, %d log entries, %d new leaders, %d reports without an answer; first answer p50 %.0f ms, p99 %.0f ms", manyShards,
		registered.Round(time.Millisecond), entries, reigns, failed, storming.Quantile(0.5)/1e6, storming.Quantile(0.99)/1e6)
	t.Logf("400 reports a second: p50 %.1f ms, p99 %.1f ms; resident memory of the leader %d MiB", regular.Quantile(0.5)/1e6, regular.Quantile(0.99)/1e6, memory>>20)
	size := func(work string) map[string]any {
		out := map[string]any{"nodes": 3, "shards": manyShards, "at_once": storm, "work": work}
		if len(c.clients) > 1 {
			out["connections"], out["tls"] = len(c.clients), secure
		}
		return out
	}
	publish(t, measure.Result{Size: size("registration"), WorkloadSum: "unknown shards, 20 shortfalls and 20 buckets each", Subject: storming,
		Bounds: []measure.Bound{measure.AtMost("all registered", "ns", float64(registered), 15e9), measure.AtMost("log entries", "count", float64(entries), 64),
			measure.Shown("first answer p50", "ns", storming.Quantile(0.5)), measure.Shown("first answer p99", "ns", storming.Quantile(0.99)),
			measure.Shown("reports without an answer", "count", float64(failed)), measure.Shown("new leaders", "count", float64(reigns))},
		Oracle: measure.Oracle{Name: "every shard is registered once", Checks: manyShards}})
	publish(t, measure.Result{Size: size("400 reports a second"), WorkloadSum: "known shards, 20 shortfalls and 20 buckets each", Subject: regular,
		Bounds: []measure.Bound{measure.Shown("report p50", "ns", regular.Quantile(0.5)), measure.AtMost("report p99", "ns", regular.Quantile(0.99), 10e6),
			measure.AtMost("resident memory of the leader", "B", float64(memory), 512<<20)},
		Oracle: measure.Oracle{Name: "every report is answered", Checks: len(steady)}})
	g.agree()
}

// registered is how many shards the leader lists.
func (g *group) registered(leads int) int {
	c := g.dial(leads)
	defer c.CloseIdle()
	got, err := rpc.Stub(c, api.NewCoordinatorClient).ListShards(g.t.Context(), connect.NewRequest(&v1.ListShardsRequest{}))
	if err != nil {
		g.t.Fatal(err)
	}
	return len(got.Msg.GetShards())
}

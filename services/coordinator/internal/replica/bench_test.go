package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// inFlight is how many proposals B11 keeps under way, each rounds times after the other.
const (
	inFlight = OutstandingMax
	rounds   = 4
)

// B11, COORD-19: three replicas on loopback with files. One commit at a time is compared with one fsync and two round
// trips; 256 at a time, of which batching makes a few fsyncs, with as many bare fsyncs.
func BenchmarkB11(b *testing.B) {
	r := three(b)
	n := r.leader()
	var count atomic.Int64
	commit := func(inFlight, times int) error {
		var group sync.WaitGroup
		errs := make([]error, inFlight)
		for i := range inFlight {
			group.Go(func() {
				for range times {
					ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
					_, err := n.Propose(ctx, Envelope("bench", &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{
						ClusterId: fmt.Sprint("cluster-", count.Add(1)%20_000), ShardId: "shard-0", Rebind: true}}}), true)
					cancel()
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		group.Wait()
		return errors.Join(errs...)
	}
	r.commit(addShard("shard-0"))
	for _, work := range []struct {
		name            string
		inFlight, times int
		target          float64
		bound           func(medianNS float64) []measure.Bound
	}{
		{"one commit", 1, 1, 4, func(ns float64) []measure.Bound { return []measure.Bound{measure.Shown("commit p50", "ns", ns)} }},
		{"256 proposals in flight", inFlight, rounds, 1, func(ns float64) []measure.Bound {
			return []measure.Bound{measure.NotBelow("proposals", "1/s", inFlight*rounds*1e9/ns, 5000)}
		}},
	} {
		b.Run(work.name, func(b *testing.B) {
			many := work.inFlight * work.times
			floor, err := probe.Fsync(b.TempDir(), many)
			if err != nil {
				b.Fatal(err)
			}
			if many == 1 {
				rtt, err := probe.RTT(2)
				if err != nil {
					b.Fatal(err)
				}
				floor = measure.Sum(floor, rtt)
			}
			var failed error
			before := 0
			measure.Compare(b, measure.Pair{Bench: "B11", Size: map[string]any{"nodes": 3, "work": work.name}, WorkloadSum: "BindCluster of 20,000 clusters", Floor: floor, Target: work.target,
				Prepare: func() { before = int(n.State().Index()) },
				Subject: func() { failed = commit(work.inFlight, work.times) },
				Oracle:  "every proposal is applied on the leader",
				Check: func() error {
					if failed == nil && int(n.State().Index()) < before+many {
						failed = fmt.Errorf("index %d after %d and %d proposals", n.State().Index(), before, many)
					}
					return failed
				},
				Bounds: work.bound})
		})
	}
}

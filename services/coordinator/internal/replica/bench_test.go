package replica

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// inFlight is how many proposals B11 keeps under way.
const inFlight = OutstandingMax

// B11, COORD-19: three replicas on loopback with files. One commit at a time is compared with one fsync and two round
// trips; 256 at a time, of which batching makes a few fsyncs, with as many bare fsyncs.
func BenchmarkB11(b *testing.B) {
	r := three(b)
	n := r.leader()
	var mu sync.Mutex
	count := 0
	commit := func(how int) error {
		var group sync.WaitGroup
		errs := make([]error, how)
		for i := range how {
			mu.Lock()
			count++
			id := count
			mu.Unlock()
			group.Go(func() {
				ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
				defer cancel()
				_, errs[i] = n.Propose(ctx, Envelope("bench", &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{
					ClusterId: fmt.Sprint("cluster-", id%20_000), ShardId: "shard-0", Rebind: true}}}), true)
			})
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	r.commit(addShard("shard-0"))
	for _, work := range []struct {
		name   string
		many   int
		target float64
	}{{"one commit", 1, 4}, {"256 proposals in flight", inFlight, 1}} {
		b.Run(work.name, func(b *testing.B) {
			fsync, err := probe.Fsync(b.TempDir(), work.many)
			if err != nil {
				b.Fatal(err)
			}
			floor := fsync
			if work.many == 1 {
				rtt, err := probe.RTT(2)
				if err != nil {
					b.Fatal(err)
				}
				floor = measure.Sum(fsync, rtt)
			}
			var failed error
			before := 0
			measure.Compare(b, measure.Pair{Bench: "B11", Size: map[string]any{"nodes": 3, "work": work.name}, WorkloadSum: "BindCluster of 20,000 clusters", Floor: floor, Target: work.target,
				Prepare: func() { before = int(n.State().Index()) },
				Subject: func() { failed = commit(work.many) },
				Oracle:  "every proposal is applied on the leader",
				Check: func() error {
					if failed == nil && int(n.State().Index()) < before+work.many {
						failed = fmt.Errorf("index %d after %d and %d proposals", n.State().Index(), before, work.many)
					}
					return failed
				},
				Bounds: func(medianNS float64) []measure.Bound {
					return []measure.Bound{measure.Shown("commit", "ns", medianNS/float64(work.many)), measure.Shown("proposals", "1/s", float64(work.many)*1e9/medianNS)}
				}})
		})
	}
}

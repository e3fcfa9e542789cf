package hostile

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// SHARD-23.1: one certificate opens 6,000 streams of decisions and takes nothing of them. It holds its part of the places, the others are refused at once, and
// another certificate still has its place. Beside them the loop answers other clusters as before: a stream looks for records by itself, and the loop wakes none.
func TestSixThousandWatchersOfOneCaller(t *testing.T) {
	const watchers, hands = 6_000, 16
	s := newStage(t)
	honest := s.session("red")
	alone := honest.steady(t, 2*time.Second, always)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func() *connect.Request[pb.WatchDecisionsRequest] {
		return connect.NewRequest(&pb.WatchDecisionsRequest{FromSequence: 1, Follow: true})
	}
	read := api.NewShardReadClient(s.caller(readonly).http, "https://"+s.addrs["shard"])
	var next, held, refused atomic.Int64
	var opened, all sync.WaitGroup
	for range hands {
		opened.Go(func() {
			for next.Add(1) <= watchers && ctx.Err() == nil {
				stream, err := read.WatchDecisions(ctx, follow())
				if err == nil && stream.Receive() {
					held.Add(1)
					all.Go(func() { // it takes one record and then nothing, until the end
						<-ctx.Done()
						_ = stream.Close()
					})
					continue
				}
				if err == nil {
					err = stream.Err()
					_ = stream.Close()
				}
				if connect.CodeOf(err) != connect.CodeResourceExhausted {
					t.Errorf("a stream that is not held: %v", err)
				}
				refused.Add(1)
			}
		})
	}
	opened.Wait()
	t.Logf("%d streams are held, %d refused", held.Load(), refused.Load())
	if h, r := held.Load(), refused.Load(); h == 0 || h > 128 || h+r != watchers {
		t.Errorf("%d streams of one caller are held and %d refused", h, r)
	}
	other, err := api.NewShardReadClient(s.caller(identity.ID{Kind: identity.Admin}).http, "https://"+s.addrs["shard"]).WatchDecisions(ctx, follow())
	if err != nil || !other.Receive() {
		t.Errorf("another certificate has no stream: %v", err)
	} else {
		_ = other.Close()
	}
	beside := honest.steady(t, 2*time.Second, always)
	t.Logf("acknowledgements alone: half within %s; beside the streams: half within %s", percent(alone, 50), percent(beside, 50))
	if bound := max(20*percent(alone, 90), 200*time.Millisecond); percent(beside, 50) > bound {
		t.Errorf("half of the acknowledgements beside the streams take %s, without them %s", percent(beside, 50), percent(alone, 50))
	}
	cancel()
	all.Wait()
	s.unharmed()
}

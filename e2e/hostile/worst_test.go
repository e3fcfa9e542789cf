package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// session is the operator's side of one session, as far as roll-ups, their acknowledgements and boot data go.
type session struct {
	cluster string
	stream  *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	acks    chan *pb.RollupResult

	sending sync.Mutex
}

func (x *session) send(m *pb.OperatorMessage) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	return x.stream.Send(m)
}

func (s *stage) session(cluster string, features ...string) *session {
	s.t.Helper()
	return s.sessionOf(&pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: features})
}

func (s *stage) sessionOf(hello *pb.Hello) *session {
	s.t.Helper()
	cluster := hello.GetClusterId()
	c := s.caller(identity.ID{Kind: identity.Cluster, Name: cluster})
	x := &session{cluster: cluster, acks: make(chan *pb.RollupResult, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	x.stream = api.NewShardClient(c.http, "https://"+s.addrs["shard"]).Session(ctx)
	ended := make(chan struct{})
	s.t.Cleanup(func() {
		cancel()
		_ = x.stream.CloseRequest() // the transport looks at ctx only once it is done with what is sent
		<-ended
	})
	if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: hello}}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for {
			m, err := x.stream.Receive()
			if err != nil {
				return
			}
			if ask := m.GetBootstrapRequest(); ask != nil {
				if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: ask.GetRequestId(), UserData: []byte("boot"), TtlSeconds: 3600}}}); err != nil {
					return
				}
			}
			if ack := m.GetAck().GetRollup(); ack != nil {
				select {
				case x.acks <- ack:
				default:
				}
			}
		}
	}()
	return x
}

// rollup sends demand and returns its acknowledgement and how long that took.
func (x *session) rollup(ctx context.Context, needs []*pb.CapacityNeed) (*pb.RollupResult, time.Duration, error) {
	began := time.Now()
	if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: x.cluster, TimestampUnixNanos: began.UnixNano(), Needs: needs}}}); err != nil {
		return nil, 0, err
	}
	for {
		select {
		case ack := <-x.acks:
			if ack.GetTimestampUnixNanos() == began.UnixNano() {
				return ack, time.Since(began), nil
			}
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func accepts(r *pb.RollupResult) bool {
	return r.GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED || r.GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_UNCHANGED
}

// largest is demand at every limit at once: as many rows as one roll-up may have, as many distinct resource names as that many rows may
// have, no two rows alike, and as many bytes as one roll-up may have.
func largest(round int) []*pb.CapacityNeed {
	const rows, names, bytesMax = 50_000, 40, 16 << 20
	padding := (bytesMax - 64<<10) / rows
	out := make([]*pb.CapacityNeed, rows)
	for i := range out {
		q := map[string]string{"cpu": "1", fmt.Sprintf("example.com/r%d", i%(names-1)): "1"}
		out[i] = &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(round, "-", i), Priority: int32(i),
			Requirements: []*pb.NodeSelectorRequirement{{Key: "example.com/k", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{fmt.Sprint(i)}}}}
		if room := padding - proto.Size(out[i]) - 4; room > 10 {
			out[i].Requirements[0].Values = append(out[i].Requirements[0].Values, strings.Repeat("v", min(room-4, 60)))
		}
	}
	return out
}

// steady makes the honest cluster state a changed demand every 50 ms for a while, and returns how long the acknowledgements took,
// ascending.
func (x *session) steady(t *testing.T, length time.Duration) []time.Duration {
	t.Helper()
	var took []time.Duration
	for n, end := 0, time.Now().Add(length); time.Now().Before(end); n++ {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		ack, d, err := x.rollup(ctx, []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": fmt.Sprint(1 + n%7)}, MinUnit: map[string]string{"cpu": "1"}, RowId: "row"}})
		cancel()
		if err != nil || !accepts(ack) {
			t.Fatalf("an honest roll-up: %v, %v", ack, err)
		}
		took = append(took, d)
		time.Sleep(50 * time.Millisecond)
	}
	slices.Sort(took)
	return took
}

// percent is the duration that so many of a hundred stay below.
func percent(took []time.Duration, n int) time.Duration { return took[len(took)*n/100] }

// late is the part of the time that was spent in waits, beyond so much of each. Whoever waits sends nothing meanwhile, so that a few long
// waits are few of all and much of the time.
func late(took []time.Duration, bound, of time.Duration) float64 {
	sum := time.Duration(0)
	for _, d := range took {
		sum += max(0, d-bound)
	}
	return float64(sum) / float64(of)
}

// SHARD-8.9, SHARD-32: a cluster that is told its verdicts states the most that all limits together allow, again and again. The shard stays
// below its chart's memory limit. Another cluster's acknowledgement waits for a part of such a roll-up and never for all of it: how long all
// of it takes, and how long an acknowledgement takes when nobody else asks for anything, is measured in the same run. A shard that takes such a
// roll-up in one step spends about a fifth of the time in waits that this test calls late; docs/benchmarks/B15.md has figures.
func TestWorstTenant(t *testing.T) {
	const length, most = 20 * time.Second, 0.15
	s := newStage(t)
	honest := s.session("red")
	alone := honest.steady(t, 3*time.Second)
	worst := s.session("worst", "need-status", "unplaced-pods", "node-report")
	ctx, cancel := context.WithCancel(t.Context())
	var whole []time.Duration
	ended := make(chan error, 1)
	go func() {
		for round := 0; ; round++ {
			ack, took, err := worst.rollup(ctx, largest(round))
			if ctx.Err() != nil {
				ended <- nil
				return
			}
			if err != nil || !accepts(ack) {
				ended <- fmt.Errorf("the largest roll-up: %v, %w", ack, err)
				return
			}
			whole = append(whole, took)
			t.Logf("the largest roll-up is acknowledged in %s", took.Round(time.Millisecond))
		}
	}()
	beside := honest.steady(t, length)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(whole) == 0 {
		t.Fatal("no roll-up of the worst cluster was accepted")
	}
	slices.Sort(whole)
	bound := max(percent(whole, 50)/4, 5*percent(alone, 90), 100*time.Millisecond)
	share := late(beside, bound, length)
	t.Logf("acknowledgements alone: half within %s, 99 %% within %s; beside %d of the largest roll-ups: half within %s, 90 %% within %s, 99 %% within %s, the last %s",
		percent(alone, 50), percent(alone, 99), len(whole), percent(beside, 50), percent(beside, 90), percent(beside, 99), beside[len(beside)-1])
	t.Logf("late is beyond %s, as half of the largest roll-ups take %s: %.1f %% of the time", bound, percent(whole, 50), 100*share)
	if share > most {
		t.Errorf("%.0f %% of the time another cluster waited longer than %s, a quarter of what a largest roll-up takes; at most %.0f %% is its share",
			100*share, bound, 100*most)
	}
	s.unharmed()
}

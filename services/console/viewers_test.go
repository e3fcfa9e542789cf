package console

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OPS-6.3: a viewer of a window gets its rows alone, with all that match in numbers; only what changed comes again.
func TestNeedsByWindow(t *testing.T) {
	shard := &shardStub{name: "red"}
	shard.cycle.Store(1)
	base, _, _ := serveConsole(t, shard)
	first := func(q *pb.WatchNeedsRequest) (rows []string, sum *pb.NeedSummary) {
		t.Helper()
		stream, err := consoleClient(base).WatchNeeds(t.Context(), connect.NewRequest(q))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			if m := stream.Msg(); m.GetSnapshotComplete() && m.GetSummary() != nil {
				by := map[string]string{}
				for _, r := range m.GetUpserts() {
					by[r.GetKey()] = r.GetNeed().GetNeed().GetRowId()
					if n := r.GetNeed(); n.GetAgeCyclesUnmet() != 0 || !n.GetSatisfied() && n.GetUnmetSinceUnixNanos() == 0 {
						t.Errorf("an age that is not sent again: %v", n)
					}
				}
				for _, k := range m.GetSummary().GetKeys() {
					rows = append(rows, by[k])
				}
				return rows, m.GetSummary()
			}
		}
		t.Fatal(stream.Err())
		return nil, nil
	}
	least := int32(1)
	for _, x := range []struct {
		q    *pb.WatchNeedsRequest
		rows int
		all  int32
	}{
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 2}}, 2, 3},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Offset: 2, Limit: 2}}, 1, 3},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Offset: 9, Limit: 2}}, 0, 3},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, Standing: "short"}, 1, 1},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, Standing: "waiting"}, 1, 1},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, Standing: "met"}, 2, 2},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, TextPart: "IT waits"}, 3, 3},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, TextPart: "nothing says so"}, 0, 0},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, MinPriority: &least}, 0, 0},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, GangsOnly: true}, 0, 0},
		{&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}, ClusterId: "blue"}, 0, 0},
	} {
		rows, sum := first(x.q)
		if len(rows) != x.rows || sum.GetTotal() != x.all || slices.Contains(rows, "") {
			t.Errorf("%v: rows %q of %d, want %d of %d", x.q, rows, sum.GetTotal(), x.rows, x.all)
		}
	}
	_, sum := first(&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 1}})
	if sum.GetByStanding()["short"] != 1 || sum.GetByStanding()["met"] != 2 || sum.GetCut() == 0 {
		t.Errorf("in numbers: %v", sum)
	}
}

// OPS-6.3: the first who looks at needs finds them: the console has read them before, and with its first frame all are there.
func TestFirstViewerFindsNeeds(t *testing.T) {
	shard := &shardStub{name: "red"}
	shard.cycle.Store(1)
	base, _, _ := serveConsole(t, shard)
	eventually(t, "the needs are read without a viewer", func() bool { return shard.inspects.Load() > 0 })
	eventually(t, "the first frame of a viewer has all rows", func() bool { // what was asked for may be on its way still
		stream, err := consoleClient(base).WatchNeeds(t.Context(), connect.NewRequest(&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 9}}))
		if err != nil || !stream.Receive() {
			t.Fatal(err, stream.Err())
		}
		defer func() { _ = stream.Close() }()
		return stream.Msg().GetSnapshotComplete() && len(stream.Msg().GetUpserts()) == 3
	})
}

// OPS-6.3: 200 viewers that come and go leave nothing behind: no stream of the shard, no viewer that counts, no goroutine.
func TestViewersComeAndGo(t *testing.T) {
	shard := &shardStub{name: "red"}
	shard.cycle.Store(1)
	const viewers = 200
	base, _, _ := serveConsole(t, shard, func(c *Config) { c.Viewers = viewers })
	eventually(t, "the console follows the shard", func() bool { return shard.streams.Load() == 1 })
	round := func() {
		client := consoleClient(base)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ready := make(chan error, viewers)
		var all sync.WaitGroup
		for i := range viewers {
			all.Go(func() {
				if i%2 == 0 {
					s, err := client.WatchOverview(ctx, connect.NewRequest(&pb.WatchOverviewRequest{}))
					drain(s, err, ready)
					return
				}
				s, err := client.WatchNeeds(ctx, connect.NewRequest(&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Limit: 100}}))
				drain(s, err, ready)
			})
		}
		for range viewers {
			if err := <-ready; err != nil {
				t.Errorf("a viewer: %v", err)
			}
		}
		cancel()
		all.Wait()
	}
	before := runtime.NumGoroutine()
	for range 3 {
		round() // each needs all the room there is
		eventually(t, "all viewers have left", func() bool { return oneMore(t, base) && runtime.NumGoroutine() <= before+viewers/10 })
	}
	if n := shard.streams.Load(); n != 1 {
		t.Errorf("%d streams of records, want 1", n)
	}
}

// drain reads a stream until it ends, and says when its first message is there.
func drain[M any](s *connect.ServerStreamForClient[M], err error, ready chan<- error) {
	if err == nil && !s.Receive() {
		err = s.Err()
	}
	if ready <- err; err != nil {
		return
	}
	for s.Receive() {
	}
	_ = s.Close()
}

// oneMore says that there is room for a viewer.
func oneMore(t *testing.T, base string) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := consoleClient(base).WatchOverview(ctx, connect.NewRequest(&pb.WatchOverviewRequest{}))
	if err != nil {
		return false
	}
	defer func() { _ = s.Close() }()
	return s.Receive()
}

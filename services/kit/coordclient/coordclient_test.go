package coordclient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica answers as a coordinator does; its role is set from outside.
type replica struct {
	api.UnimplementedCoordinatorHandler
	api.UnimplementedCoordinatorAdminHandler
	addr  string
	calls atomic.Int64
	mu    sync.Mutex
	role  func() error // nil: leader
	ack   *pb.ReportAck
	stop  func()
}

func (r *replica) set(role func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.role = role
}

func (r *replica) ReportShard(context.Context, *connect.Request[pb.ShardReport]) (*connect.Response[pb.ReportAck], error) {
	r.calls.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.role != nil {
		return nil, r.role()
	}
	return connect.NewResponse(r.ack), nil
}

func (r *replica) ListShards(context.Context, *connect.Request[pb.ListShardsRequest]) (*connect.Response[pb.ListShardsResponse], error) {
	r.calls.Add(1)
	return connect.NewResponse(&pb.ListShardsResponse{}), nil
}

func (r *replica) GetCoordinatorStatus(context.Context, *connect.Request[pb.GetCoordinatorStatusRequest]) (*connect.Response[pb.GetCoordinatorStatusResponse], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return connect.NewResponse(&pb.GetCoordinatorStatusResponse{ClusterUuid: r.ack.GetClusterUuid(), PreviousUuids: r.ack.GetPreviousUuids(), FencingTerm: r.ack.GetCoordinatorTerm()}), nil
}

func notLeader(hint string) func() error {
	return func() error {
		return rpc.NewError(connect.CodeFailedPrecondition, "not the leader", &pb.NotLeader{Leader: &pb.LeaderHint{LeaderAddress: hint}})
	}
}

func start(t *testing.T, change func(*rpc.ServerConfig)) *replica {
	t.Helper()
	r := &replica{ack: &pb.ReportAck{Acknowledged: true, CoordinatorTerm: 5, ClusterUuid: "group-1"}}
	limits := rpc.Limits{ReadMaxBytes: 1 << 20, SendMaxBytes: 1 << 20}
	config := rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Services: []rpc.Service{
		{Name: api.CoordinatorName, Limits: limits, Access: rpc.AllowAll(api.CoordinatorName, rpc.HandlerDecides()),
			New: func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewCoordinatorHandler(r, o...) }},
		{Name: api.CoordinatorAdminName, Limits: limits, Access: rpc.AllowAll(api.CoordinatorAdminName, rpc.HandlerDecides()),
			New: func(o ...connect.HandlerOption) (string, http.Handler) {
				return api.NewCoordinatorAdminHandler(r, o...)
			}},
	}}
	if change != nil {
		change(&config)
	}
	server, err := rpc.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func client(t *testing.T, c coordclient.Config, replicas ...*replica) *coordclient.Client {
	t.Helper()
	for _, r := range replicas {
		c.Addrs = append(c.Addrs, r.addr)
	}
	out, err := coordclient.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// refusedAs makes a call that no replica answers as it should, until its error says why.
func refusedAs[E error](t *testing.T, what string, call func(context.Context) error) (why E) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := call(within(t, 300*time.Millisecond)) // it ends at its deadline
		if errors.As(err, &why) {
			return why
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("%s: got %v", what, err)
		}
	}
}

// COORD-6.3.2, 6.3.3, COORD-21.16: a client that lands on a follower reaches the leader, through the hint or without
// one, stays there, and follows when the leader changes.
func TestFollowsTheLeader(t *testing.T) {
	for _, hinted := range []bool{true, false} {
		t.Run(fmt.Sprint("hint ", hinted), func(t *testing.T) {
			replicas := []*replica{start(t, nil), start(t, nil), start(t, nil)}
			lead := func(n int) {
				for i, r := range replicas {
					switch {
					case i == n:
						r.set(nil)
					case hinted:
						r.set(notLeader(replicas[n].addr))
					default:
						r.set(notLeader(""))
					}
				}
			}
			c := client(t, coordclient.Config{}, replicas...)
			for _, n := range []int{2, 0, 1} {
				lead(n)
				for range 3 {
					if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{ShardId: "s"}); err != nil {
						t.Fatal(err)
					}
				}
				if c.Leader() != replicas[n].addr {
					t.Fatalf("leader %s, want %s", c.Leader(), replicas[n].addr)
				}
				before := replicas[(n+1)%3].calls.Load() + replicas[(n+2)%3].calls.Load()
				if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{ShardId: "s"}); err != nil {
					t.Fatal(err)
				}
				if after := replicas[(n+1)%3].calls.Load() + replicas[(n+2)%3].calls.Load(); after != before {
					t.Error("a client that knows the leader asked another replica")
				}
			}
		})
	}
}

// COORD-6.3.2: refused connections and UNAVAILABLE go to the next address; no leader ends at the caller's deadline.
func TestNextAddress(t *testing.T) {
	dead, sick, good := start(t, nil), start(t, nil), start(t, nil)
	dead.stop()
	sick.set(func() error { return rpc.NewError(connect.CodeUnavailable, "no quorum") })
	c := client(t, coordclient.Config{}, dead, sick, good)
	if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{}); err != nil {
		t.Fatal(err)
	}
	good.stop()
	_, err := c.Report(within(t, 300*time.Millisecond), &pb.ShardReport{})
	var none *coordclient.NoLeaderError
	if !errors.As(err, &none) || none.Last == nil {
		t.Fatalf("got %v", err)
	}
}

// COORD-6.3.3: any other code is the leader's answer, once.
func TestRefusalIsAnAnswer(t *testing.T) {
	r := start(t, nil)
	r.set(func() error { return rpc.NewError(connect.CodeAborted, "epoch 3 is older than 4") })
	c := client(t, coordclient.Config{}, r)
	_, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{})
	if connect.CodeOf(err) != connect.CodeAborted || r.calls.Load() != 1 {
		t.Fatalf("got %v after %d calls", err, r.calls.Load())
	}
	own := errors.New("mine")
	if err := c.Do(within(t, 5*time.Second), func(context.Context, coordclient.Target) error { return own }); !errors.Is(err, own) {
		t.Fatalf("got %v", err)
	}
}

// COORD-6.1.2: a leader that is about to open is asked again at once, not left.
func TestWaitsForAnOpeningLeader(t *testing.T) {
	r := start(t, nil)
	var n atomic.Int64
	r.set(func() error {
		if n.Add(1) == 5 {
			go r.set(nil)
		}
		return rpc.NewError(connect.CodeUnavailable, "opening", &pb.RetryHint{AfterMillis: 20})
	})
	c := client(t, coordclient.Config{}, r)
	if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{}); err != nil {
		t.Fatal(err)
	}
}

// COORD-6.3.1: names are resolved at every round, so replicas that come back elsewhere are found.
func TestNamesAreResolvedEachRound(t *testing.T) {
	first := start(t, nil)
	_, port, _ := net.SplitHostPort(first.addr)
	var mu sync.Mutex
	to := first.addr
	c, err := coordclient.New(coordclient.Config{Addrs: []string{"coordinators.test:" + port},
		Resolve: func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			mu.Lock()
			addr := to
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{}); err != nil {
		t.Fatal(err)
	}
	second := start(t, nil)
	first.stop()
	mu.Lock()
	to = second.addr
	mu.Unlock()
	if _, err := c.Report(within(t, 5*time.Second), &pb.ShardReport{}); err != nil {
		t.Fatal(err)
	}
	if second.calls.Load() == 0 {
		t.Fatal("no call reached the new address")
	}
}

// COORD-6.3.4: the group is pinned when it is first seen; another one is refused, also when its term is higher; a
// restored one that names the pinned group is followed when its term is higher. The pin is stored before the answer is
// used.
func TestLineage(t *testing.T) {
	r := start(t, nil)
	var stored []string
	c := client(t, coordclient.Config{OnPin: func(uuid string, term int64) error {
		stored = append(stored, fmt.Sprint(uuid, "@", term))
		return nil
	}}, r)
	report := func(ctx context.Context) error {
		_, err := c.Report(ctx, &pb.ShardReport{})
		return err
	}
	answer := func(ack *pb.ReportAck) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ack = ack
	}
	if err := report(within(t, time.Minute)); err != nil || len(stored) != 1 || stored[0] != "group-1@5" {
		t.Fatalf("%v, stored %v", err, stored)
	}
	for name, ack := range map[string]*pb.ReportAck{
		"stranger":              {ClusterUuid: "group-2", CoordinatorTerm: 1 << 40},
		"older coordinator":     {CoordinatorTerm: 9},
		"restored, lower term":  {ClusterUuid: "group-2", PreviousUuids: []string{"group-1"}, CoordinatorTerm: 4},
		"restored, equal terms": {ClusterUuid: "group-2", PreviousUuids: []string{"group-1"}, CoordinatorTerm: 5},
	} {
		answer(ack)
		if err := refusedAs[*coordclient.LineageError](t, name, report); err.Pinned != "group-1" {
			t.Fatalf("%s: got %v", name, err)
		}
		refusedAs[*coordclient.LineageError](t, name+", a read", func(ctx context.Context) error {
			return c.Do(ctx, func(ctx context.Context, target coordclient.Target) error {
				_, err := target.Coordinator.ListShards(ctx, connect.NewRequest(&pb.ListShardsRequest{}))
				return err
			})
		})
	}
	answer(&pb.ReportAck{ClusterUuid: "group-2", PreviousUuids: []string{"group-0", "group-1"}, CoordinatorTerm: 6})
	if err := report(within(t, time.Minute)); err != nil || len(stored) != 2 || stored[1] != "group-2@6" {
		t.Fatalf("%v, stored %v", err, stored)
	}
	if uuid, term := c.Pinned(); uuid != "group-2" || term != 6 {
		t.Fatalf("pinned %s at %d", uuid, term)
	}
}

// COORD-6.3.5, SHARD-22.4: under mTLS the server must be a coordinator (or an older one with an admin certificate).
func TestServerIdentity(t *testing.T) {
	ca, err := devca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	source := func(id identity.ID) *identity.Source {
		files, err := ca.Write(t.TempDir(), "leaf", devca.For(id, "127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := identity.Load(files, identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mine := source(identity.ID{Kind: identity.Shard, Name: "s"})
	for id, want := range map[identity.ID]bool{
		{Kind: identity.Coordinator, Name: "node-1"}: true, {Kind: identity.Admin}: true, {Kind: identity.Shard, Name: "evil"}: false,
	} {
		r := start(t, func(c *rpc.ServerConfig) { c.Identity = source(id) })
		patience := time.Minute
		if !want {
			patience = 500 * time.Millisecond
		}
		if _, err := client(t, coordclient.Config{Identity: mine}, r).Report(within(t, patience), &pb.ShardReport{}); (err == nil) != want {
			t.Errorf("server %s: %v", id, err)
		}
		if _, err := client(t, coordclient.Config{Identity: mine, AnyServer: true}, r).Report(within(t, time.Minute), &pb.ShardReport{}); err != nil {
			t.Errorf("server %s without the check: %v", id, err)
		}
	}
}

// COORD-7.12, 6.3.4: a higher term of the pinned group is stored before the answer is used; an answer with a lower one is of a
// leader that is none any more: it is refused, and the others are asked.
func TestTermsOnlyGrow(t *testing.T) {
	old, next := start(t, nil), start(t, nil)
	next.set(notLeader(old.addr))
	var stored []int64
	broken := false
	c := client(t, coordclient.Config{ClusterUUID: "group-1", Term: 4, OnPin: func(uuid string, term int64) error {
		if broken {
			return errors.New("disk full")
		}
		stored = append(stored, term)
		return nil
	}}, old, next)
	report := func() (*pb.ReportAck, error) { return c.Report(within(t, time.Minute), &pb.ShardReport{}) }
	for range 2 {
		if ack, err := report(); err != nil || ack.GetCoordinatorTerm() != 5 || len(stored) != 1 || stored[0] != 5 {
			t.Fatalf("%v %v, stored %v", ack, err, stored)
		}
	}
	next.mu.Lock()
	next.ack = &pb.ReportAck{Acknowledged: true, CoordinatorTerm: 9, ClusterUuid: "group-1"}
	next.role = nil
	next.mu.Unlock()
	old.set(notLeader(next.addr))
	broken = true
	if ack, err := report(); err == nil {
		t.Fatalf("an answer was used whose term is not stored: %v", ack)
	}
	broken = false
	if ack, err := report(); err != nil || ack.GetCoordinatorTerm() != 9 || stored[len(stored)-1] != 9 {
		t.Fatalf("%v %v, stored %v", ack, err, stored)
	}
	old.set(nil) // it was paused, and does not know yet
	next.set(func() error { return rpc.NewError(connect.CodeUnavailable, "busy") })
	stale := refusedAs[*coordclient.StaleTermError](t, "a leader of before", func(ctx context.Context) error {
		_, err := c.Report(ctx, &pb.ShardReport{})
		return err
	})
	if stale.Seen != 9 || stale.Got != 5 {
		t.Errorf("%v", stale)
	}
	next.set(nil)
	if ack, err := report(); err != nil || ack.GetCoordinatorTerm() != 9 {
		t.Fatalf("%v %v", ack, err)
	}
}

// COORD-6.3.2, 7.15: a leader with too much to do is asked again when it says, without a new connection and without asking
// others; a caller whose time ends before that is refused at once, with the moment.
func TestWaitsAsLongAsTheAnswerSays(t *testing.T) {
	r := start(t, nil)
	var asked atomic.Int64
	busy := func(after time.Duration, times int64) func() error {
		asked.Store(0)
		return func() error {
			if asked.Add(1) > times {
				return connect.NewError(connect.CodeAborted, errors.New("an answer"))
			}
			return rpc.NewError(connect.CodeUnavailable, "too many reports", &pb.RetryHint{AfterMillis: after.Milliseconds()})
		}
	}
	var dials atomic.Int64
	c := client(t, coordclient.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}, r)
	r.set(busy(10*time.Millisecond, 2))
	if _, err := c.Report(within(t, time.Minute), &pb.ShardReport{ShardId: "s"}); connect.CodeOf(err) != connect.CodeAborted {
		t.Fatal(err)
	}
	if asked.Load() != 3 || dials.Load() != 1 {
		t.Errorf("asked %d times over %d connections, want 3 and 1", asked.Load(), dials.Load())
	}
	r.set(busy(10*time.Second, 1))
	_, err := c.Report(within(t, 9*time.Second), &pb.ShardReport{ShardId: "s"})
	if hint, ok := rpc.Detail[*pb.RetryHint](err); !ok || hint.GetAfterMillis() != 10_000 || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// COORD-6.3.3: what an attempt began that was too slow continues, so that a replica is reached although each dial takes longer
// than an attempt may.
func TestSlowConnectionIsUsedAgain(t *testing.T) {
	r := start(t, nil)
	c := client(t, coordclient.Config{AttemptTimeout: 50 * time.Millisecond, Dial: func(_ context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(200 * time.Millisecond)
		return net.Dial(network, addr)
	}}, r)
	if _, err := c.Report(within(t, time.Minute), &pb.ShardReport{ShardId: "s"}); err != nil {
		t.Fatal(err)
	}
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Coordinator is one replica.
type Coordinator struct {
	Address string
	Core    bigfleetv1alpha1connect.CoordinatorClient
	Admin   bigfleetv1alpha1connect.CoordinatorAdminClient
}

func (f *Fleet) coordinator(address string) (Coordinator, error) {
	c, err := f.client(address)
	if err != nil {
		return Coordinator{}, err
	}
	return Coordinator{
		Address: address,
		Core:    rpc.Stub(c, bigfleetv1alpha1connect.NewCoordinatorClient),
		Admin:   rpc.Stub(c, bigfleetv1alpha1connect.NewCoordinatorAdminClient),
	}, nil
}

// Replicas are the coordinators that --coordinator names.
func (f *Fleet) Replicas() ([]Coordinator, error) {
	var out []Coordinator
	for _, a := range f.cfg.Coordinator {
		c, err := f.coordinator(a)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Leader makes one call at the leading coordinator (COORD-6.3).
func (f *Fleet) Leader(ctx context.Context, what string, call func(context.Context, Coordinator) error) error {
	bounded, cancel := f.Deadline(ctx)
	defer cancel()
	defer f.waits(func() string {
		return what + " is taking a while: still waiting for the coordinator at " + strings.Join(f.cfg.Coordinator, ", ") + " …"
	})()
	return f.atLeader(bounded, what, call)
}

// LeaderStream is Leader without a deadline of its own, for streams.
func (f *Fleet) LeaderStream(ctx context.Context, what string, call func(context.Context, Coordinator) error) error {
	return f.atLeader(ctx, what, call, coordclient.Unbounded())
}

func (f *Fleet) atLeader(ctx context.Context, what string, call func(context.Context, Coordinator) error, opts ...coordclient.Option) error {
	l, err := f.leaderClient()
	if err != nil {
		return err
	}
	if err := f.knock(ctx, what); err != nil {
		return err
	}
	err = l.Do(ctx, func(ctx context.Context, t coordclient.Target) error {
		return call(ctx, Coordinator{Address: t.Addr, Core: t.Coordinator, Admin: t.Admin})
	}, opts...)
	var other *coordclient.LineageError
	if errors.As(err, &other) {
		return otherGroup(what, other)
	}
	var leaderless *coordclient.NoLeaderError
	if !errors.As(err, &leaderless) {
		return exit.Of(what, err)
	}
	if errors.Is(leaderless.Last, context.DeadlineExceeded) || connect.CodeOf(leaderless.Last) == connect.CodeDeadlineExceeded { // no replica answered that could say that none leads
		return &exit.Error{Code: exit.Unreachable, Reason: exit.TooSlow, Message: fmt.Sprintf("%s: no coordinator at %s answered within %v", what, strings.Join(f.cfg.Coordinator, ", "), f.cfg.Timeout),
			Hint: exit.MoreTime, Err: err}
	}
	out := &exit.Error{Code: exit.Unreachable, Reason: "no_leader", Message: what + ": no coordinator leads at " + strings.Join(f.cfg.Coordinator, ", "),
		Hint: "An election takes about a second; `bigfleet raft status` shows the replicas", Err: err}
	var dial *rpc.DialError
	if errors.As(leaderless.Last, &dial) {
		return exit.NoConnection(what, dial)
	}
	if errors.As(leaderless.Last, &other) {
		return otherGroup(what, other)
	}
	var why *exit.Error
	if errors.As(exit.Of(what, leaderless.Last), &why) && (why.Code == exit.Denied || why.Reason == "wrong_service" || !f.heard.Load() && noServer(why)) {
		return why // waiting for an election would not put that right
	}
	return out
}

// otherGroup is a fleet at the addresses of another one.
func otherGroup(what string, e *coordclient.LineageError) *exit.Error {
	return &exit.Error{Code: exit.Refused, Reason: "other_fleet", Message: fmt.Sprintf("%s: the coordinator at %s is of another fleet: it is group %s, and this context is for %s", what, e.Addr, e.Got, e.Pinned),
		Hint: "Correct the address, or take this fleet with `bigfleet config set NAME --coordinator ADDRESS --pin`", Err: e}
}

// Group is the identity of the group of coordinators.
func (f *Fleet) Group(ctx context.Context) (uuid string, err error) {
	err = f.Leader(ctx, "reading the fleet's identity", func(ctx context.Context, c Coordinator) error {
		got, err := c.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		if err == nil {
			uuid = got.Msg.GetClusterUuid()
		}
		return err
	})
	return uuid, err
}

// knock fails at once when no address can ever lead: no port is open, or what answers there wants TLS, has none, shows a
// certificate that is refused, is not a coordinator, or one of another fleet. Waiting for an election would not put that right.
func (f *Fleet) knock(ctx context.Context, what string) error {
	if f.heard.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	replicas, err := f.Replicas()
	if err != nil {
		return err
	}
	answers := make(chan *exit.Error, len(replicas))
	for _, c := range replicas {
		go func() { answers <- f.hopeless(ctx, what, c) }()
	}
	var worst *exit.Error
	for range replicas {
		got := <-answers
		if got == nil {
			return nil
		}
		if worst == nil || worst.Reason == exit.NothingAnswers {
			worst = got
		}
	}
	if worst.Reason == exit.NothingAnswers {
		worst = &exit.Error{Code: exit.Unreachable, Reason: exit.NothingAnswers, Message: what + ": nothing answers at " + strings.Join(f.cfg.Coordinator, ", "),
			Hint: "Check --coordinator and that the process runs, or name one shard with --shard host:port; `bigfleet doctor` checks more", Err: worst.Err}
	}
	return worst
}

// hopeless is why nothing will ever lead at an address; nil where something might. Who is only slow has not been heard: the
// search for the leader continues, and if it ends for such a reason, that reason is the error.
func (f *Fleet) hopeless(ctx context.Context, what string, c Coordinator) *exit.Error {
	status, err := c.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
	if err == nil && f.stranger(status.Msg) {
		return otherGroup(what, &coordclient.LineageError{Addr: c.Address, Pinned: f.cfg.Group, Got: status.Msg.GetClusterUuid()})
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented { // another implementation may have no admin service
		_, err = c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
	}
	var out *exit.Error
	if errors.As(exit.Of(what, err), &out) && noServer(out) {
		return out
	}
	if err == nil || connect.IsWireError(err) {
		f.heard.Store(true)
	}
	return nil
}

// stranger says whether a coordinator is of another group than the context's, and did not come from it by a restore (COORD-6.3.4).
func (f *Fleet) stranger(s *bigfleetv1alpha1.GetCoordinatorStatusResponse) bool {
	return f.cfg.Group != "" && s.GetClusterUuid() != "" && s.GetClusterUuid() != f.cfg.Group && !slices.Contains(s.GetPreviousUuids(), f.cfg.Group)
}

func noServer(e *exit.Error) bool { return slices.Contains(exit.NoServer(), e.Reason) }

// knockTimeout is generous for a handshake across the world.
const knockTimeout = 3 * time.Second

func (f *Fleet) leaderClient() (*coordclient.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader != nil {
		return f.leader, nil
	}
	l, err := coordclient.New(coordclient.Config{Addrs: f.cfg.Coordinator, ClusterUUID: f.cfg.Group, Identity: f.cfg.Identity, Dial: f.cfg.Dial, Resolve: f.cfg.Resolve})
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Message: err.Error(), Err: err}
	}
	f.leader = l
	return l, nil
}

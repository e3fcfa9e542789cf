package coordclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Option changes one Do.
type Option func(*doing)

type doing struct{ unbounded, unverified bool }

// Unbounded lifts the deadline of an attempt: for streams, whose first frame call must read before it returns, since an
// error of a stream shows there, and for orders that take long and should not be repeated.
func Unbounded() Option { return func(d *doing) { d.unbounded = true } }

// Unverified skips the question for the group before the first call on a connection; call checks answers with Accept.
func Unverified() Option { return func(d *doing) { d.unverified = true } }

// Do runs call at the leader. It returns nil or the leader's refusal, a *LineageError when the only leader found is
// one of another group, or a *NoLeaderError when ctx ended first, or would end before the moment at which a replica wants
// to be asked again (its RetryHint is in the error). call may run several times, at several replicas.
func (c *Client) Do(ctx context.Context, call func(ctx context.Context, t Target) error, opts ...Option) error {
	var d doing
	for _, o := range opts {
		o(&d)
	}
	var last error
	wait := backoffMin
	for {
		done, err := c.round(ctx, d, call)
		if done {
			return err
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		if !pause(ctx, max(rand.N(wait)+time.Millisecond, later(err))) { // full jitter
			if last == nil {
				last = context.Cause(ctx)
			}
			return &NoLeaderError{Last: last}
		}
		wait = min(2*wait, backoffMax)
	}
}

// round asks each candidate once, follows hints, and reports whether there was an answer.
func (c *Client) round(ctx context.Context, d doing, call func(context.Context, Target) error) (bool, error) {
	queue := c.first()
	resolved, hints, waits := false, 0, 0
	var tried []endpoint
	var last error
	for ctx.Err() == nil {
		if len(queue) == 0 {
			if resolved {
				return false, last
			}
			resolved = true
			queue = slices.DeleteFunc(c.resolve(ctx, &last), func(at endpoint) bool { return slices.Contains(tried, at) })
			continue
		}
		at := queue[0]
		queue = queue[1:]
		tried = append(tried, at)
		err := c.attempt(ctx, d, at, call)
		switch c.judge(at, err) {
		case answered:
			return true, err
		case otherGroup:
			last = err
		case busy:
			if last = err; waits < waitsMax && pause(ctx, later(err)) {
				waits++
				queue = append([]endpoint{at}, queue...)
			} else {
				return false, last // any other replica would only name this one
			}
		case notLeader:
			last = err
			if hint := c.hinted(ctx); hint != nil && hints < hintsMax {
				hints++
				queue = append(hint, queue...)
			}
		case gone:
			last = err
		}
	}
	return false, last
}

// first are the candidates that need no look at the addresses.
func (c *Client) first() []endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != (endpoint{}) {
		return []endpoint{c.leader}
	}
	return nil
}

// hinted takes the hint and resolves it.
func (c *Client) hinted(ctx context.Context) []endpoint {
	c.mu.Lock()
	hint := c.hint
	c.hint = ""
	c.mu.Unlock()
	if hint == "" {
		return nil
	}
	out, _ := c.lookup(ctx, hint)
	return out
}

// resolve looks every name up again, so that replicas that came back elsewhere are found (COORD-6.3.1).
func (c *Client) resolve(ctx context.Context, last *error) []endpoint {
	var out []endpoint
	for _, addr := range c.config.Addrs {
		found, err := c.lookup(ctx, addr)
		if err != nil {
			*last = err
		}
		for _, at := range found {
			if !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (c *Client) lookup(ctx context.Context, addr string) ([]endpoint, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return []endpoint{{addr, addr}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.AttemptTimeout)
	defer cancel()
	ips, err := c.config.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	out := make([]endpoint, 0, len(ips))
	for _, ip := range ips {
		out = append(out, endpoint{addr, net.JoinHostPort(ip, port)})
	}
	return out, nil
}

// attempt runs call at one replica.
func (c *Client) attempt(ctx context.Context, d doing, at endpoint, call func(context.Context, Target) error) error {
	conn, err := c.connect(at)
	if err != nil {
		return err
	}
	defer c.leaveIfDropped(at, conn)
	if !d.unverified {
		if err := c.verify(ctx, conn); err != nil {
			return err
		}
	}
	if !d.unbounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.config.AttemptTimeout)
		defer cancel()
	}
	return call(ctx, conn.target)
}

// leaveIfDropped closes what became idle after drop had its look.
func (c *Client) leaveIfDropped(at endpoint, conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[at] != conn {
		conn.rpc.CloseIdle()
	}
}

// verify asks a replica for its group, once per connection and only when a group is pinned.
func (c *Client) verify(ctx context.Context, conn *conn) error {
	c.mu.Lock()
	skip := c.pin == "" || conn.known
	c.mu.Unlock()
	if skip {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.AttemptTimeout)
	defer cancel()
	answer, err := conn.target.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&pb.GetCoordinatorStatusRequest{}))
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return nil // an older coordinator knows no groups
	}
	if err != nil {
		return err
	}
	status := answer.Msg
	if err := c.Accept(conn.target.Addr, status.GetClusterUuid(), status.GetPreviousUuids(), status.GetFencingTerm()); err != nil {
		return err
	}
	c.mu.Lock()
	conn.known = true
	c.mu.Unlock()
	return nil
}

func (c *Client) connect(at endpoint) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[at]; conn != nil {
		return conn, nil
	}
	var check identity.ServerCheck
	if !c.config.AnyServer {
		check = identity.Accept(identity.Coordinator, identity.Admin)
	}
	made, err := rpc.NewClient(rpc.ClientConfig{
		Addr: at.name, Limits: rpc.Limits{ReadMaxBytes: messageBytesMax, SendMaxBytes: messageBytesMax}, Log: c.config.Log,
		Identity: c.config.Identity, Server: check, Tracer: c.config.Tracer, Meter: c.config.Meter,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.config.Dial(ctx, network, at.addr)
		},
	})
	if err != nil {
		return nil, err
	}
	out := &conn{rpc: made, made: time.Now(), target: Target{
		Addr: at.name, Coordinator: rpc.Stub(made, api.NewCoordinatorClient), Admin: rpc.Stub(made, api.NewCoordinatorAdminClient)}}
	c.conns[at] = out
	return out, nil
}

// verdict is what an attempt means for the search.
type verdict int

const (
	answered   verdict = iota // success, or a refusal of the leader
	notLeader                 // another replica leads
	busy                      // it leads, and wants to be asked again in a moment
	otherGroup                // it leads another group, or none any more
	gone                      // no answer
)

// judge reads the outcome of an attempt and keeps the cache (COORD-6.3.3).
func (c *Client) judge(at endpoint, err error) verdict {
	var lineage *LineageError
	var stale *StaleTermError
	switch {
	case err == nil:
		c.remember(at)
		return answered
	case errors.As(err, &lineage), errors.As(err, &stale):
		c.drop(at, "")
		return otherGroup
	case connect.CodeOf(err) == connect.CodeDeadlineExceeded: // of the attempt; either side may have noticed
		c.slow(at)
		return gone
	case !connect.IsWireError(err):
		var fault *connect.Error
		if !errors.As(err, &fault) && !rpc.NotSent(err) {
			return answered // call's own error, not the RPC's
		}
		c.drop(at, "")
		return gone
	}
	switch connect.CodeOf(err) {
	case connect.CodeFailedPrecondition:
		detail, _ := rpc.Detail[*pb.NotLeader](err)
		hint := detail.GetLeader().GetLeaderAddress()
		if pinned, _ := c.Pinned(); pinned != "" && detail.GetLeader().GetClusterUuid() != "" && detail.GetLeader().GetClusterUuid() != pinned {
			hint = "" // a stranger's word
		}
		c.pass(at, hint)
		return notLeader
	case connect.CodeUnavailable:
		if _, ok := rpc.Detail[*pb.RetryHint](err); ok {
			return busy
		}
		c.drop(at, "")
		return gone
	default:
		c.remember(at)
		return answered
	}
}

func (c *Client) remember(at endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader, c.hint = at, ""
}

// pass forgets a replica as leader. Its connection stays for a while: it answered, and while there is no leader every client
// asks every replica again and again, which must not cost a handshake each time. It goes in the end, since the address may be
// a virtual one behind which another replica leads (COORD-6.3.3).
func (c *Client) pass(at endpoint, hint string) {
	if !c.keep(at, hint, 2, connectionKept) {
		c.drop(at, hint)
	}
}

// slow forgets a replica that did not answer in time. When thousands ask at once, a dial or an answer takes longer than an
// attempt: what each attempt began continues, or no attempt would ever succeed.
func (c *Client) slow(at endpoint) {
	if !c.keep(at, "", 1, slowKept) {
		c.drop(at, "")
	}
}

// keep forgets a replica as leader and reports whether its connection may be used again: while it is young, and one of at
// least so many.
func (c *Client) keep(at endpoint, hint string, conns int, young time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conns[at]
	if conn == nil || len(c.conns) < conns || time.Since(conn.made) >= young {
		return false
	}
	if c.leader == at {
		c.leader = endpoint{}
	}
	if hint != "" {
		c.hint = hint
	}
	return true
}

// drop forgets a replica as leader and leaves its connection, since the name may stand for another process soon.
func (c *Client) drop(at endpoint, hint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == at {
		c.leader = endpoint{}
	}
	if hint != "" {
		c.hint = hint
	}
	if conn := c.conns[at]; conn != nil {
		conn.rpc.CloseIdle()
		delete(c.conns, at)
	}
}

// later is how long a replica wants not to be asked, if it said so. It gives each of many callers a moment of its own; the
// jitter spreads callers that were given the same delay.
func later(err error) time.Duration {
	hint, ok := rpc.Detail[*pb.RetryHint](err)
	if !ok || hint.GetAfterMillis() <= 0 {
		return 0
	}
	wait := min(time.Duration(hint.GetAfterMillis())*time.Millisecond, laterMax)
	return wait + rand.N(wait/4+1)
}

// pause waits, and reports whether the caller's time continues after it. A wait that is longer ends at once.
func pause(ctx context.Context, wait time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

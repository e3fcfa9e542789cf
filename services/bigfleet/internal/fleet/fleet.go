// Package fleet reaches the processes that a verb asks: one shard by address, or every shard that the coordinator lists.
//
// Answers of several shards are merged by the verbs. A shard that does not answer is named and makes the exit code 5 after
// everything else was printed (OPS-4.6). Nothing here retries; the deadline of a call is --timeout.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Defaults of the global flags (OPS-4.4).
const (
	CoordinatorDefault = "127.0.0.1:7790"
	TimeoutDefault     = 10 * time.Second
)

// Config is what the global flags say.
type Config struct {
	Coordinator []string         // addresses
	Group       string           // UUID of the only group of coordinators to talk to; "" means any
	Shard       string           // id or host:port; "" means every shard
	Timeout     time.Duration    // of one call
	Identity    *identity.Source // nil means plaintext
	Dial        Dialer           // in place of the network; nil means TCP
	// Resolve finds the addresses of a host's name, where Dial knows names that this machine does not; nil means DNS.
	Resolve func(ctx context.Context, host string) ([]string, error)
	Slow    func(say string) // gets what is waited for once that takes longer than a second; may be nil
}

// slowAfter is how long it may be silent.
const slowAfter = time.Second

// waits says what is being waited for until done is called, once, after a second.
func (f *Fleet) waits(say func() string) (done func()) {
	if f.cfg.Slow == nil {
		return func() {}
	}
	return Waits(f.cfg.Slow, say)
}

// Waits tells what is being waited for, once, after a second, unless done was called before.
func Waits(print func(string), say func() string) (done func()) {
	var mu sync.Mutex // once done has returned, nothing is said any more
	over := false
	t := time.AfterFunc(slowAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			print(say())
		}
	})
	return func() {
		t.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// Dialer opens one connection.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Fleet opens connections when they are first used. Close ends them.
type Fleet struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]*rpc.Client
	leader  *coordclient.Client
	heard   atomic.Bool // a coordinator's port was open
}

// New keeps the configuration; it dials nothing.
func New(c Config) *Fleet {
	if len(c.Coordinator) == 0 {
		c.Coordinator = []string{CoordinatorDefault}
	}
	if c.Timeout == 0 {
		c.Timeout = TimeoutDefault
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return &Fleet{cfg: c, clients: map[string]*rpc.Client{}}
}

// Close drops the connections.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		c.CloseIdle()
	}
	if f.leader != nil {
		f.leader.Close()
	}
}

// Deadline bounds one unary call.
func (f *Fleet) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, f.cfg.Timeout)
}

func (f *Fleet) client(address string) (*rpc.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clients[address]; c != nil {
		return c, nil
	}
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: address, Limits: rpc.ReadClientLimits(), Identity: f.cfg.Identity, Dial: f.cfg.Dial, Interceptors: []connect.Interceptor{perCall{}}})
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Message: err.Error(), Err: err}
	}
	f.clients[address] = c
	return c, nil
}

// Shard is one shard that can be asked.
type Shard struct {
	ID      string // "" while only its address is known
	Address string
	Read    bigfleetv1alpha1connect.ShardReadClient
	Admin   bigfleetv1alpha1connect.ShardAdminClient
}

// Label names the shard for people.
func (s Shard) Label() string {
	if s.ID == "" {
		return s.Address
	}
	return s.ID
}

// Direct says whether one shard is asked by address, without a coordinator.
func (f *Fleet) Direct() bool {
	_, _, err := net.SplitHostPort(f.cfg.Shard)
	return err == nil
}

// Provider is one provider that can be asked.
type Provider struct {
	Machines bigfleetv1alpha1connect.CapacityProviderClient
	Admin    bigfleetv1alpha1connect.ProviderAdminClient
}

// Provider reaches the provider at an address.
func (f *Fleet) Provider(address string) (Provider, error) {
	c, err := f.client(address)
	if err != nil {
		return Provider{}, err
	}
	return Provider{
		Machines: rpc.Stub(c, bigfleetv1alpha1connect.NewCapacityProviderClient),
		Admin:    rpc.Stub(c, bigfleetv1alpha1connect.NewProviderAdminClient),
	}, nil
}

// Shards finds the shards that --shard names: one by address without asking anybody, else by the coordinator's list.
func (f *Fleet) Shards(ctx context.Context) ([]Shard, error) {
	if f.Direct() {
		s, err := f.shard("", f.cfg.Shard)
		return []Shard{s}, err
	}
	entries, err := f.listed(ctx)
	if err != nil {
		return nil, err
	}
	var out []Shard
	for _, e := range entries {
		if f.cfg.Shard != "" && e.GetShardId() != f.cfg.Shard {
			continue
		}
		s, err := f.shard(e.GetShardId(), e.GetAddress())
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 0 && f.cfg.Shard != "" {
		return nil, &exit.Error{Code: exit.NotFound, Message: "shard " + f.cfg.Shard + " is not registered", Hint: "`bigfleet get shards` lists them; --shard also takes host:port"}
	}
	if len(out) == 0 {
		return nil, &exit.Error{Code: exit.NotFound, Message: "no shard is registered at the coordinator", Hint: "A new shard registers within seconds; or use --shard host:port"}
	}
	return out, nil
}

func (f *Fleet) shard(id, address string) (Shard, error) {
	c, err := f.client(address)
	if err != nil {
		return Shard{}, err
	}
	return Shard{
		ID: id, Address: address,
		Read:  rpc.Stub(c, bigfleetv1alpha1connect.NewShardReadClient),
		Admin: rpc.Stub(c, bigfleetv1alpha1connect.NewShardAdminClient),
	}, nil
}

func (f *Fleet) listed(ctx context.Context) ([]*bigfleetv1alpha1.ShardRegistryEntry, error) {
	var out []*bigfleetv1alpha1.ShardRegistryEntry
	err := f.Leader(ctx, "listing shards", func(ctx context.Context, c Coordinator) error {
		answer, err := c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
		if err == nil {
			out = answer.Msg.GetShards()
		}
		return err
	})
	return out, err
}

// Each asks every shard at once, each call bounded by --timeout, and returns the answers in the order of shards, nil where one failed, and one error that
// names those that failed.
func Each[T any](ctx context.Context, f *Fleet, shards []Shard, what string, ask func(context.Context, Shard) (T, error)) ([]*T, error) {
	answers, errs := make([]*T, len(shards)), make([]error, len(shards))
	var all sync.WaitGroup
	answered := make([]atomic.Bool, len(shards))
	defer f.waits(func() string {
		var silent []string
		for i := range answered {
			if !answered[i].Load() {
				silent = append(silent, shards[i].Label())
			}
		}
		return what + " is taking a while: still waiting for " + strings.Join(silent, ", ") + " …"
	})()
	for i, s := range shards {
		all.Go(func() {
			defer answered[i].Store(true)
			got, err := ask(eachCall(ctx, f.cfg.Timeout), s)
			if err != nil {
				errs[i] = exit.Of(what+" of "+s.Label(), err)
				return
			}
			answers[i] = &got
		})
	}
	all.Wait()
	return answers, partial(shards, errs)
}

// partial is nil, the one error, a list of the shards that did not answer, or what those say that refused: an answer too.
func partial(shards []Shard, errs []error) error {
	var silent, refused []string
	var first, no error // of those that are silent, and of those that refused
	for i, err := range errs {
		switch {
		case err == nil:
		case exit.CodeOf(err) == exit.Unreachable:
			silent, first = append(silent, shards[i].Label()), cmp.Or(first, err)
		default:
			refused, no = append(refused, err.Error()), cmp.Or(no, err)
		}
	}
	all := errors.Join(errs...)
	switch {
	case all == nil:
		return nil
	case len(silent)+len(refused) == 1 && (len(shards) == 1 || len(refused) == 1):
		return cmp.Or(first, no)
	case len(refused) == 0:
		return &exit.Error{Code: exit.Unreachable, Reason: "partial", Message: "no answer from " + strings.Join(silent, ", "), Hint: first.Error(), Err: all}
	case len(silent) == 0:
		return &exit.Error{Code: exit.CodeOf(no), Message: strings.Join(refused, "; "), Err: all}
	}
	return &exit.Error{Code: exit.Unreachable, Reason: "partial", Message: "no answer from " + strings.Join(silent, ", ") + "; " + strings.Join(refused, "; "), Hint: first.Error(), Err: all}
}

// Unanswered names a part that did not answer.
func Unanswered(what string, err error) error { return exit.Of("reading "+what, err) }

package coordclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

const (
	// messageBytesMax bounds messages in both directions (COORD-2).
	messageBytesMax = 256 << 20
	// AttemptTimeout bounds one attempt of a unary call.
	AttemptTimeout = 2 * time.Second
	backoffMin     = 50 * time.Millisecond
	backoffMax     = time.Second
	// laterMax bounds the wait that a replica may ask for: the report interval of shards.
	laterMax = 10 * time.Second
	// hintsMax bounds how often one round follows hints, so that two replicas that name each other end in a backoff.
	hintsMax = 4
	// connectionKept is how long a connection to a replica that does not lead is used again, where there are others.
	connectionKept = 5 * time.Second
	// slowKept is the same for one that did not answer in time, since it was made: longer than a dial may take, 5 s.
	slowKept = 10 * time.Second
	// waitsMax bounds how often one round waits for a leader that is about to open, or has too much to do.
	waitsMax = 20
)

// Config of a Client.
type Config struct {
	// Addrs are host:port of one or more replicas, or of a name that resolves to all of them. Required.
	Addrs []string

	Identity *identity.Source // nil means plaintext
	// AnyServer accepts a server that is not a coordinator (--verify-peer-identity=false).
	AnyServer bool

	// ClusterUUID is the pinned identity of the group and Term the highest fencing term seen from it; empty and 0 for
	// a first contact.
	ClusterUUID string
	Term        int64
	// OnPin hears of each new pin and of each higher term, before the answer that carried it is returned. An error refuses
	// the answer: a shard stores both before it obeys.
	OnPin func(uuid string, term int64) error

	Log    *slog.Logger         // nil means no log lines
	Tracer trace.TracerProvider // nil means no traces
	Meter  metric.MeterProvider // nil means no metrics

	// Resolve replaces the resolver: all addresses of a host name. nil means the system's.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Dial replaces the network. nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// AttemptTimeout replaces the constant of the same name where 0 is not given.
	AttemptTimeout time.Duration
}

// Target is one replica that is asked.
type Target struct {
	Addr        string // as configured or hinted, for messages
	Coordinator api.CoordinatorClient
	Admin       api.CoordinatorAdminClient
}

// Client finds the leader. Safe for concurrent use.
type Client struct {
	config Config

	mu     sync.Mutex
	conns  map[endpoint]*conn
	leader endpoint // last one that answered as leader; zero: unknown
	hint   string   // address the last NotLeader named; "": none
	pin    string
	term   int64
}

// endpoint is one way to one replica: the name serves TLS, the address is dialled.
type endpoint struct{ name, addr string }

type conn struct {
	rpc    *rpc.Client
	target Target
	made   time.Time
	known  bool // its group was compared with the pin
}

// LineageError means that a replica belongs to another group than the pinned one. It is refused; the pin stays.
type LineageError struct{ Addr, Pinned, Got string }

func (e *LineageError) Error() string {
	return fmt.Sprintf("the coordinator at %s belongs to group %s, but this process expects group %s: correct the address, or forget the pinned group", e.Addr, e.Got, e.Pinned)
}

// StaleTermError is an answer to a report of a leader that is none any more: its term is below one that was seen from the
// same group. Nothing of it may be used (COORD-7.12).
type StaleTermError struct {
	Addr      string
	Seen, Got int64
}

func (e *StaleTermError) Error() string {
	return fmt.Sprintf("the coordinator at %s answered with term %d, but term %d was seen: it no longer leads", e.Addr, e.Got, e.Seen)
}

// NoLeaderError means that no replica answered as leader before the deadline.
type NoLeaderError struct{ Last error }

func (e *NoLeaderError) Error() string {
	if e.Last == nil {
		return "no coordinator answered as leader"
	}
	return "no coordinator answered as leader: " + e.Last.Error()
}

// Unwrap returns the last failure.
func (e *NoLeaderError) Unwrap() error { return e.Last }

// New checks the configuration. It dials nothing.
func New(c Config) (*Client, error) {
	if len(c.Addrs) == 0 {
		return nil, errors.New("leader.Config.Addrs is required")
	}
	for _, addr := range c.Addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("coordinator address %q: want host:port: %w", addr, err)
		}
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = AttemptTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{config: c, conns: map[endpoint]*conn{}, pin: c.ClusterUUID, term: c.Term}, nil
}

// Close drops every idle connection. Calls in flight finish.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, conn := range c.conns {
		conn.rpc.CloseIdle()
		delete(c.conns, at)
	}
}

// Pinned returns the pinned identity of the group and the highest term seen from it.
func (c *Client) Pinned() (uuid string, term int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pin, c.term
}

// Leader returns the address of the replica that last answered as leader, or "".
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader.name
}

// Accept checks one answer's group against the pin and moves the pin (COORD-6.3.4). An empty uuid comes from an older
// coordinator and is accepted as long as nothing is pinned.
func (c *Client) Accept(addr, uuid string, previous []string, term int64) error {
	c.mu.Lock()
	pin, seen := c.pin, c.term
	c.mu.Unlock()
	switch {
	case uuid == "" && pin == "":
		return nil
	case uuid == pin && term <= seen:
		return nil
	case uuid == pin, pin == "":
	case uuid == "" || term <= seen || !contains(previous, pin):
		return &LineageError{Addr: addr, Pinned: pin, Got: uuid}
	}
	if c.config.OnPin != nil {
		if err := c.config.OnPin(uuid, term); err != nil {
			return fmt.Errorf("the identity of the group could not be stored: %w", err)
		}
	}
	c.mu.Lock()
	c.pin, c.term = uuid, max(term, c.term)
	c.mu.Unlock()
	if uuid != pin {
		c.config.Log.Info("coordinator group pinned", "uuid", uuid, "before", pin, "term", term)
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Report makes one ReportShard call and returns the leader's answer, with its group already checked.
func (c *Client) Report(ctx context.Context, report *pb.ShardReport) (*pb.ReportAck, error) {
	var ack *pb.ReportAck
	err := c.Do(ctx, func(ctx context.Context, t Target) error {
		answer, err := t.Coordinator.ReportShard(ctx, connect.NewRequest(report))
		if err != nil {
			return err
		}
		if err := c.Accept(t.Addr, answer.Msg.GetClusterUuid(), answer.Msg.GetPreviousUuids(), answer.Msg.GetCoordinatorTerm()); err != nil {
			return err
		}
		if _, seen := c.Pinned(); answer.Msg.GetCoordinatorTerm() != 0 && answer.Msg.GetCoordinatorTerm() < seen {
			return &StaleTermError{Addr: t.Addr, Seen: seen, Got: answer.Msg.GetCoordinatorTerm()}
		}
		ack = answer.Msg
		return nil
	}, Unverified())
	return ack, err
}

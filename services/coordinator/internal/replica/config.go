package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/peernet"
)

// Defaults and bounds of COORD-2.
const (
	ApplyTimeout      = 5 * time.Second
	ConfirmTimeout    = time.Second
	OutstandingMax    = 256 // proposals (COORD-4.9)
	transportTimeout  = 5 * time.Second
	snapshotInterval  = 30 * time.Second
	snapshotThreshold = 1024
	trailingLogs      = 10_240
	appendEntriesMax  = 256 // one batch is one fsync; as many as may be outstanding
	logCacheEntries   = 1024
	probeTimeout      = 2 * time.Second
	openRetry         = 20 * time.Millisecond // hint to clients of a leader that is about to open (COORD-6.1.2)
)

// Config of a Node.
type Config struct {
	NodeID        string       // required
	DataDir       string       // required
	RaftListener  net.Listener // required
	RaftAdvertise string       // required: stable name and port of the Raft transport
	RPCAdvertise  string       // required: stable name and port of the RPC server

	Identity    *identity.Source // nil means plaintext
	RaftMode    peernet.Mode
	AcceptAdmin bool
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error) // nil means TCP

	Heartbeat, Election, Lease, CommitTimeout time.Duration // 0 means 300, 300, 200 and 50 ms

	// Level is the highest feature level this replica supports; 0 means that of the binary. LevelMax holds the
	// replicated level back; 0 means Level.
	Level, LevelMax int32
	Build           string

	// Clock is the time that records of this proposer carry; nil means the machine's. Nothing is measured with it.
	Clock func() time.Time
	// BeforeSync is called before each fsync of the log and of votes; nil means nothing. A test makes disks slow with it.
	BeforeSync func()

	Tracer trace.TracerProvider // nil means no traces

	Log     *slog.Logger // required
	Metrics *metrics.Set // required
	// OnFatal hears once that the replica cannot continue: a store that failed, an entry it does not understand.
	OnFatal func(error)
	// OnApply hears what each entry changed, in log order, on every replica. It must not block.
	OnApply func(s *fleet.State, changes []fleet.Change)
	// OnReset hears that the state was replaced by a snapshot.
	OnReset func(s *fleet.State)
}

func (c *Config) check() error {
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("replica.Config."+what+" is required"))
		}
	}
	require(c.NodeID != "", "NodeID")
	require(c.DataDir != "", "DataDir")
	require(c.RaftListener != nil, "RaftListener")
	require(c.RaftAdvertise != "", "RaftAdvertise")
	require(c.RPCAdvertise != "", "RPCAdvertise")
	require(c.Log != nil, "Log")
	require(c.Metrics != nil, "Metrics")
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Heartbeat, 300 * time.Millisecond}, {&c.Election, 300 * time.Millisecond}, {&c.Lease, 200 * time.Millisecond}, {&c.CommitTimeout, 50 * time.Millisecond}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Level == 0 {
		c.Level = fleet.Level
	}
	if c.LevelMax == 0 || c.LevelMax > c.Level {
		c.LevelMax = c.Level
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	if c.OnApply == nil {
		c.OnApply = func(*fleet.State, []fleet.Change) {}
	}
	if c.OnReset == nil {
		c.OnReset = func(*fleet.State) {}
	}
	return errors.Join(errs...)
}

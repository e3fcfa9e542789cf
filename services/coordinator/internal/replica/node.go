package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/peernet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/store"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// Node is one member of the group.
type Node struct {
	config  Config
	dir     *store.Dir
	layer   *peernet.Layer
	network *transport
	raft    *raft.Raft
	started atomic.Pointer[raft.Raft] // for the logger, which Raft uses while it starts
	machine *machine
	logger  *logger

	uuid       atomic.Pointer[string] // identity of the group, from disk or learnt
	leadership atomic.Pointer[Leadership]
	fatal      sync.Once

	slots    chan struct{} // outstanding proposals
	batches  batches
	inFlight inFlightCalls
	verifier verifier
	stalls   stallDetector
	joins    joins
	contacts contacts

	departures  chan departure
	handingOver atomic.Bool

	ctx    context.Context
	cancel context.CancelFunc
	group  taskGroup
}

// Open opens the data directory and starts Raft on it. A directory without state waits to be bootstrapped or joined.
func Open(c Config) (*Node, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	n := &Node{config: c, slots: make(chan struct{}, OutstandingMax), departures: make(chan departure, 8)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	fatal := c.OnFatal
	n.config.OnFatal = func(err error) { n.fatal.Do(func() { fatal(err) }) }
	n.logger = &logger{slog: c.Log.With("node", c.NodeID), term: func() uint64 {
		if r := n.started.Load(); r != nil {
			return r.CurrentTerm()
		}
		return 0
	}}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *Node) open() error {
	var err error
	n.dir, err = store.Open(n.config.DataDir, store.Options{
		CheckState: checkState, Logger: n.logger,
		OnFailure:  func(err error) { n.stepDownAndStop(err) },
		BeforeSync: n.config.BeforeSync,
		OnSync:     func(d time.Duration) { n.config.Metrics.Fsync.Observe(d.Seconds()) },
	})
	if err != nil {
		return err
	}
	uuid, _ := n.dir.Stable.Get([]byte(store.ClusterUUIDKey)) // absent while there is no group
	n.setUUID(string(uuid))
	n.machine = &machine{config: &n.config, learn: n.learn}
	n.machine.last.uuid = string(uuid)
	n.machine.state.Store(&fleet.State{})
	if n.layer, err = peernet.Listen(peernet.Config{
		Listener: n.config.RaftListener, Advertise: n.config.RaftAdvertise, NodeID: n.config.NodeID, UUID: n.UUID, Expected: n.nodeAt,
		Identity: n.config.Identity, Mode: n.config.RaftMode, AcceptAdmin: n.config.AcceptAdmin, Dial: n.config.Dial, Log: n.config.Log,
		OnRefused: func(reason string) { n.config.Metrics.Handshakes.WithLabelValues(reason).Inc() },
		OnGone:    n.departed,
	}); err != nil {
		return err
	}
	n.network = &transport{calls: make(chan raft.RPC), behind: n.behind, admit: n.admit, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.layer, MaxPool: 3, Timeout: transportTimeout, Logger: n.logger, ServerAddressProvider: addresses{n},
	})}
	n.group.Go(func() { n.network.carry(n.ctx) })
	return n.startRaft()
}

func (n *Node) startRaft() error {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.config.NodeID)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = n.config.Heartbeat, n.config.Election, n.config.Lease, n.config.CommitTimeout
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = snapshotInterval, snapshotThreshold, trailingLogs
	c.MaxAppendEntries, c.ShutdownOnRemove, c.NoLegacyTelemetry = appendEntriesMax, false, true
	n.stalls.lease = n.config.Lease
	c.BatchApplyCh = true // a batch of proposals reaches Raft whole, and is one write
	c.Logger = n.logger
	leads := make(chan bool, 64)
	c.NotifyCh = leads
	cache, err := raft.NewLogCache(logCacheEntries, n.dir.Log)
	if err != nil {
		return err
	}
	if n.raft, err = raft.NewRaft(c, n.machine, cache, n.dir.Stable, n.dir.Snapshots, n.network); err != nil {
		return fmt.Errorf("starting Raft: %w", err)
	}
	n.started.Store(n.raft)
	n.group.Go(func() { n.watchLeadership(leads) })
	n.group.Go(n.watchContacts)
	n.group.Go(n.watchDepartures)
	n.group.Go(n.watchReplay)
	n.group.Go(n.watchStalls)
	return nil
}

// stepDownAndStop gives up leadership and the process: a replica whose disk fails must not lead (COORD-5.2). Raft steps
// down by itself when a write of the leader fails; the process ends, so that it cannot be elected again.
func (n *Node) stepDownAndStop(err error) {
	n.config.Log.Error("the replica stops: its disk failed", "err", err)
	n.config.OnFatal(err)
}

// addresses gives Raft the name of a server; the layer resolves it at each dial (COORD-13.1). The table of peers may be
// newer than the configuration that Raft works with.
type addresses struct{ n *Node }

func (a addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if p := a.n.State().Peer(string(id)); p.GetRaftAddress() != "" && !p.GetRemoved() {
		return raft.ServerAddress(p.GetRaftAddress()), nil
	}
	if r := a.n.started.Load(); r != nil {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			if s.ID == id {
				return s.Address, nil
			}
		}
	}
	return "", errors.New("neither in the table of peers nor in the configuration")
}

// nodeAt is the node that the table of peers has for a Raft address.
func (n *Node) nodeAt(addr string) string {
	for p := range n.State().Peers() {
		if p.GetRaftAddress() == addr && !p.GetRemoved() {
			return p.GetNodeId()
		}
	}
	return ""
}

// State is the newest state that this replica applied.
func (n *Node) State() *fleet.State { return n.machine.state.Load() }

// UUID is the identity of the group, or "" while there is none.
func (n *Node) UUID() string { return *n.uuid.Load() }

func (n *Node) setUUID(uuid string) { n.uuid.Store(&uuid) }

// learn stores the identity of the group. A replica never changes groups.
func (n *Node) learn(uuid string) error {
	known := n.UUID()
	if known == uuid {
		return nil
	}
	if known != "" {
		return fmt.Errorf("this replica belongs to group %s, but its log belongs to group %s", known, uuid)
	}
	if err := n.dir.Stable.Set([]byte(store.ClusterUUIDKey), []byte(uuid)); err != nil {
		return err
	}
	n.setUUID(uuid)
	n.config.Log.Info("the group is known", "uuid", uuid)
	return nil
}

// Leader says who leads, as this replica sees it. Fields that are not known are empty.
func (n *Node) Leader() *v1.LeaderHint {
	_, id := n.raft.LeaderWithID()
	s := n.State()
	hint := &v1.LeaderHint{LeaderId: string(id), CoordinatorTerm: s.Meta().GetFencingTerm(), ClusterUuid: n.UUID()}
	if string(id) == n.config.NodeID {
		hint.LeaderAddress = n.config.RPCAdvertise
	} else if id != "" {
		hint.LeaderAddress = s.Peer(string(id)).GetRpcAddress()
	}
	for p := range s.Peers() {
		if !p.GetRemoved() && p.GetRpcAddress() != "" {
			hint.PeerAddresses = append(hint.PeerAddresses, p.GetRpcAddress())
		}
	}
	return hint
}

// HasLeader reports whether this replica knows a leader.
func (n *Node) HasLeader() bool {
	_, id := n.raft.LeaderWithID()
	return id != ""
}

// Role is the role of the replica as GetCoordinatorStatus shows it.
func (n *Node) Role() string {
	switch {
	case n.Leadership() != nil:
		return "leader"
	case n.UUID() == "" && len(n.Servers()) == 0:
		return "starting"
	}
	for _, s := range n.Servers() {
		if string(s.ID) == n.config.NodeID && s.Suffrage != raft.Voter {
			return "nonvoter"
		}
	}
	switch n.raft.State() {
	case raft.Candidate:
		return "candidate"
	case raft.Leader:
		return "candidate" // it won and has not opened yet
	default:
		return "follower"
	}
}

// Servers is the newest configuration that this replica knows, committed or not.
func (n *Node) Servers() []raft.Server {
	future := n.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// Term, CommitIndex and AppliedIndex are Raft's.
func (n *Node) Term() uint64         { return n.raft.CurrentTerm() }
func (n *Node) CommitIndex() uint64  { return n.raft.CommitIndex() }
func (n *Node) AppliedIndex() uint64 { return n.raft.AppliedIndex() }

// DiskBytes is the size of the data directory.
func (n *Node) DiskBytes() int64 { return n.dir.Bytes() }

// HasState reports whether there is Raft state on disk.
func (n *Node) HasState() bool {
	has, err := n.dir.HasState()
	return has || err != nil
}

// Probe asks whether a node answers at a Raft address.
func (n *Node) Probe(ctx context.Context, addr, node string) error {
	return n.layer.Probe(ctx, addr, node)
}

// Close stops Raft, then the transport, so that no peer stays connected to a node that does not answer (COORD-6.4.2).
func (n *Node) Close() error { return n.close() }

func (n *Node) close() error {
	n.cancel()
	var errs []error
	if n.raft != nil {
		n.inFlight.close()
		errs = append(errs, n.raft.Shutdown().Error())
	}
	switch {
	case n.network != nil:
		n.network.end()
		errs = append(errs, n.network.Close())
	case n.layer != nil:
		errs = append(errs, n.layer.Close())
	default:
		_ = n.config.RaftListener.Close()
	}
	n.group.close()
	if r := n.leadership.Swap(nil); r != nil {
		r.end()
	}
	if n.dir != nil {
		errs = append(errs, n.dir.Close())
	}
	return errors.Join(dropClosed(errs)...)
}

func dropClosed(errs []error) []error {
	for i, err := range errs {
		if errors.Is(err, net.ErrClosed) {
			errs[i] = nil
		}
	}
	return errs
}

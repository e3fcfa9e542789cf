package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

const (
	joinTimeout    = 10 * time.Second
	joinBackoffMin = time.Second
	joinBackoffMax = 15 * time.Second
	// catchingUp is how often a non-voter asks to be promoted.
	catchingUp = 300 * time.Millisecond
	// slowCadence is how often a member makes sure that it still is one.
	slowCadence = 60 * time.Second
	// lookCadence is how often the cheap local check runs.
	lookCadence = 500 * time.Millisecond
	// leaderless is how long a member waits for an election before it asks others about its membership.
	leaderless = 5 * time.Second
)

// Membership says how a replica finds its group.
type Membership struct {
	// Peers are the RPC addresses of the replicas, the first one's first, with their node ids where known.
	Peers []Peer
	// JoinAddr is one name that resolves to all replicas; may be empty.
	JoinAddr string
	// Bootstrap allows this replica to begin a group, if it is the first of the peers or has ordinal 0.
	Bootstrap bool
	// Expect is how many replicas there will be, this one included.
	Expect int
	// Force begins a group without asking anybody.
	Force bool
}

// Peer is one replica as configured.
type Peer struct{ ID, Addr string }

// ParsePeer reads "id=host:port" or "host:port", where the id is the first label of the host.
func ParsePeer(s string) (Peer, error) {
	id, addr, named := strings.Cut(s, "=")
	if !named {
		id, addr = "", s
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return Peer{}, fmt.Errorf("peer %q: want host:port or id=host:port: %w", s, err)
	}
	if !named && net.ParseIP(host) == nil {
		id, _, _ = strings.Cut(host, ".")
	}
	return Peer{ID: id, Addr: addr}, nil
}

// mayBootstrap reports whether this replica is the one that begins a group (COORD-13.3).
func (m *Membership) mayBootstrap(node string) bool {
	if m.Force || !m.Bootstrap {
		return m.Force
	}
	if len(m.Peers) > 0 && m.Peers[0].ID != "" {
		return m.Peers[0].ID == node
	}
	if i := strings.LastIndexByte(node, '-'); i >= 0 && isNumber(node[i+1:]) {
		return node[i+1:] == "0" || m.Expect <= 1 && len(m.Peers) == 0
	}
	return len(m.Peers) == 0
}

func isNumber(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// RunMembership makes this replica a member and keeps it one, until ctx ends (COORD-13.6).
func (n *Node) RunMembership(ctx context.Context, m Membership) error {
	backoff := joinBackoffMin
	asked := time.Time{}
	var without time.Time // since when no leader is known
	for {
		wait := lookCadence
		if n.HasLeader() {
			without = time.Time{}
		} else if without.IsZero() {
			without = time.Now()
		}
		member := n.isVoter()
		switch {
		case member && n.HasLeader() && time.Since(asked) < slowCadence:
			backoff = joinBackoffMin
		case member && !n.HasLeader() && time.Since(without) < leaderless:
		case n.Leadership() != nil:
			n.leadAtOwnName(ctx)
			asked = time.Now()
		default:
			if !member && m.mayBootstrap(n.config.NodeID) && n.tryBootstrap(ctx, &m) {
				continue
			}
			asked = time.Now()
			switch suffrage, err := n.askToJoin(ctx, &m); {
			case err == nil && suffrage == "voter":
				n.config.Metrics.Joins.WithLabelValues("voter").Inc()
			case err == nil:
				n.config.Metrics.Joins.WithLabelValues(suffrage).Inc()
				wait = catchingUp
			default:
				n.config.Metrics.Joins.WithLabelValues(resultOf(err)).Inc()
				n.config.Log.Info("this replica is not a voter of a group with a leader yet", "err", err)
				wait = mathrand.N(backoff) + time.Millisecond
				backoff = min(2*backoff, joinBackoffMax)
				if member {
					wait = max(wait, lookCadence)
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func resultOf(err error) string {
	var none *coordclient.NoLeaderError
	if errors.As(err, &none) {
		return "no-leader"
	}
	return connect.CodeOf(err).String()
}

// isVoter reports whether the newest configuration has this node as a voter at its current name.
func (n *Node) isVoter() bool {
	s := n.server(n.config.NodeID)
	return s != nil && s.Suffrage == raft.Voter && string(s.Address) == n.config.RaftAdvertise
}

// leadAtOwnName corrects the configuration when the leader's own name changed.
func (n *Node) leadAtOwnName(ctx context.Context) {
	if n.isVoter() {
		return
	}
	err := n.raft.AddVoter(raft.ServerID(n.config.NodeID), raft.ServerAddress(n.config.RaftAdvertise), 0, ApplyTimeout).Error()
	if err != nil && ctx.Err() == nil {
		n.config.Log.Warn("the configuration still has an old name of this leader", "err", err)
	}
}

// askToJoin finds the leader and asks it.
func (n *Node) askToJoin(ctx context.Context, m *Membership) (string, error) {
	addrs := n.candidates(m)
	if len(addrs) == 0 {
		return "", &coordclient.NoLeaderError{Last: errors.New("no other replica is known: give --peers or --join-addr")}
	}
	c := coordclient.Config{Addrs: addrs, Identity: n.config.Identity, ClusterUUID: n.UUID(), Term: n.State().Meta().GetFencingTerm(),
		Log: n.config.Log, Dial: n.config.Dial}
	if c.Dial != nil {
		c.Resolve = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // names are Dial's
	}
	client, err := coordclient.New(c)
	if err != nil {
		return "", err
	}
	defer client.Close()
	patience := joinTimeout
	if n.UUID() == "" && m.mayBootstrap(n.config.NodeID) {
		patience = joinBackoffMin // there may be no group yet, and no other replica will begin one
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var answer *v1.JoinRaftClusterResponse
	err = client.Do(ctx, func(ctx context.Context, t coordclient.Target) error {
		resp, err := t.Coordinator.JoinRaftCluster(ctx, connect.NewRequest(&v1.JoinRaftClusterRequest{
			NodeId: n.config.NodeID, RaftAddress: n.config.RaftAdvertise, RpcAddress: n.config.RPCAdvertise, ClusterUuid: n.UUID(),
			FeatureLevel: n.config.Level, AppliedIndex: n.raft.AppliedIndex(), Build: n.config.Build,
		}))
		if err != nil {
			return err
		}
		answer = resp.Msg
		return nil
	}, coordclient.Unbounded())
	if err != nil {
		return "", err
	}
	if uuid := answer.GetClusterUuid(); uuid != "" && n.UUID() == "" {
		// From now on only this group may speak to this replica (COORD-13.10).
		if err := n.learn(uuid); err != nil {
			return "", err
		}
	}
	return answer.GetSuffrage(), nil
}

// candidates are the RPC addresses of all other replicas that are configured or known from the log.
func (n *Node) candidates(m *Membership) []string {
	var out []string
	add := func(id, addr string) {
		if addr != "" && id != n.config.NodeID && addr != n.config.RPCAdvertise && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	for _, p := range m.Peers {
		add(p.ID, p.Addr)
	}
	add("", m.JoinAddr)
	for p := range n.State().Peers() {
		if !p.GetRemoved() {
			add(p.GetNodeId(), p.GetRpcAddress())
		}
	}
	return out
}

// tryBootstrap begins a group if every other replica said that there is none (COORD-13.3, 13.4). It reports whether
// it did.
func (n *Node) tryBootstrap(ctx context.Context, m *Membership) bool {
	if n.HasState() || n.UUID() != "" || len(n.Servers()) > 0 {
		return false
	}
	if m.Force {
		n.config.Log.Warn("starting a new group without asking the other replicas: --force-bootstrap")
	} else if others := max(m.Expect, len(m.Peers)) - 1; others > 0 {
		empty, found := n.askAround(ctx, m)
		if found != "" {
			n.config.Log.Info("another replica has state: joining instead of beginning a new group", "node", found)
			return false
		}
		if empty < others {
			n.config.Log.Info("waiting for the other replicas before a group is started", "answered", empty, "expected", others)
			return false
		}
	}
	err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(n.config.NodeID), Address: raft.ServerAddress(n.config.RaftAdvertise)}}}).Error()
	if err != nil {
		n.config.Log.Error("a group could not be started", "err", err)
		return false
	}
	n.config.Log.Info("a new group is started")
	return true
}

// askAround asks every other replica what it has. empty counts different nodes without state and group; found names one
// that has either.
func (n *Node) askAround(ctx context.Context, m *Membership) (empty int, found string) {
	nodes := map[string]bool{}
	for _, addr := range n.candidates(m) {
		for _, at := range n.addressesOf(ctx, addr) {
			status, err := n.ask(ctx, addr, at)
			if err != nil || status.GetNodeId() == n.config.NodeID || status.GetNodeId() == "" {
				continue
			}
			if status.GetHasState() || status.GetClusterUuid() != "" {
				return 0, status.GetNodeId()
			}
			nodes[status.GetNodeId()] = true
		}
	}
	return len(nodes), ""
}

// addressesOf resolves a name to all its addresses: one name may stand for all replicas.
func (n *Node) addressesOf(ctx context.Context, addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || n.config.Dial != nil || net.ParseIP(host) != nil {
		return []string{addr}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// ask calls GetCoordinatorStatus at one address of a name.
func (n *Node) ask(ctx context.Context, name, at string) (*v1.GetCoordinatorStatusResponse, error) {
	dial := n.config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: name, Limits: rpc.ReadClientLimits(), Identity: n.config.Identity,
		Server: identity.Accept(identity.Coordinator, identity.Admin), DialTimeout: probeTimeout,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, at) }})
	if err != nil {
		return nil, err
	}
	defer client.CloseIdle()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := rpc.Stub(client, api.NewCoordinatorAdminClient).GetCoordinatorStatus(ctx, connect.NewRequest(&v1.GetCoordinatorStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// foundingOperations give a new group its identity (COORD-13.5).
func (n *Node) foundingOperations() []*pb.Operation {
	if n.State().Meta().GetClusterUuid() != "" {
		return nil
	}
	return []*pb.Operation{{Kind: &pb.Operation_InitGroup{InitGroup: &pb.InitGroup{ClusterUuid: NewUUID(), FeatureLevel: n.config.LevelMax}}}}
}

func (n *Node) ownPeer() *pb.Peer {
	return &pb.Peer{NodeId: n.config.NodeID, RaftAddress: n.config.RaftAdvertise, RpcAddress: n.config.RPCAdvertise,
		FeatureLevelMax: n.config.Level, Build: n.config.Build}
}

// NewUUID makes a random UUID (RFC 9562, version 4).
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

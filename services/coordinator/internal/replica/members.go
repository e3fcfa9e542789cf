package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// joins remembers, per joiner, the commit index at its previous call: it is promoted when it applied that much.
type joins struct {
	mu     sync.Mutex
	commit map[string]uint64
}

func refuse(kind fleet.Kind, reason, hint, format string, args ...any) *fleet.Refusal {
	return &fleet.Refusal{Kind: kind, Reason: reason, Say: fmt.Sprintf(format, args...), Hint: hint}
}

// ErrUnreachable means that the leader could not reach a joiner's Raft address.
type ErrUnreachable struct{ Err error }

func (e *ErrUnreachable) Error() string { return e.Err.Error() }
func (e *ErrUnreachable) Unwrap() error { return e.Err }

// Join adds a replica to the group, or changes its address (COORD-13.7 to 13.9). A new one becomes a non-voter first:
// an unreachable second voter would make a quorum of two that cannot be met. It returns the replica's suffrage.
func (n *Node) Join(ctx context.Context, req *v1.JoinRaftClusterRequest) (string, error) {
	if err := n.mayJoin(ctx, req); err != nil {
		return "", err
	}
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := n.layer.Probe(probe, req.GetRaftAddress(), req.GetNodeId()); err != nil {
		return "", &ErrUnreachable{fmt.Errorf("the Raft address %s of node %q cannot be reached from the leader: %w", req.GetRaftAddress(), req.GetNodeId(), err)}
	}
	if err := n.notePeer(ctx, req); err != nil {
		return "", err
	}
	id, addr := raft.ServerID(req.GetNodeId()), raft.ServerAddress(req.GetRaftAddress())
	have := n.server(req.GetNodeId())
	switch {
	case have == nil, have.Suffrage != raft.Voter && have.Address != addr:
		return "nonvoter", configurationError(n.raft.AddNonvoter(id, addr, 0, ApplyTimeout).Error())
	case have.Suffrage == raft.Voter && req.GetClusterUuid() == "":
		// It lost its disk, and with it what it voted for and what it acknowledged: no vote before it caught up again.
		n.joins.forget(req.GetNodeId())
		return "nonvoter", configurationError(n.demote(id, have.Address, addr))
	case have.Suffrage == raft.Voter && have.Address != addr:
		return "voter", configurationError(n.raft.AddVoter(id, addr, 0, ApplyTimeout).Error())
	case have.Suffrage == raft.Voter:
		return "voter", nil
	case !n.caughtUp(req):
		return "nonvoter", nil
	}
	return "voter", configurationError(n.raft.AddVoter(id, addr, 0, ApplyTimeout).Error())
}

// demote makes a voter a non-voter, at a new address where it has one.
func (n *Node) demote(id raft.ServerID, from, to raft.ServerAddress) error {
	if err := n.raft.DemoteVoter(id, 0, ApplyTimeout).Error(); err != nil || from == to {
		return err
	}
	return n.raft.AddNonvoter(id, to, 0, ApplyTimeout).Error()
}

// forget drops what was noted of a joiner.
func (j *joins) forget(node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.commit, node)
}

func configurationError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrNotLeader
	}
	return errors.Join(ErrOutcomeUnknown, err)
}

// mayJoin holds the refusals of COORD-13.7.
func (n *Node) mayJoin(ctx context.Context, req *v1.JoinRaftClusterRequest) error {
	s := n.State()
	switch {
	case req.GetClusterUuid() != "" && req.GetClusterUuid() != n.UUID():
		return refuse(fleet.Refused, "other-group", "start it with an empty data directory, or point it at its own group",
			"node %q belongs to group %s and this is group %s", req.GetNodeId(), req.GetClusterUuid(), n.UUID())
	case req.GetFeatureLevel() <= 0:
		return refuse(fleet.Invalid, "no-feature-level", "", "node %q states no feature level: it is another implementation and must not share a log", req.GetNodeId())
	case req.GetFeatureLevel() < s.Meta().GetFeatureLevel():
		return refuse(fleet.Refused, "feature-level", "start a newer version of it", "node %q supports feature level %d and the group has %d",
			req.GetNodeId(), req.GetFeatureLevel(), s.Meta().GetFeatureLevel())
	case s.Peer(req.GetNodeId()).GetRemoved():
		return refuse(fleet.Refused, "peer-removed", "readmit it first", "node %q was removed from the group", req.GetNodeId())
	}
	for _, server := range n.Servers() {
		other := string(server.Address) != req.GetRaftAddress()
		switch {
		case string(server.ID) != req.GetNodeId() && !other:
			return refuse(fleet.Refused, "address-in-use", "remove that node first", "the Raft address %s belongs to node %q", req.GetRaftAddress(), server.ID)
		case string(server.ID) == req.GetNodeId() && other:
			probe, cancel := context.WithTimeout(ctx, probeTimeout)
			who, err := n.layer.Who(probe, string(server.Address))
			cancel()
			if err == nil && who == req.GetNodeId() {
				return refuse(fleet.Refused, "id-in-use", "give it another id", "another running node has the id %q, at %s", req.GetNodeId(), server.Address)
			}
		}
	}
	return nil
}

// notePeer commits what the table of peers does not say yet.
func (n *Node) notePeer(ctx context.Context, req *v1.JoinRaftClusterRequest) error {
	peer := &pb.Peer{NodeId: req.GetNodeId(), RaftAddress: req.GetRaftAddress(), RpcAddress: req.GetRpcAddress(),
		FeatureLevelMax: req.GetFeatureLevel(), Build: req.GetBuild()}
	if proto.Equal(n.State().Peer(req.GetNodeId()), peer) {
		return nil
	}
	_, err := n.commit(ctx, &pb.Operation{Kind: &pb.Operation_UpsertPeer{UpsertPeer: &pb.UpsertPeer{Peer: peer}}})
	return err
}

func (n *Node) caughtUp(req *v1.JoinRaftClusterRequest) bool {
	n.joins.mu.Lock()
	defer n.joins.mu.Unlock()
	if n.joins.commit == nil {
		n.joins.commit = map[string]uint64{}
	}
	before := n.joins.commit[req.GetNodeId()]
	n.joins.commit[req.GetNodeId()] = n.raft.CommitIndex()
	return before > 0 && req.GetAppliedIndex() >= before
}

func (n *Node) server(id string) *raft.Server {
	for _, s := range n.Servers() {
		if string(s.ID) == id {
			return &s
		}
	}
	return nil
}

// Reachable reports for each voter whether it answers now. This node does.
func (n *Node) Reachable(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, s := range n.Servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		group.Go(func() {
			ok := string(s.ID) == n.config.NodeID
			if !ok {
				ctx, cancel := context.WithTimeout(ctx, probeTimeout)
				defer cancel()
				ok = n.layer.Probe(ctx, string(s.Address), string(s.ID)) == nil
			}
			mu.Lock()
			defer mu.Unlock()
			out[string(s.ID)] = ok
		})
	}
	group.Wait()
	return out
}

// CheckRemoval reports why a replica may not be removed now, or nil.
func (n *Node) CheckRemoval(ctx context.Context, id string, force bool) error {
	if n.server(id) == nil && n.State().Peer(id) == nil {
		return refuse(fleet.NotFound, "unknown-peer", "list the peers and use one of their ids", "there is no node %q", id)
	}
	if force || n.server(id) == nil {
		return nil
	}
	reach := n.Reachable(ctx)
	delete(reach, id)
	up := 0
	for _, ok := range reach {
		if ok {
			up++
		}
	}
	if up < len(reach)/2+1 {
		r := refuse(fleet.Refused, "quorum", "bring the others back first, or force the removal", "without node %q only %d of %d voters would be reachable", id, up, len(reach))
		r.Force = true
		return r
	}
	return nil
}

// Remove takes a replica out of the group and out of the table of peers (COORD-13.12). The leader first hands over; the
// caller asks the next leader then.
func (n *Node) Remove(ctx context.Context, id string, force bool, audit *pb.Operation) error {
	if err := n.CheckRemoval(ctx, id, force); err != nil {
		return err
	}
	if id == n.config.NodeID {
		if err := n.Transfer(ctx, ""); err != nil {
			return err
		}
		return ErrNotLeader
	}
	if n.server(id) != nil {
		if err := configurationError(n.raft.RemoveServer(raft.ServerID(id), 0, ApplyTimeout).Error()); err != nil {
			return err
		}
	}
	got, err := n.Propose(ctx, Envelope(actorOf(ctx, n), &pb.Operation{Kind: &pb.Operation_RemovePeer{RemovePeer: &pb.RemovePeer{NodeId: id}}}, audit), false)
	if err != nil {
		return err
	}
	if r := got.Err(); r != nil {
		return r
	}
	return nil
}

type actorKey struct{}

// WithActor names who asked for what a call commits.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context, n *Node) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok {
		return actor
	}
	return n.Actor()
}

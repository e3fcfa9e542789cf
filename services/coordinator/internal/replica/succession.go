package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// successionStep is what each voter waits for those before it, so that two do not split the votes: several round trips
// and a write of the vote.
const successionStep = 150 * time.Millisecond

// departure is a process that closed all its connections to this one.
type departure struct{ node, instance string }

// errBehind is why a replica does not take leadership that is handed to it.
var errBehind = errors.New("this replica is still applying the log: choose another one, or retry later")

// transport is Raft's transport with a way to tell Raft from inside what another replica could tell it.
type transport struct {
	*raft.NetworkTransport
	calls  chan raft.RPC
	behind func() bool    // a replica that would lead long before it could serve
	admit  func(raft.RPC) // sees each call first

	handle func(raft.RPC) // Raft's way with heartbeats
	beats  sync.RWMutex   // held while one is handled
	ended  bool
}

// SetHeartbeatHandler implements raft.Transport.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.handle = handle
	t.NetworkTransport.SetHeartbeatHandler(t.heartbeat)
}

// heartbeat runs on the goroutine of a connection, for which Raft does not wait when it shuts down. It may write a term to the
// store, which must not be closed before.
func (t *transport) heartbeat(call raft.RPC) {
	t.beats.RLock()
	defer t.beats.RUnlock()
	if t.ended {
		call.Respond(nil, raft.ErrTransportShutdown)
		return
	}
	t.handle(call)
}

// end waits for the heartbeats under way and handles no more of them.
func (t *transport) end() {
	t.beats.Lock()
	defer t.beats.Unlock()
	t.ended = true
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.calls }

// carry passes on what other replicas send, but for leadership that comes too early: the old leader continues meanwhile.
func (t *transport) carry(ctx context.Context) {
	for {
		select {
		case call := <-t.NetworkTransport.Consumer():
			if _, handed := call.Command.(*raft.TimeoutNowRequest); handed && t.behind() {
				call.Respond(&raft.TimeoutNowResponse{}, errBehind)
				continue
			}
			t.admit(call)
			select {
			case t.calls <- call:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// behind reports whether this replica has more to apply than may be under way: after its start it applies everything
// since its newest snapshot, and an election that it won meanwhile would open when that is done. Raft's own applied index
// counts what is handed to the machine.
func (n *Node) behind() bool {
	r := n.started.Load()
	return r == nil || r.LastIndex() > max(n.State().Index(), n.machine.configured.Load())+OutstandingMax
}

// departed is the layer's hook. It must not block: a departure that finds the queue full is found by the heartbeats.
func (n *Node) departed(node, instance string) {
	select {
	case n.departures <- departure{node, instance}:
	default:
	}
}

// watchDepartures elects a new leader at once when the process of the old one is gone. The kernel of a killed process
// closes its connections within a millisecond; heartbeats would need up to three of their timeouts to find out. They
// stay for everything that does not close connections: a machine without power, a cut.
func (n *Node) watchDepartures() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case d := <-n.departures:
			if term := n.raft.CurrentTerm(); n.follows(d.node) {
				n.succeed(d, term)
			}
		}
	}
}

// follows reports whether this replica is a voter behind that leader.
func (n *Node) follows(node string) bool {
	_, leads := n.raft.LeaderWithID()
	return string(leads) == node && n.raft.State() == raft.Follower
}

// succeed stands for election if the process of the leader is gone for sure, and a majority is in reach, so that it is
// not this replica that was cut off (COORD-6.4.3). The voters go one after the other, the ones that still apply the log
// last: the first one wins if its log is as new as the others', and else its turn passes. An election that runs already, as after a leader that handed over
// before it ended, is given time to make a leader.
func (n *Node) succeed(d departure, term uint64) {
	voters := n.voters()
	addr, known := voters[d.node]
	if _, votes := voters[n.config.NodeID]; !known || !votes {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.config.Heartbeat)
	defer cancel()
	if !n.layer.Gone(ctx, string(addr), d.instance) || !n.majorityWithout(ctx, d.node, voters) {
		return
	}
	wait := time.Duration(0)
	for id := range voters {
		if id != d.node && id < n.config.NodeID {
			wait += successionStep
		}
	}
	if n.behind() {
		wait = successionStep * time.Duration(len(voters)-1) // after all others, which may serve at once
	}
	for range len(voters) {
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(wait):
		}
		if _, leads := n.raft.LeaderWithID(); n.raft.State() != raft.Follower || leads != "" && string(leads) != d.node {
			return
		}
		now := n.raft.CurrentTerm()
		if now == term {
			n.config.Log.Info("the process of the leader is gone: standing for election", "leader", d.node)
			n.stand()
			return
		}
		term, wait = now, successionStep
	}
}

// stand makes Raft begin an election without a pre-vote, which the others would refuse while they still hope for the old
// leader. It is safe at any moment: a vote is still one per term, and goes to no older log.
func (n *Node) stand() {
	call := raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: make(chan raft.RPCResponse, 1)}
	select {
	case n.network.calls <- call:
	case <-n.ctx.Done():
	}
}

// voters are the Raft addresses of all voters by node id.
func (n *Node) voters() map[string]raft.ServerAddress {
	out := map[string]raft.ServerAddress{}
	for _, s := range n.Servers() {
		if s.Suffrage == raft.Voter {
			out[string(s.ID)] = s.Address
		}
	}
	return out
}

// majorityWithout reports whether this replica and the voters that answer it now are a majority.
func (n *Node) majorityWithout(ctx context.Context, gone string, voters map[string]raft.ServerAddress) bool {
	var all sync.WaitGroup
	var up atomic.Int32
	for id, addr := range voters {
		if id == gone || id == n.config.NodeID {
			continue
		}
		all.Go(func() {
			if n.layer.Probe(ctx, string(addr), id) == nil {
				up.Add(1)
			}
		})
	}
	all.Wait()
	return int(up.Load())+1 > len(voters)/2
}

package rpc

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// peers bounds what one certificate may hold open at a time, so that one peer cannot take the connections or calls of all
// others. Plaintext peers have no identity and share the limits of the listener.
type peers struct {
	connectionsMax, callsMax int

	mu    sync.Mutex
	count map[identity.ID]*held
	conns map[net.Conn]identity.ID // counted connections
}

type held struct{ connections, calls int }

var (
	errPeerConnections = errors.New("this certificate has too many connections open: use one connection for many calls")
	errPeerCalls       = errors.New("this certificate has too many concurrent calls: end some first")
)

func newPeers(connections, calls int) *peers {
	return &peers{connectionsMax: connections, callsMax: calls, count: map[identity.ID]*held{}, conns: map[net.Conn]identity.ID{}}
}

func (p *peers) of(id identity.ID) *held {
	h := p.count[id]
	if h == nil {
		h = &held{}
		p.count[id] = h
	}
	return h
}

// begin counts a call, and its connection at the first call. end must follow a nil error.
func (p *peers) begin(c *connPeer) error {
	if c.peer.ID.IsZero() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(c.peer.ID)
	if _, counted := p.conns[c.conn]; !counted {
		if h.connections >= p.connectionsMax {
			return connect.NewError(connect.CodeResourceExhausted, errPeerConnections)
		}
		h.connections++
		p.conns[c.conn] = c.peer.ID
	}
	if h.calls >= p.callsMax {
		return connect.NewError(connect.CodeResourceExhausted, errPeerCalls)
	}
	h.calls++
	return nil
}

func (p *peers) end(c *connPeer) {
	if c.peer.ID.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(c.peer.ID).calls--
	p.forget(c.peer.ID)
}

// state is http.Server.ConnState.
func (p *peers) state(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, counted := p.conns[conn]; counted {
		delete(p.conns, conn)
		p.of(id).connections--
		p.forget(id)
	}
}

func (p *peers) forget(id identity.ID) {
	if h := p.count[id]; h != nil && *h == (held{}) {
		delete(p.count, id)
	}
}

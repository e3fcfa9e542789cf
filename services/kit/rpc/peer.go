package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Peer is who called.
type Peer struct {
	// ID is the identity of the client certificate. It is zero on plaintext and when Err is set.
	ID identity.ID
	// Err says why a TLS peer has no usable identity (none, several, unknown form).
	Err error
	// TLS reports whether the connection is mTLS.
	TLS bool
	// Addr is the remote address, for logs.
	Addr string
	// Loopback reports whether Addr is on this machine. A MemListener's peers are.
	Loopback bool
}

// String names the peer for logs: its identity, or its address.
func (p Peer) String() string {
	if p.ID.IsZero() {
		return p.Addr
	}
	return p.ID.String()
}

// Require returns nil when the peer has one of the kinds, or speaks plaintext, where identity checks are skipped
// (WIRE-2.5). Otherwise it is PERMISSION_DENIED with both identities in the text.
func (p Peer) Require(kinds ...identity.Kind) error {
	if !p.TLS {
		return nil
	}
	if p.Err != nil {
		return connect.NewError(connect.CodePermissionDenied, p.Err)
	}
	if !slices.Contains(kinds, p.ID.Kind) {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s may not call this, %v may", p.ID, kinds))
	}
	return nil
}

// RequireID is Require for exactly one identity, for example the cluster a Session claims.
func (p Peer) RequireID(want identity.ID) error {
	if !p.TLS {
		return nil
	}
	if p.Err != nil {
		return connect.NewError(connect.CodePermissionDenied, p.Err)
	}
	if p.ID != want {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("the certificate is that of %s, and the request is for %s", p.ID, want))
	}
	return nil
}

type peerKey struct{}

// PeerFrom returns the peer of the call that ctx belongs to, or the zero Peer outside a call.
func PeerFrom(ctx context.Context) Peer {
	if c, ok := ctx.Value(peerKey{}).(*connPeer); ok {
		return c.peer
	}
	return Peer{}
}

// WithPeer puts a Peer into ctx, for tests of handlers that are called without a server.
func WithPeer(ctx context.Context, p Peer) context.Context {
	c := &connPeer{peer: p}
	c.once.Do(func() {})
	return context.WithValue(ctx, peerKey{}, c)
}

// connPeer holds the peer of one connection. It is filled by the first request, when the handshake is complete.
type connPeer struct {
	once sync.Once
	conn net.Conn
	addr net.Addr
	peer Peer
}

func (c *connPeer) fill(state *tls.ConnectionState) {
	c.once.Do(func() {
		c.peer = Peer{TLS: state != nil}
		if c.addr != nil {
			c.peer.Addr, c.peer.Loopback = c.addr.String(), isLoopback(c.addr)
		}
		if state != nil {
			c.peer.ID, c.peer.Err = identity.FromState(*state)
		}
	})
}

func isLoopback(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr, memAddr:
		return true
	default:
		return false
	}
}

// connContext is http.Server.ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &connPeer{conn: conn, addr: conn.RemoteAddr()})
}

// identify fills the peer of the request's connection.
func identify(r *http.Request) (*connPeer, error) {
	c, ok := r.Context().Value(peerKey{}).(*connPeer)
	if !ok {
		return nil, errors.New("rpc: request without connection context")
	}
	c.fill(r.TLS)
	return c, nil
}

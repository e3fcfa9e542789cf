package peernet

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Mode says which transport a Layer speaks.
type Mode string

const (
	// Plaintext is for groups without certificates.
	Plaintext Mode = "plaintext"
	// Optional accepts both and dials TLS first: one step of moving a group to TLS (COORD-14.5).
	Optional Mode = "optional"
	// Required refuses plaintext.
	Required Mode = "required"
)

const (
	alpn             = "bigfleet-raft/1"
	handshakeTimeout = 5 * time.Second
	// handshakesMax bounds strangers that say nothing; a group has at most four peers.
	handshakesMax = 64
	// duplicateWithin is how recently another process must have spoken for the same node id to count as alive.
	duplicateWithin = time.Second
	// noGroup is why a replica that belongs to no group yet refuses Raft.
	noGroup = "no-group"
)

// Config of a Layer.
type Config struct {
	Listener  net.Listener // required
	Advertise string       // required: stable name and port of this node
	NodeID    string       // required
	// UUID is the identity of the group this node belongs to, or "". Required.
	UUID func() string
	// Expected is the node id that the configuration has for an address, or "" when it has none. Required.
	Expected func(addr string) string

	Identity    *identity.Source // nil means plaintext
	Mode        Mode             // "" means Required with an Identity, else Plaintext
	AcceptAdmin bool             // older replicas carry admin certificates (COORD-14.4)

	// Dial replaces the network; it resolves names at each call. nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Log  *slog.Logger // required
	// OnRefused hears of each connection that was turned away, with a reason token. Required.
	OnRefused func(reason string)
	// OnGone hears that a process closed the last connection it had made to this one. It must not block. May be nil.
	OnGone func(node, instance string)
}

// Layer is a raft.StreamLayer.
type Layer struct {
	c        Config
	instance string
	accepted chan net.Conn
	slots    chan struct{}
	done     chan struct{}
	stop     context.CancelFunc
	ctx      context.Context
	group    sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn]struct{}
	seen   map[string]sighting // by node id
	closed bool
}

// sighting is when a process last spoke for a node id.
type sighting struct {
	instance string
	at       time.Time
}

// Listen starts to accept. Close ends it.
func Listen(c Config) (*Layer, error) {
	if c.Mode == "" {
		c.Mode = Plaintext
		if c.Identity != nil {
			c.Mode = Required
		}
	}
	if (c.Mode == Plaintext) != (c.Identity == nil) {
		return nil, fmt.Errorf("Raft transport %q contradicts the TLS settings: certificates are given: %v", c.Mode, c.Identity != nil)
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	l := &Layer{
		c: c, instance: rand.Text(), accepted: make(chan net.Conn), slots: make(chan struct{}, handshakesMax),
		done: make(chan struct{}), conns: map[*conn]struct{}{}, seen: map[string]sighting{},
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.group.Go(l.listen)
	return l, nil
}

// Addr implements net.Listener: the advertised name, which Raft stores and sends (COORD-13.1).
func (l *Layer) Addr() net.Addr { return name(l.c.Advertise) }

// Instance names this process in handshakes.
func (l *Layer) Instance() string { return l.instance }

type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

// Accept implements net.Listener.
func (l *Layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close stops accepting and ends every connection.
func (l *Layer) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	open := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	close(l.done)
	l.stop()
	err := l.c.Listener.Close()
	for _, c := range open {
		_ = c.Close()
	}
	l.group.Wait()
	return err
}

func (l *Layer) listen() {
	for {
		raw, err := l.c.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
				return
			}
			l.c.Log.Warn("a Raft connection could not be accepted", "err", err)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-l.done:
				return
			}
			continue
		}
		select {
		case l.slots <- struct{}{}:
			l.group.Go(func() {
				defer func() { <-l.slots }()
				l.welcome(raw)
			})
		default:
			l.refuse(raw, "too-many", errors.New("too many connections have not stated their identity yet"))
		}
	}
}

// welcome does the acceptor's side of the handshake and hands the connection to Raft.
func (l *Layer) welcome(raw net.Conn) {
	c := l.track(raw)
	if c == nil {
		return
	}
	_ = raw.SetDeadline(time.Now().Add(handshakeTimeout))
	id, err := l.secure(c)
	if err != nil {
		l.refuse(c, reasonOf(err), err)
		return
	}
	theirs, err := readHello(c)
	if err != nil {
		l.refuse(c, "no-handshake", err)
		return
	}
	verdict := l.judge(theirs, id)
	if verdict == "" {
		l.mu.Lock()
		c.peer, c.instance, c.kind = theirs.node, theirs.instance, theirs.kind
		l.mu.Unlock()
	}
	mine := hello{kind: theirs.kind, uuid: l.c.UUID(), node: l.c.NodeID, instance: l.instance, verdict: verdict}
	if verdict != "" { // counted before the peer can know of it
		l.refused(c, verdict, fmt.Errorf("from node %q of group %q", theirs.node, theirs.uuid))
	}
	if err := mine.write(c); err != nil || verdict != "" {
		_ = c.Close()
		return
	}
	if theirs.kind != kindRaft {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	select {
	case l.accepted <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// judge returns why a peer is turned away, or "".
func (l *Layer) judge(theirs hello, id *identity.ID) string {
	if id != nil && !(id.Kind == identity.Coordinator && id.Name == theirs.node) && !(id.Kind == identity.Admin && l.c.AcceptAdmin) {
		return "identity"
	}
	if theirs.kind != kindRaft && theirs.kind != kindProbe {
		return "protocol"
	}
	if mine := l.c.UUID(); mine != "" && theirs.uuid != "" && mine != theirs.uuid {
		return "other-group"
	}
	if theirs.node == l.c.NodeID && theirs.instance != l.instance {
		return "same-id"
	}
	// Only members of one group speak Raft. A replica without a group neither votes nor stores entries: it
	// learns its group from the answer to its join call, never from the first peer that speaks to it.
	if theirs.kind == kindRaft && (l.c.UUID() == "" || theirs.uuid == "") {
		return noGroup
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.seen[theirs.node]; s.instance != "" && s.instance != theirs.instance && time.Since(s.at) < duplicateWithin {
		return "same-id"
	}
	l.seen[theirs.node] = sighting{theirs.instance, time.Now()}
	return ""
}

func (l *Layer) refuse(c net.Conn, reason string, err error) {
	_ = c.Close()
	l.refused(c, reason, err)
}

// refused counts and logs a connection that is turned away.
func (l *Layer) refused(c net.Conn, reason string, err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.c.OnRefused(reason)
	level := slog.LevelWarn
	if reason == noGroup {
		level = slog.LevelInfo // usual for a moment while a replica joins
	}
	l.c.Log.Log(context.Background(), level, "a Raft connection was refused", "reason", reason, "peer", c.RemoteAddr().String(), "err", err)
}

// track registers a connection, so that Close finds it, or closes it when the layer is closed.
func (l *Layer) track(raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = raw.Close()
		return nil
	}
	l.conns[c] = struct{}{}
	return c
}

// conn is one connection. Conn is replaced by the TLS connection once that is up; raw stays, for Close.
type conn struct {
	net.Conn
	raw            net.Conn
	layer          *Layer
	peer, instance string // of an accepted connection
	kind           byte   // likewise
	once           sync.Once
	last           time.Time
}

// Read notes that the peer's process is alive.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.peer != "" {
		if now := time.Now(); now.Sub(c.last) > duplicateWithin/4 {
			c.last = now
			c.layer.mu.Lock()
			c.layer.seen[c.peer] = sighting{c.instance, now}
			c.layer.mu.Unlock()
		}
	}
	return n, err
}

func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		c.layer.forget(c)
		err = c.raw.Close()
	})
	return err
}

// forget drops a connection, and the sighting of its peer with the last one of that process: a replica that ended may
// come back at once as another process with the same id.
func (l *Layer) forget(c *conn) {
	if l.last(c) && l.c.OnGone != nil && c.kind == kindRaft {
		l.c.OnGone(c.peer, c.instance)
	}
}

// last drops a connection and reports whether it was the last one of a process that is the newest of its node.
func (l *Layer) last(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if c.peer == "" || l.seen[c.peer].instance != c.instance {
		return false
	}
	for other := range l.conns {
		if other.peer == c.peer && other.instance == c.instance {
			return false
		}
	}
	delete(l.seen, c.peer)
	return !l.closed
}

var _ raft.StreamLayer = (*Layer)(nil)

// refusal is an error with a reason token.
type refusal struct {
	reason string
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func reasonOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.reason
	}
	return "tls"
}

// secure does the acceptor's TLS handshake, if the connection speaks TLS, and returns the peer's identity.
func (l *Layer) secure(c *conn) (*identity.ID, error) {
	if l.c.Mode == Plaintext {
		return nil, nil
	}
	first := make([]byte, 1)
	if _, err := c.Conn.Read(first); err != nil {
		return nil, &refusal{"no-handshake", err}
	}
	peeked := &peekedConn{Conn: c.Conn, head: first}
	if first[0] == magic[0] {
		if l.c.Mode == Required {
			return nil, &refusal{"plaintext", errors.New("the peer speaks plaintext and this group requires TLS")}
		}
		c.Conn = peeked
		return nil, nil
	}
	secured := tls.Server(peeked, l.c.Identity.ServerConfig(alpn))
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, &refusal{"tls", err}
	}
	id, err := identity.FromState(secured.ConnectionState())
	if err != nil {
		return nil, &refusal{"identity", err}
	}
	c.Conn = secured
	return &id, nil
}

// peekedConn gives back what was read to find out what is spoken.
type peekedConn struct {
	net.Conn
	head []byte
}

func (p *peekedConn) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

package peernet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one replica's layer with an echo behind it, in the place of Raft.
type node struct {
	*Layer
	addr    string
	mu      sync.Mutex
	refused []string
}

func (n *node) reasons() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.refused, ",")
}

func listen(t *testing.T, id, uuid string, change func(*Config)) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: ln.Addr().String()}
	c := Config{Listener: ln, Advertise: n.addr, NodeID: id, UUID: func() string { return uuid }, Expected: func(string) string { return "" },
		Log: slog.New(slog.DiscardHandler), OnRefused: func(reason string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.refused = append(n.refused, reason)
		}}
	if change != nil {
		change(&c)
	}
	if n.Layer, err = Listen(c); err != nil {
		t.Fatal(err)
	}
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = n.Close()
		echoes.Wait()
	})
	return n
}

// talk dials and sends a word there and back.
func talk(from, to *node) error {
	conn, err := from.Dial(raft.ServerAddress(to.addr), 2*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "word"); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, err = io.ReadFull(conn, make([]byte, 4))
	return err
}

// COORD-13.10: the handshake turns away another group, a second process with one id, and a name that leads elsewhere.
func TestHandshake(t *testing.T) {
	a := listen(t, "node-a", "group-1", nil)
	for name, tc := range map[string]struct {
		from      *node
		ok        bool
		at, after string // reasons counted at the acceptor and the dialler
	}{
		"same group":         {listen(t, "node-b", "group-1", nil), true, "", ""},
		"no group yet":       {listen(t, "node-c", "", nil), false, "no-group", ""},
		"other group":        {listen(t, "node-d", "group-2", nil), false, "other-group", ""},
		"its own id":         {listen(t, "node-a", "group-1", nil), false, "same-id", ""},
		"not who was wanted": {listen(t, "node-e", "group-1", func(c *Config) { c.Expected = func(string) string { return "node-z" } }), false, "", "wrong-node"},
	} {
		a.mu.Lock()
		a.refused = nil
		a.mu.Unlock()
		if err := talk(tc.from, a); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if a.reasons() != tc.at || tc.from.reasons() != tc.after {
			t.Errorf("%s: counted %q and %q", name, a.reasons(), tc.from.reasons())
		}
	}
}

// COORD-13.8, 13.10: a replica without a group can be asked who it is, and nothing more.
func TestWithoutAGroup(t *testing.T) {
	member, empty := listen(t, "node-a", "group-1", nil), listen(t, "node-b", "", nil)
	if err := member.Probe(t.Context(), empty.addr, "node-b"); err != nil {
		t.Fatal(err)
	}
	if err := talk(member, empty); err == nil || !strings.Contains(err.Error(), "no-group") || empty.reasons() != "no-group" {
		t.Fatalf("a replica without a group let Raft in: %v, counted %q", err, empty.reasons())
	}
}

// COORD-6.4.1: a process that ends is noticed by its connections and known to be gone; one that lives, or does not answer,
// is not.
func TestGone(t *testing.T) {
	type process struct{ node, instance string }
	heard := make(chan process, 1)
	a := listen(t, "node-a", "g", func(c *Config) { c.OnGone = func(node, instance string) { heard <- process{node, instance} } })
	b := listen(t, "node-b", "g", nil)
	var open []net.Conn
	for range 2 {
		c, err := b.Dial(raft.ServerAddress(a.addr), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	_ = open[0].Close() // one of two connections
	if a.Gone(t.Context(), b.addr, b.Instance()) {
		t.Error("a process that lives is gone")
	}
	if !a.Gone(t.Context(), b.addr, "another instance") {
		t.Error("another process under its address is taken for it")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a.Gone(ctx, silent.Addr().String(), b.Instance()) {
		t.Error("no answer in time is taken for a proof")
	}
	select {
	case p := <-heard:
		t.Errorf("%v is gone after one of its connections", p)
	default:
	}
	_ = b.Close()
	if p := <-heard; p != (process{"node-b", b.Instance()}) {
		t.Errorf("%v is gone", p)
	}
	if !a.Gone(t.Context(), b.addr, b.Instance()) {
		t.Error("a process that ended is not gone")
	}
}

// COORD-13.2: of two live processes with one id the second is refused; when the first is gone it may take over, without a
// wait: a process that is restarted comes back within milliseconds.
func TestTwoProcessesWithOneID(t *testing.T) {
	a := listen(t, "node-a", "g", nil)
	first, second := listen(t, "node-b", "g", nil), listen(t, "node-b", "g", nil)
	open, err := first.Dial(raft.ServerAddress(a.addr), 2*time.Second) // a live process keeps its connections
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	if err := talk(first, a); err != nil {
		t.Fatal(err)
	}
	if err := talk(second, a); err == nil || !strings.Contains(err.Error(), "same-id") {
		t.Fatalf("got %v", err)
	}
	_ = first.Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := talk(second, a); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the successor is refused for ever: %v", err)
		}
	}
}

// COORD-13.8: a probe says who answers, without a connection for Raft.
func TestProbe(t *testing.T) {
	a, b := listen(t, "node-a", "g", nil), listen(t, "node-b", "", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := a.Probe(ctx, b.addr, "node-b"); err != nil {
		t.Fatal(err)
	}
	if err := a.Probe(ctx, b.addr, "node-c"); err == nil {
		t.Fatal("node-b passed for node-c")
	}
	if who, err := a.Who(ctx, b.addr); err != nil || who != "node-b" {
		t.Fatalf("%q %v", who, err)
	}
	_ = b.Close()
	if err := a.Probe(ctx, b.addr, "node-b"); err == nil {
		t.Fatal("a closed port passed")
	}
}

// COORD-13.10: strangers are hung up on, whatever they say.
func TestStrangers(t *testing.T) {
	a := listen(t, "node-a", "g", nil)
	for _, say := range []string{"GET / HTTP/1.1\r\n\r\n", magic[:5], magic + "r\x01", "\x16\x03\x01"} {
		conn, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, say); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q: %v", say, err)
		}
		_ = conn.Close()
	}
}

// COORD-6.4.2: Close ends the connections that others hold to this node, so that they look for another.
func TestCloseEndsConnections(t *testing.T) {
	a, b := listen(t, "node-a", "g", nil), listen(t, "node-b", "g", nil)
	conn, err := b.Dial(raft.ServerAddress(a.addr), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if _, err := a.Dial(raft.ServerAddress(b.addr), time.Second); err == nil {
		t.Fatal("a closed layer dials")
	}
}

// COORD-14.1, 14.4, 14.5, COORD-21.55: who may speak Raft to whom, by transport mode and certificate.
func TestTransportSecurity(t *testing.T) {
	ca, err := devca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	other, err := devca.New("other")
	if err != nil {
		t.Fatal(err)
	}
	source := func(ca *devca.CA, request devca.Request) *identity.Source {
		files, err := ca.Write(t.TempDir(), "leaf", request)
		if err != nil {
			t.Fatal(err)
		}
		s, err := identity.Load(files, identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	coordinator := func(id string) devca.Request {
		return devca.For(identity.ID{Kind: identity.Coordinator, Name: id}, "127.0.0.1")
	}
	admin := devca.For(identity.ID{Kind: identity.Admin}, "127.0.0.1")
	two := devca.Request{URIs: []string{"bigfleet://coordinator/node-b", "bigfleet://admin"}, Hosts: []string{"127.0.0.1"}}
	with := func(s *identity.Source, m Mode, acceptAdmin bool) func(*Config) {
		return func(c *Config) { c.Identity, c.Mode, c.AcceptAdmin = s, m, acceptAdmin }
	}
	a := source(ca, coordinator("node-a"))
	for i, tc := range []struct {
		name     string
		from, to func(*Config)
		ok       bool
		reason   string
	}{
		{"plaintext to plaintext", nil, nil, true, ""},
		{"TLS to TLS", with(source(ca, coordinator("node-b")), Required, false), with(a, Required, false), true, ""},
		{"plaintext to required", nil, with(a, Required, false), false, "plaintext"},
		{"TLS to plaintext", with(source(ca, coordinator("node-b")), Required, false), nil, false, "no-handshake"},
		{"plaintext to optional", nil, with(a, Optional, false), true, ""},
		{"optional to plaintext", with(source(ca, coordinator("node-b")), Optional, false), nil, true, "no-handshake"},
		{"optional to required", with(source(ca, coordinator("node-b")), Optional, false), with(a, Required, false), true, ""},
		{"required to optional", with(source(ca, coordinator("node-b")), Required, false), with(a, Optional, false), true, ""},
		{"certificate of another node", with(source(ca, coordinator("node-x")), Required, false), with(a, Required, false), false, "identity"},
		{"shard certificate", with(source(ca, devca.For(identity.ID{Kind: identity.Shard, Name: "node-b"}, "127.0.0.1")), Required, false), with(a, Required, false), false, "identity"},
		{"two identities", with(source(ca, two), Required, false), with(a, Required, false), false, "identity"},
		{"admin certificate", with(source(ca, admin), Required, false), with(a, Required, false), false, "identity"},
		{"admin certificate, accepted", with(source(ca, admin), Required, false), with(a, Required, true), true, ""},
		{"server with an admin certificate", with(source(ca, coordinator("node-b")), Required, false), with(source(ca, admin), Required, false), false, "tls"},
		{"wrong CA", with(source(other, coordinator("node-b")), Required, false), with(a, Required, false), false, "tls"},
	} {
		to := listen(t, "node-a", "g", tc.to)
		from := listen(t, "node-b", "g", tc.from)
		err := talk(from, to)
		if (err == nil) != tc.ok {
			t.Errorf("%d %s: %v", i, tc.name, err)
		}
		for end := time.Now().Add(5 * time.Second); tc.reason != "" && to.reasons() == "" && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // the acceptor notices a little later
		}
		if to.reasons() != tc.reason && !(tc.reason == "tls" && to.reasons() == "no-handshake") {
			t.Errorf("%s: counted %q, want %q", tc.name, to.reasons(), tc.reason)
		}
	}
	if _, err := Listen(Config{Mode: Required}); err == nil {
		t.Error("TLS is required without certificates")
	}
	if s := fmt.Sprint(name("node-0:7791")); s != "node-0:7791" {
		t.Error(s)
	}
}

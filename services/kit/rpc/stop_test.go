package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// SHARD-3.9, WIRE-6.6: a stop ends open streams with UNAVAILABLE "shutting down", whether the handler waits in
// Receive, waits on its context, or writes; a unary call in flight is finished.
func TestGracefulStop(t *testing.T) {
	entered, finish := make(chan struct{}, 3), make(chan struct{})
	f := &fleet{
		session: func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			entered <- struct{}{}
			_, err := s.Receive() // blocks: the client sends headers and nothing else
			return err
		},
		watch: func(ctx context.Context, out *connect.ServerStream[pb.WatchDecisionsResponse]) error {
			if err := out.Send(&pb.WatchDecisionsResponse{NextSequence: 1}); err != nil {
				return err
			}
			entered <- struct{}{}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), rpc.ErrStopping) {
				return errors.New("the context ended for another reason")
			}
			return ctx.Err()
		},
		get: func(_ context.Context, req *pb.MachineRef) (*pb.Machine, error) {
			entered <- struct{}{}
			<-finish
			return &pb.Machine{Id: req.GetId()}, nil
		},
	}
	p := start(t, f, func(c *rpc.ServerConfig) { c.StopTimeout = time.Minute })
	c := dial(t, p.addr, nil)
	session := rpc.Stub(c, api.NewShardClient).Session(within(t))
	if err := session.Send(nil); err != nil { // headers only
		t.Fatal(err)
	}
	watch, err := rpc.Stub(c, api.NewShardReadClient).WatchDecisions(within(t), connect.NewRequest(&pb.WatchDecisionsRequest{Follow: true}))
	if err != nil || !watch.Receive() {
		t.Fatalf("%v, %v", err, watch.Err())
	}
	unary := make(chan error, 1)
	go func() {
		_, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
		unary <- err
	}()
	for range 3 {
		<-entered
	}
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop() }()

	_, err = session.Receive()
	if fault := wantCode(t, err, connect.CodeUnavailable); fault.Message() != "shutting down" {
		t.Errorf("the session ends with %q", fault.Message())
	}
	for watch.Receive() {
		t.Error("the stream went on")
	}
	wantCode(t, watch.Err(), connect.CodeUnavailable)
	_, _, _ = session.CloseRequest(), session.CloseResponse(), watch.Close()
	select {
	case err := <-stopped:
		t.Fatalf("stopped (%v) while a call was in flight", err)
	case err := <-unary:
		t.Fatalf("the call in flight ended: %v", err)
	default:
	}
	close(finish)
	if err := <-unary; err != nil {
		t.Errorf("the call in flight was cut: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	_, err = rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	if !rpc.NotSent(err) {
		t.Errorf("after the stop: %v, want a refused connection", err)
	}
}

// A call that does not end is cut when the time for the stop is over; its context ends first.
func TestHardStop(t *testing.T) {
	entered := make(chan struct{})
	cause := make(chan error, 1)
	f := &fleet{get: func(ctx context.Context, _ *pb.MachineRef) (*pb.Machine, error) {
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, ctx.Err()
	}}
	p := start(t, f, func(c *rpc.ServerConfig) { c.StopTimeout = 50 * time.Millisecond })
	c := dial(t, p.addr, nil)
	unary := make(chan error, 1)
	go func() {
		_, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("m1"))
		unary <- err
	}()
	<-entered
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	// It had time to answer before its connection was cut.
	wantCode(t, <-unary, connect.CodeUnavailable)
	if err := <-cause; !errors.Is(err, rpc.ErrStopping) {
		t.Errorf("cause %v", err)
	}
	if !strings.Contains(p.logs.String(), "at the end of the shutdown and were cut off") {
		t.Error("the log does not say that calls were cut")
	}
}

// A connection that was accepted before the stop and speaks HTTP/2 only after it began does not hold the stop.
func TestStopWithLateConnection(t *testing.T) {
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) { c.StopTimeout = 10 * time.Minute })
	// A served call proves that the server accepts; the raw connection after it is accepted in order.
	if _, err := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient).Get(within(t), ref("m1")); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop() }()
	ctx := within(t)
	for { // until the listener is closed
		probe, err := net.Dial("tcp", p.addr)
		if err != nil {
			break
		}
		_ = probe.Close()
		if ctx.Err() != nil {
			t.Fatal("the listener stays open")
		}
	}
	time.Sleep(20 * time.Millisecond) // lets net/http finish telling the connections it knows; the result does not depend on it
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, preface+settings); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("the stop waits for a connection that never made a call")
	}
}

// A peer that goes away ends its call's context for its own reason, not as a stop.
func TestPeerGoesAway(t *testing.T) {
	entered, cause := make(chan struct{}), make(chan error, 1)
	f := &fleet{session: func(ctx context.Context, _ *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	}}
	p := start(t, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s := rpc.Stub(dial(t, p.addr, nil), api.NewShardClient).Session(ctx)
	if err := s.Send(hello("red")); err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if err := <-cause; !errors.Is(err, context.Canceled) || errors.Is(err, rpc.ErrStopping) {
		t.Errorf("cause %v", err)
	}
	_ = s.CloseResponse()
}

// A listener that fails ends Run with its error; the rest of the server stops.
func TestListenerFails(t *testing.T) {
	server, err := rpc.NewServer(rpc.ServerConfig{Log: quiet(), Services: services(&fleet{})})
	if err != nil {
		t.Fatal(err)
	}
	good, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bad, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Run(t.Context(), good, bad); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), bad.Addr().String()) {
		t.Errorf("Run: %v", err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

// Connections above the limit are closed at once; one that ends makes room.
func TestConnectionLimit(t *testing.T) {
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) { c.ConnectionsMax = 2 })
	var open []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	third, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the third connection reads %v", err)
	}
	_ = third.Close()
	for _, conn := range open {
		_ = conn.Close()
	}
	ctx := within(t)
	for {
		_, err := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient).Get(ctx, ref("m1"))
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("no room after the connections ended: %v", err)
		}
	}
	if !strings.Contains(p.logs.String(), "too many connections are open") {
		t.Error("the log does not name the limit")
	}
}

// swallow forwards bytes to addr until swallowing is set, and never closes: a path that died without a FIN.
type swallow struct {
	net.Listener
	mu    sync.Mutex
	deaf  bool
	conns []net.Conn
	all   sync.WaitGroup
}

func newSwallow(t *testing.T, addr string) *swallow {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &swallow{Listener: ln}
	p.all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, near, far)
			p.mu.Unlock()
			p.all.Go(func() { _, _ = io.Copy(p.through(far), near) })
			p.all.Go(func() { _, _ = io.Copy(p.through(near), far) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for _, conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	return p
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func (p *swallow) through(to net.Conn) io.Writer {
	return writer(func(b []byte) (int, error) {
		p.mu.Lock()
		deaf := p.deaf
		p.mu.Unlock()
		if deaf {
			return len(b), nil
		}
		return to.Write(b)
	})
}

func (p *swallow) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// WIRE-4.5: HTTP/2 pings on both sides notice a path that swallows everything: the operator's stream and the shard's
// handler both end without any frame of their own.
func TestHalfOpenConnectionIsNoticed(t *testing.T) {
	short := rpc.Keepalive{Interval: 50 * time.Millisecond, Timeout: time.Second} // a busy machine answers a ping late
	ended := make(chan error, 1)
	f := &fleet{session: func(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
		if _, err := s.Receive(); err != nil {
			return err
		}
		if err := s.Send(&pb.ShardMessage{}); err != nil {
			return err
		}
		_, err := s.Receive()
		ended <- err
		return err
	}}
	p := start(t, f, func(c *rpc.ServerConfig) { c.Keepalive = short })
	path := newSwallow(t, p.addr)
	c := dial(t, path.Addr().String(), func(c *rpc.ClientConfig) { c.Keepalive = short })
	s := rpc.Stub(c, api.NewShardClient).Session(within(t))
	if err := s.Send(hello("red")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	// A healthy path is kept although nothing is sent for many intervals.
	select {
	case err := <-ended:
		t.Fatalf("a silent but healthy stream ended: %v", err)
	case <-time.After(2 * time.Second):
	}
	path.die()
	if _, err := s.Receive(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("client: %v", err)
	}
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("server: %v", err)
		}
	case <-within(t).Done():
		t.Error("the server did not notice")
	}
	_ = s.CloseResponse()
}

// A further HTTP handler shares the port.
func TestPlainHandlerBesideRPC(t *testing.T) {
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) {
		c.HTTP = map[string]http.Handler{"GET /ui/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "page for "+rpc.PeerFrom(r.Context()).Addr)
		})}
	})
	resp, err := http.Get("http://" + p.addr + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if !strings.HasPrefix(string(body), "page for 127.0.0.1:") {
		t.Errorf("%s %q", resp.Status, body)
	}
}

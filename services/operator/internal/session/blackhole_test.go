package session

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Scenario 2, OP-4.3: a peer that vanished is found, and a new session starts within 30 s.
func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var pipes []*swallow
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s); err != nil {
				return err
			}
			return drain(s, func(*pb.OperatorMessage) {})
		}, through(t, func(s *swallow) {
			mu.Lock()
			defer mu.Unlock()
			pipes = append(pipes, s)
		}))
		time.Sleep(5 * time.Minute)
		if n := r.sessions(); n != 1 {
			t.Fatalf("%d sessions on a quiet line, want 1", n)
		}
		mu.Lock()
		pipes[0].swallow()
		mu.Unlock()
		start := time.Now()
		for r.sessions() == 1 && time.Since(start) < 2*time.Minute {
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("the next session came after %v", took)
		}
		stop()
	})
}

// swallow is a connection that can become a black hole.
type swallow struct {
	net.Conn
	mu   sync.Mutex
	hole bool
	free chan struct{}
}

func (s *swallow) swallow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hole = true
}

func (s *swallow) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hole
}

func (s *swallow) Write(b []byte) (int, error) {
	if s.gone() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func (s *swallow) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if s.gone() && err == nil {
		<-s.free
		return 0, net.ErrClosed
	}
	return n, err
}

func (s *swallow) Close() error {
	s.mu.Lock()
	select {
	case <-s.free:
	default:
		close(s.free)
	}
	s.mu.Unlock()
	return s.Conn.Close()
}

// through puts a swallow under each connection of the client.
func through(t *testing.T, each func(*swallow)) func(*Config) {
	return func(c *Config) {
		t.Helper()
		ln := rpc.NewMemListener("shard")
		mux := http.NewServeMux()
		mux.Handle(bigfleetv1alpha1connect.NewShardHandler(handler{talk: func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s); err != nil {
				return err
			}
			return drain(s, func(*pb.OperatorMessage) {})
		}}))
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: mux, Protocols: protocols}
		go func() { _ = server.Serve(ln) }()
		t.Cleanup(func() { _ = server.Close() })
		conn, err := rpc.NewClient(rpc.ClientConfig{Addr: "shard:1", Limits: rpc.Limits{ReadMaxBytes: FrameBytesMax, SendMaxBytes: FrameBytesMax},
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				inner, err := ln.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				s := &swallow{Conn: inner, free: make(chan struct{})}
				each(s)
				return s, nil
			},
			Keepalive: rpc.Keepalive{Interval: KeepaliveInterval, Timeout: KeepaliveTimeout}})
		if err != nil {
			t.Fatal(err)
		}
		c.Shard, c.CloseIdle = rpc.Stub(conn, bigfleetv1alpha1connect.NewShardClient), conn.CloseIdle
	}
}

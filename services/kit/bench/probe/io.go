package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// callBytes is the size of a roll-up of W-sessions.
const callBytes = 2048

// Call is P-call: calls unary calls of 2 KB each way over loopback HTTP/2 without TLS, one after the other.
func Call(calls int) (measure.Floor, error) {
	c, err := newCaller()
	if err != nil {
		return measure.Floor{}, err
	}
	run := func() {
		for range calls {
			c.must()
		}
	}
	return measure.Floor{Probe: "P-call", Parts: part(nil, run), Close: c.close}, nil
}

// CallLatencies returns the time of each of n calls of P-call, in ns.
func CallLatencies(n int) ([]int64, error) {
	c, err := newCaller()
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.must()
	out := make([]int64, n)
	for i := range out {
		start := time.Now()
		c.must()
		out[i] = time.Since(start).Nanoseconds()
	}
	return out, nil
}

type caller struct {
	server *http.Server
	client *http.Client
	url    string
	body   []byte
	done   chan struct{}
}

func cleartext() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func newCaller() (*caller, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := bytes.Repeat([]byte{'a'}, callBytes)
	c := &caller{
		url: "http://" + ln.Addr().String() + "/", body: bytes.Repeat([]byte{'q'}, callBytes), done: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{Protocols: cleartext()}},
		server: &http.Server{Protocols: cleartext(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				_, _ = w.Write(answer)
			}
		})},
	}
	go func() {
		defer close(c.done)
		_ = c.server.Serve(ln)
	}()
	return c, nil
}

func (c *caller) must() {
	resp, err := c.client.Post(c.url, "application/octet-stream", bytes.NewReader(c.body))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		err = errors.Join(err, resp.Body.Close())
	}
	if err != nil {
		panic("probe: P-call: " + err.Error())
	}
}

func (c *caller) close() {
	c.client.CloseIdleConnections()
	_ = c.server.Close()
	<-c.done
}

// RTT is P-rtt: one byte there and one back over a loopback TCP connection, trips times.
func RTT(trips int) (measure.Floor, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return measure.Floor{}, err
	}
	defer func() { _ = ln.Close() }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return measure.Floor{}, err
	}
	server, err := ln.Accept()
	if err != nil {
		_ = client.Close()
		return measure.Floor{}, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(server, b); err != nil {
				return
			}
			if _, err := server.Write(b); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 1)
	run := func() {
		for range trips {
			if _, err := client.Write(b); err != nil {
				panic("probe: P-rtt: " + err.Error())
			}
			if _, err := io.ReadFull(client, b); err != nil {
				panic("probe: P-rtt: " + err.Error())
			}
		}
	}
	return measure.Floor{Probe: "P-rtt", Parts: part(nil, run), Close: func() {
		_, _ = client.Close(), server.Close()
		<-done
	}}, nil
}

// fsyncBytes is the size of a log entry of the coordinator.
const fsyncBytes = 512

// Fsync is P-fsync: append 512 bytes to a file in dir and sync it, times times. dir says which disk is measured.
func Fsync(dir string, times int) (measure.Floor, error) {
	path := filepath.Join(dir, "p-fsync")
	f, err := os.Create(path)
	if err != nil {
		return measure.Floor{}, err
	}
	entry := bytes.Repeat([]byte{'e'}, fsyncBytes)
	run := func() {
		for range times {
			if _, err := f.Write(entry); err != nil {
				panic("probe: P-fsync: " + err.Error())
			}
			if err := f.Sync(); err != nil {
				panic("probe: P-fsync: " + err.Error())
			}
		}
	}
	return measure.Floor{Probe: "P-fsync", Parts: part(nil, run), Close: func() { _, _ = f.Close(), os.Remove(path) }}, nil
}

// ConnServer is the server side of P-conn: bare net/http HTTP/2 connections with one open stream each. Its clients
// belong in another process (OpenConns), so that the memory of this one is the server's alone.
type ConnServer struct {
	server *http.Server
	open   atomic.Int64
	done   chan struct{}
}

// ServeConns serves ln until Close.
func ServeConns(ln net.Listener) *ConnServer {
	s := &ConnServer{done: make(chan struct{})}
	s.server = &http.Server{Protocols: cleartext(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		s.open.Add(1)
		defer s.open.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body) // until the client ends its stream
	})}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(ln)
	}()
	return s
}

// Open is how many streams are open.
func (s *ConnServer) Open() int { return int(s.open.Load()) }

// Close cuts all connections.
func (s *ConnServer) Close() {
	_ = s.server.Close()
	<-s.done
}

// OpenConns opens n connections to addr with one stream each, calls ready, and holds them until ctx ends.
func OpenConns(ctx context.Context, addr string, n int, ready func()) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range n {
		transport := &http.Transport{Protocols: cleartext()}
		body, stop := io.Pipe()
		context.AfterFunc(ctx, func() { _ = stop.Close() })
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", body)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		all.Go(func() {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			transport.CloseIdleConnections()
		})
	}
	ready()
	<-ctx.Done()
	return nil
}

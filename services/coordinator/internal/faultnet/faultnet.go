// Package faultnet is a network for tests whose links can be cut and slowed, one direction at a time.
//
// Real TCP connections run underneath. A process dials through Net.Dialer under its own name; names stand for whatever
// address was set last, so that a process can come back elsewhere under its stable name. While a direction is cut, data
// on it waits and new connections time out; when it heals, what waited continues, as TCP's retransmissions would make it.
//
// It is for tests only and must never be linked into a program.
package faultnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Net is a network of named processes. The zero Net is not usable; see New.
type Net struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	cut     map[link]bool
	delay   map[link]time.Duration
	addrs   map[string]string
}

type link struct{ from, to string }

// New returns a network without faults.
func New() *Net {
	return &Net{changed: make(chan struct{}), cut: map[link]bool{}, delay: map[link]time.Duration{}, addrs: map[string]string{}}
}

func (n *Net) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Set gives a name (host:port) the address it stands for; "" takes it away.
func (n *Net) Set(name, addr string) {
	n.change(func() {
		if addr == "" {
			delete(n.addrs, name)
		} else {
			n.addrs[name] = addr
		}
	})
}

// Cut stops data from one process to another. The other direction stays as it is.
func (n *Net) Cut(from, to string) { n.change(func() { n.cut[link{from, to}] = true }) }

// Isolate cuts a process from others, both ways.
func (n *Net) Isolate(name string, others ...string) {
	n.change(func() {
		for _, o := range others {
			n.cut[link{name, o}], n.cut[link{o, name}] = true, true
		}
	})
}

// Delay holds each write from one process to another back.
func (n *Net) Delay(from, to string, d time.Duration) {
	n.change(func() { n.delay[link{from, to}] = d })
}

// Heal removes every fault.
func (n *Net) Heal() {
	n.change(func() {
		clear(n.cut)
		clear(n.delay)
	})
}

func (n *Net) look(l link) (cut bool, delay time.Duration, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[l], n.delay[l], n.changed
}

// Dialer returns the dial function of a process. Names that were never set are dialled as they are.
func (n *Net) Dialer(from string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		for {
			out, _, changed := n.look(link{from, to})
			back, _, _ := n.look(link{to, from})
			if !out && !back {
				break
			}
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("dialling %s: %w", addr, os.ErrDeadlineExceeded)
			case <-changed:
			}
		}
		n.mu.Lock()
		at, ok := n.addrs[addr]
		n.mu.Unlock()
		if !ok {
			at = addr
		}
		raw, err := new(net.Dialer).DialContext(ctx, network, at)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: raw, net: n, out: link{from, to}, in: link{to, from}, closed: make(chan struct{})}, nil
	}
}

// conn is the dialler's end; both directions pass here.
type conn struct {
	net.Conn
	net     *Net
	out, in link

	once   sync.Once
	closed chan struct{}

	mu          sync.Mutex
	read, write time.Time // deadlines
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(c.out, func() time.Time { return c.write }); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	// What arrived waits here while the direction is cut.
	if err := c.pass(c.in, func() time.Time { return c.read }); err != nil {
		return 0, err
	}
	return n, nil
}

// pass waits until the direction is open, the deadline passes or the connection is closed.
func (c *conn) pass(l link, deadline func() time.Time) error {
	for {
		cut, delay, changed := c.net.look(l)
		if !cut {
			if delay > 0 {
				time.Sleep(delay)
			}
			return nil
		}
		c.mu.Lock()
		end := deadline()
		c.mu.Unlock()
		var expired <-chan time.Time
		if !end.IsZero() {
			timer := time.NewTimer(time.Until(end))
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case <-changed:
		case <-expired:
			return os.ErrDeadlineExceeded
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

func (c *conn) set(read, write *time.Time) {
	c.mu.Lock()
	if read != nil {
		c.read = *read
	}
	if write != nil {
		c.write = *write
	}
	c.mu.Unlock()
	// A deadline in the past ends a wait.
	c.net.change(func() {})
}

func (c *conn) SetDeadline(t time.Time) error {
	c.set(&t, &t)
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.set(&t, nil)
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.set(nil, &t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

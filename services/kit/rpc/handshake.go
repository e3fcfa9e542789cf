package rpc

import (
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// handshakesPerProcessor bounds the TLS handshakes that compute at a time. One costs about a millisecond. When thousands of
	// peers connect in the same moment, all of them at once would end together, after their peers gave up, and meanwhile
	// nothing else in the process gets the processor.
	handshakesPerProcessor = 2
	// handshakeWaitMax is how long one of them waits for the processor: a peer gives a dial 5 s, and most of what it does
	// comes after. A closed connection sends it away.
	handshakeWaitMax = 2 * time.Second
)

var errHandshakesFull = errors.New("too many TLS handshakes at once")

// handshakeListener lets a few handshakes compute at a time.
type handshakeListener struct {
	net.Listener
	slots   chan struct{}
	log     *slog.Logger
	sampler *sampler
}

func newHandshakeListener(ln net.Listener, log *slog.Logger) *handshakeListener {
	return &handshakeListener{Listener: ln, slots: make(chan struct{}, handshakesPerProcessor*runtime.GOMAXPROCS(0)), log: log, sampler: &sampler{}}
}

func (l *handshakeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &handshakeConn{Conn: conn, listener: l}, nil
}

// handshakeConn lies under TLS. What the server computes comes after what it reads, so a slot is taken behind a read and given
// back before the next one: a slot is never held while the peer computes. The handshake of a server is a read, a write and a
// read; the write after that is the first of the protocol above, and ends the bookkeeping.
type handshakeConn struct {
	net.Conn
	listener *handshakeListener
	held     atomic.Bool
	done     atomic.Bool
	read     atomic.Bool  // something was, since the last write
	flights  atomic.Int32 // writes that followed a read
}

func (c *handshakeConn) Read(b []byte) (int, error) {
	c.leave()
	n, err := c.Conn.Read(b)
	if err != nil || c.done.Load() {
		return n, err
	}
	c.read.Store(true)
	return n, c.enter()
}

func (c *handshakeConn) enter() error {
	l := c.listener
	select {
	case l.slots <- struct{}{}:
		c.held.Store(true)
		return nil
	default:
	}
	timer := time.NewTimer(handshakeWaitMax)
	defer timer.Stop()
	select {
	case l.slots <- struct{}{}:
		c.held.Store(true)
		return nil
	case <-timer.C:
		if repeats, ok := l.sampler.take(""); ok {
			l.log.Warn("connection closed: too many TLS handshakes at once", "limit", cap(l.slots), "waited", handshakeWaitMax, "peer", c.RemoteAddr().String(), "repeated", repeats)
		}
		return errHandshakesFull
	}
}

func (c *handshakeConn) leave() {
	if c.held.CompareAndSwap(true, false) {
		<-c.listener.slots
	}
}

func (c *handshakeConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if !c.done.Load() && c.read.Swap(false) && c.flights.Add(1) == 2 {
		c.done.Store(true)
	}
	c.leave()
	return n, err
}

func (c *handshakeConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

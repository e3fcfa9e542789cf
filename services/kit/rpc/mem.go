package rpc

import (
	"context"
	"net"
	"sync"
)

// MemListener is a net.Listener whose connections never leave the process. A Server serves it like any other, so a
// process that holds several roles speaks the real protocol without ports.
type MemListener struct {
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewMemListener returns a listener that answers to name in logs.
func NewMemListener(name string) *MemListener {
	return &MemListener{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext returns the client's end of a new connection. It has the shape of ClientConfig.Dial; network and addr
// are ignored.
func (l *MemListener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- memConn{server, l.name}:
		return memConn{client, l.name}, nil
	case <-l.closed:
		_, _ = client.Close(), server.Close()
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memAddr(l.name), Err: net.ErrClosed}
	case <-ctx.Done():
		_, _ = client.Close(), server.Close()
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *MemListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "mem", Addr: memAddr(l.name), Err: net.ErrClosed}
	}
}

// Close implements net.Listener. Connections that exist live on.
func (l *MemListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *MemListener) Addr() net.Addr { return memAddr(l.name) }

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return "mem:" + string(a) }

// memConn gives a pipe an address that isLoopback knows.
type memConn struct {
	net.Conn
	name string
}

func (c memConn) LocalAddr() net.Addr  { return memAddr(c.name) }
func (c memConn) RemoteAddr() net.Addr { return memAddr(c.name) }

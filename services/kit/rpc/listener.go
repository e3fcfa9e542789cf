package rpc

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
)

// limitListener closes connections above its limit at once: a peer that is refused goes elsewhere or backs off, one
// that waits in a backlog does neither.
type limitListener struct {
	net.Listener
	free    chan struct{} // holds one token per open connection
	log     *slog.Logger
	sampler *sampler
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitConn{Conn: conn, free: l.free}, nil
		default:
			_ = conn.Close()
			if repeats, ok := l.sampler.take(""); ok {
				l.log.Warn("connection refused: too many connections are open", "limit", cap(l.free), "peer", conn.RemoteAddr().String(), "repeated", repeats)
			}
		}
	}
}

type limitConn struct {
	net.Conn
	once sync.Once
	free chan struct{}
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.free })
	return err
}

// quietHandler samples what net/http logs by itself: failed handshakes of a peer that retries forever.
type quietHandler struct {
	slog.Handler
	sampler *sampler
}

func (h *quietHandler) Handle(ctx context.Context, record slog.Record) error {
	repeats, ok := h.sampler.take(withoutPort(record.Message))
	if !ok {
		return nil
	}
	if repeats > 0 {
		record.AddAttrs(slog.Int("repeated", repeats))
	}
	return h.Handler.Handle(ctx, record)
}

// withoutPort drops the port of the first address in a message such as
// "http: TLS handshake error from 10.0.0.7:41234: EOF", so that retries of one peer are one key.
func withoutPort(message string) string {
	before, after, found := strings.Cut(message, " from ")
	if !found {
		return message
	}
	addr, rest, _ := strings.Cut(after, ": ")
	if host, _, err := net.SplitHostPort(addr); err == nil {
		addr = host
	}
	return before + addr + rest
}

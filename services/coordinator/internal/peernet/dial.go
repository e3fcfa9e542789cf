package peernet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Dial implements raft.StreamLayer. The name is resolved now.
func (l *Layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	c, _, err := l.dial(ctx, string(addr), l.c.Expected(string(addr)), kindRaft)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Probe asks who answers at a Raft address, and checks that it is node and could be one of us (COORD-13.8).
func (l *Layer) Probe(ctx context.Context, addr, node string) error {
	c, _, err := l.dial(ctx, addr, node, kindProbe)
	if err != nil {
		return err
	}
	return c.Close()
}

// Who asks which node answers at a Raft address.
func (l *Layer) Who(ctx context.Context, addr string) (string, error) {
	c, theirs, err := l.dial(ctx, addr, "", kindProbe)
	if err != nil {
		return "", err
	}
	return theirs.node, c.Close()
}

// Gone reports whether a process does not run any more: its address refuses connections, closes them before it says who
// it is, or is served by another process. No answer in time is not proof.
func (l *Layer) Gone(ctx context.Context, addr, instance string) bool {
	c, theirs, err := l.dial(ctx, addr, "", kindProbe)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
	}
	_ = c.Close()
	return theirs.instance != instance
}

func (l *Layer) dial(ctx context.Context, addr, expected string, kind byte) (net.Conn, hello, error) {
	c, id, err := l.connect(ctx, addr)
	if err != nil {
		return nil, hello{}, err
	}
	theirs, err := l.greet(ctx, c, id, expected, kind)
	if err != nil {
		_ = c.Close()
		return nil, hello{}, fmt.Errorf("Raft handshake with %s: %w", addr, err)
	}
	return c, theirs, nil
}

// connect makes the connection, with TLS where the mode says so.
func (l *Layer) connect(ctx context.Context, addr string) (*conn, *identity.ID, error) {
	raw, err := l.c.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	c := l.track(raw)
	if c == nil {
		return nil, nil, net.ErrClosed
	}
	if l.c.Mode == Plaintext {
		return c, nil, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	kinds := []identity.Kind{identity.Coordinator}
	if l.c.AcceptAdmin {
		kinds = append(kinds, identity.Admin)
	}
	secured := tls.Client(raw, l.c.Identity.ClientConfig(host, identity.Accept(kinds...), alpn))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		if l.c.Mode == Optional && notTLS(err) {
			return l.connectPlain(ctx, addr)
		}
		return nil, nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	id, err := identity.FromState(secured.ConnectionState())
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	c.Conn = secured
	return c, &id, nil
}

// notTLS reports whether a TLS handshake failed because the other end speaks plaintext: it answers with something else
// or, being one of ours, hangs up.
func notTLS(err error) bool {
	var other tls.RecordHeaderError
	return errors.As(err, &other) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// connectPlain is the second try of mode Optional, at a peer that does not speak TLS yet.
func (l *Layer) connectPlain(ctx context.Context, addr string) (*conn, *identity.ID, error) {
	raw, err := l.c.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	c := l.track(raw)
	if c == nil {
		return nil, nil, net.ErrClosed
	}
	return c, nil, nil
}

// greet does the dialler's side of the handshake.
func (l *Layer) greet(ctx context.Context, c *conn, id *identity.ID, expected string, kind byte) (hello, error) {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(handshakeTimeout)
	}
	_ = c.SetDeadline(end)
	release := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer release()
	mine := hello{kind: kind, uuid: l.c.UUID(), node: l.c.NodeID, instance: l.instance}
	if err := mine.write(c); err != nil {
		return hello{}, err
	}
	theirs, err := readHello(c)
	switch {
	case err != nil:
		return hello{}, err
	case theirs.verdict != "":
		return hello{}, fmt.Errorf("refused by node %q of group %q: %s", theirs.node, theirs.uuid, theirs.verdict)
	case mine.uuid != "" && theirs.uuid != "" && mine.uuid != theirs.uuid:
		l.c.OnRefused("other-group")
		return hello{}, fmt.Errorf("node %q belongs to group %q, and this node to group %q", theirs.node, theirs.uuid, mine.uuid)
	case expected != "" && theirs.node != expected:
		l.c.OnRefused("wrong-node")
		return hello{}, fmt.Errorf("node %q answered instead of %q: the name may still resolve to an old address", theirs.node, expected)
	case id != nil && id.Kind == identity.Coordinator && id.Name != theirs.node:
		l.c.OnRefused("identity")
		return hello{}, fmt.Errorf("node %q has the certificate of %s", theirs.node, id)
	}
	if !release() && ctx.Err() != nil {
		return hello{}, ctx.Err()
	}
	_ = c.SetDeadline(time.Time{})
	return theirs, nil
}

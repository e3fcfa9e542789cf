package rpc

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// COORD-7.15: a few TLS handshakes compute at a time. Who waits for its peer holds no slot, who waits too long for a slot is
// let go, and no slot is lost, however the connection continues or ends.
func TestHandshakesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHandshakeListener(nil, slog.New(slog.DiscardHandler))
		open := func() (*handshakeConn, net.Conn) {
			near, far := net.Pipe()
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			return &handshakeConn{Conn: near, listener: l}, far
		}
		buf := make([]byte, 1)
		hello := func(c *handshakeConn, far net.Conn) error {
			go func() { _, _ = far.Write([]byte{1}) }()
			_, err := c.Read(buf)
			return err
		}
		var busy []*handshakeConn
		for range cap(l.slots) {
			c, far := open()
			if err := hello(c, far); err != nil {
				t.Fatal(err)
			}
			busy = append(busy, c)
		}
		late, far := open()
		if err := hello(late, far); !errors.Is(err, errHandshakesFull) {
			t.Errorf("a handshake beyond the limit got %v", err)
		}
		_ = busy[0].Close() // one that fails
		c, far := open()
		if err := hello(c, far); err != nil {
			t.Errorf("after one ended: %v", err)
		}
		answer := func() { // the server's flight, the peer's, and the first frame of the protocol above
			go func() { _, _ = far.Read(buf) }()
			if _, err := c.Write([]byte{1}); err != nil {
				t.Error(err)
			}
		}
		answer()
		if len(l.slots) != cap(l.slots)-1 {
			t.Errorf("%d slots are held while the peer computes", len(l.slots))
		}
		if err := hello(c, far); err != nil {
			t.Error(err)
		}
		go func() { // the protocol above reads while its first frame is written
			time.Sleep(time.Millisecond)
			_, _ = far.Write([]byte{1})
		}()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		answer()
		if !c.done.Load() {
			t.Error("the handshake has not ended")
		}
		for range 2 * cap(l.slots) { // what comes after it takes no slots
			if err := hello(c, far); err != nil {
				t.Error(err)
			}
		}
		for _, other := range busy {
			_ = other.Close()
		}
		if len(l.slots) != 0 {
			t.Errorf("%d slots are lost", len(l.slots))
		}
	})
}

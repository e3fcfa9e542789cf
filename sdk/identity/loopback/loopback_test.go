package loopback_test

import (
	"net"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// A port is one owner's until it is released, and its TCP side is free for a child to bind, again and again.
func TestReservedPortsAreDistinctAndBindable(t *testing.T) {
	ports, err := loopback.ReserveN(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		t.Cleanup(p.Release)
		if seen[p.Number()] {
			t.Fatalf("port %d was handed out twice", p.Number())
		}
		seen[p.Number()] = true
		for range 2 { // a child that restarts binds the same port again
			l, err := net.Listen("tcp", p.Addr())
			if err != nil {
				t.Fatalf("reserved port: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A port on which somebody listens is never handed out, and a released one may be claimed again.
func TestReleaseReturnsThePort(t *testing.T) {
	p, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.ListenPacket("udp4", p.Addr()); err == nil {
		_ = c.Close()
		t.Fatal("the claim on a reserved port does not exclude others")
	}
	p.Release()
	p.Release()
	c, err := net.ListenPacket("udp4", p.Addr())
	if err != nil {
		t.Fatalf("the claim outlives Release: %v", err)
	}
	_ = c.Close()
}

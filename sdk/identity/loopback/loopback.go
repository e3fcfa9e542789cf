// Package loopback hands out TCP ports on 127.0.0.1 that stay the caller's until they are released.
//
// Asking the kernel for "port 0", closing the socket and giving the number to a child process is a race: any other
// process, or any outgoing connection, may take the port before the child binds it, and again each time the child
// restarts. A reserved port here is safe for both reasons. It lies below the range from which Linux and macOS take
// ports for outgoing connections, and it is claimed for as long as it is held by a UDP socket bound to the same
// number: the child needs only the TCP port, the UDP port is free for us, and the kernel gives it to one process at a
// time and takes it back when that process dies. So there is no lock file to leak.
//
// It never listens for connections and never touches an interface other than loopback. Start at Reserve. Safe for
// concurrent use by goroutines and by processes. Tests of all modules use it, and package conformance for the programs that it starts.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	host = "127.0.0.1"

	// portMin and portMax bound the search. 32768 is where Linux starts ephemeral ports by default (macOS: 49152);
	// 20000 leaves the well-known development ports alone.
	portMin = 20000
	portMax = 32767
)

// ErrExhausted says that every port of the range is taken.
var ErrExhausted = errors.New("no free loopback port")

// Port is one reserved port. The zero value is not usable; Reserve makes one.
type Port struct {
	number  int
	claim   net.PacketConn
	release sync.Once
}

// Reserve claims a port on which nothing listens. The caller must Release it.
func Reserve() (*Port, error) {
	const ports = portMax - portMin + 1
	first := rand.IntN(ports) // spreads processes that start together; any start is correct
	for i := range ports {
		if p := claim(portMin + (first+i)%ports); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w between %d and %d", ErrExhausted, portMin, portMax)
}

// ReserveN claims n ports, or none.
func ReserveN(n int) ([]*Port, error) {
	ports := make([]*Port, 0, n)
	for range n {
		p, err := Reserve()
		if err != nil {
			for _, p := range ports {
				p.Release()
			}
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// claim returns nil when the number is somebody else's, for UDP or for TCP.
func claim(number int) *Port {
	address := net.JoinHostPort(host, strconv.Itoa(number))
	held, err := net.ListenPacket("udp4", address)
	if err != nil {
		return nil
	}
	probe, err := net.Listen("tcp4", address)
	if err != nil {
		_ = held.Close()
		return nil
	}
	_ = probe.Close()
	return &Port{number: number, claim: held}
}

// Addr reserves a port until a test ends and returns "127.0.0.1:<number>". t is a *testing.T.
func Addr(t interface {
	Helper()
	Cleanup(f func())
	Fatal(args ...any)
}) string {
	t.Helper()
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Addr()
}

// Number returns the port number.
func (p *Port) Number() int { return p.number }

// String returns the port number as flags want it.
func (p *Port) String() string { return strconv.Itoa(p.number) }

// Addr returns "127.0.0.1:<number>".
func (p *Port) Addr() string { return net.JoinHostPort(host, p.String()) }

// Release gives the port back. It may be called more than once.
func (p *Port) Release() {
	p.release.Do(func() { _ = p.claim.Close() })
}

package peernet

import (
	"errors"
	"fmt"
	"io"
)

// The handshake: the dialler says hello, the acceptor answers with a hello of its own and a verdict.
const (
	magic    = "BIGFLEET-RAFT\x01" // the last byte is the protocol version
	textMax  = 255
	kindRaft = 'r'
	// kindProbe asks who is there and closes; a leader does it before it adds a node (COORD-13.8).
	kindProbe = 'p'
)

// hello says who is at one end.
type hello struct {
	kind     byte
	uuid     string // of the group; empty while the node has none
	node     string
	instance string // of the process, which distinguishes two processes with one id
	verdict  string // from the acceptor: empty is welcome, else a reason token
}

func (h hello) write(w io.Writer) error {
	b := append([]byte(magic), h.kind)
	for _, s := range []string{h.uuid, h.node, h.instance, h.verdict} {
		if len(s) > textMax {
			return fmt.Errorf("%q is too long for a handshake", s[:20])
		}
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	_, err := w.Write(b)
	return err
}

// errNotRaft means that the other end does not speak this protocol.
var errNotRaft = errors.New("the other end does not speak BigFleet's Raft protocol")

// stranger says what the other end speaks instead, by its first byte, and what to do.
func stranger(first byte) error {
	switch first {
	case 'P', 'G', 'H', 'O', 'D': // PRI and POST, GET, HEAD, OPTIONS, DELETE
		return fmt.Errorf("%w but HTTP: this is the port of --raft-bind; --peers, --join-addr and clients need the port of --listen", errNotRaft)
	case 0x16: // a TLS handshake record
		return fmt.Errorf("%w but TLS, which this replica does not use: set --tls-cert, --tls-key and --tls-ca", errNotRaft)
	}
	return errNotRaft
}

func readHello(r io.Reader) (hello, error) {
	head := make([]byte, len(magic)+1)
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return hello{}, err
	}
	if head[0] != magic[0] {
		return hello{}, stranger(head[0]) // do not wait for more
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return hello{}, err
	}
	if string(head[:len(magic)]) != magic {
		return hello{}, errNotRaft
	}
	h := hello{kind: head[len(magic)]}
	for _, field := range []*string{&h.uuid, &h.node, &h.instance, &h.verdict} {
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return hello{}, err
		}
		text := make([]byte, n[0])
		if _, err := io.ReadFull(r, text); err != nil {
			return hello{}, err
		}
		*field = string(text)
	}
	return h, nil
}

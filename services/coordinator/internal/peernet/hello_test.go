package peernet

import (
	"errors"
	"strings"
	"testing"
)

// COORD-21.55: who reaches the Raft port with another protocol is refused at its first byte, and the log says which port or which
// certificates were meant.
func TestStrangersAreNamed(t *testing.T) {
	for first, says := range map[string]string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "--listen", "GET / HTTP/1.1\r\n": "--listen", "\x16\x03\x01": "--tls-cert", "\x00\x01": "does not speak",
	} {
		_, err := readHello(strings.NewReader(first))
		if !errors.Is(err, errNotRaft) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %q", first, err, says)
		}
	}
}

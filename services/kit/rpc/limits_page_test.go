package rpc

import (
	"os"
	"strings"
	"testing"
	"time"
)

// docs/security.md says what the code does.
func TestLimitsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]bool{
		"| connections and calls of one certificate | 256 and 2,000 |":                peerConnectionsMax == 256 && peerCallsMax == 2000,
		"| time for a request that does not stream | 30 s |":                          bodyTimeout == 30*time.Second,
		"| connections × header bytes of a listener | 20,000 × 64 KiB |":              connectionsMax == 20_000 && headerBytesMax == 64<<10,
		"no handshake; 10 s for the first bytes; 20,000 connections on a listener":    headerTimeout == 10*time.Second,
		"| strings, bytes, lists and maps of every request | 4 KiB, 16 MiB, 100,000,": TextBytesMax == 4<<10 && BlobBytesMax == 16<<20 && ItemsMax == 100_000,
		"| request: shard reads and orders | 4 MiB |":                                 ReadLimits().ReadMaxBytes == 4<<20,
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the page does not say %q", row)
		} else if !want {
			t.Errorf("the page says %q, and the code another figure", row)
		}
	}
}

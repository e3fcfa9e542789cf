package server

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// COORD-16.10, WIRE-9.7: whatever a caller writes as its reason, the entry that audits the call can be encoded.
func TestReasonFitsAnEntry(t *testing.T) {
	for _, header := range []string{"", "ärger", strings.Repeat("x", reasonMax-1) + "é", strings.Repeat("漢", reasonMax), "bad \xff bytes"} {
		got := reasonOf(header)
		if len(got) > reasonMax || !utf8.ValidString(got) || !strings.HasPrefix(header, got[:min(len(got), 4)]) {
			t.Errorf("%.20q... becomes %.20q... of %d bytes", header, got, len(got))
		}
		if _, err := proto.Marshal(&pb.AppendAudit{Reason: got}); err != nil {
			t.Errorf("%.20q...: %v", header, err)
		}
	}
}

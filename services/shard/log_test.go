package shard_test

import (
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-30.1: what happens is said once: one line for the start, one for the stop, one for each end of a session.
func TestEachThingIsSaidOnce(t *testing.T) {
	s := start(t, NewProvider(slots(1)...).Serve(t))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	Await(t, o, "the hello ack", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"started", "stopping", "session opened", "session ended"} {
		n := 0
		for line := range strings.SplitSeq(s.Log.String(), "\n") {
			if strings.Contains(line, "level=INFO") && strings.Contains(line, text) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q was said %d times", text, n)
		}
	}
	if v := shard.Version(); v == "" || v == "unknown" {
		t.Errorf("this build calls itself %q", v)
	}
}

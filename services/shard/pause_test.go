package shard_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-19.5: a pause for longer than time can count is refused; the longest one ends in the future.
func TestALongPauseDoesNotEndInThePast(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	ask := func(seconds int64) (*pb.Pause, error) {
		answer, err := s.Admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "test", TtlSeconds: seconds}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetPause(), nil
	}
	for _, seconds := range []int64{math.MaxInt64, math.MaxInt64 / int64(time.Second), 3_153_600_001} {
		if p, err := ask(seconds); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a pause of %d s: %v, %v", seconds, p, err)
		}
	}
	p, err := ask(3_153_600_000)
	if err != nil || time.Until(time.Unix(0, p.GetExpiresAtUnixNanos())) < 99*365*24*time.Hour {
		t.Errorf("the longest pause: %v, %v", p, err)
	}
}

// WIRE-9.7: an order for a person names both in what is kept, the certificate or the address and the person; a name that is none is refused.
func TestAnOrderNamesThePerson(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	pause := func(names ...string) (*pb.Pause, error) {
		r := connect.NewRequest(&pb.PauseActuationRequest{Reason: fmt.Sprint("test ", len(names))})
		r.Header()["Bigfleet-Actor"] = names
		answer, err := s.Admin.PauseActuation(t.Context(), r)
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetPause(), nil
	}
	for _, names := range [][]string{{""}, {"a", "b"}, {strings.Repeat("a", 129)}, {"a\u202eb"}, {"\xff"}} {
		if p, err := pause(names...); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v, %v", names, p, err)
		}
	}
	p, err := pause("alice@example.com")
	if err != nil || !strings.HasPrefix(p.GetActor(), "plaintext ") || !strings.HasSuffix(p.GetActor(), " for alice@example.com") {
		t.Errorf("%v, %v", p, err)
	}
	if p, err := pause(); err != nil || strings.Contains(p.GetActor(), " for ") {
		t.Errorf("without a person: %v, %v", p, err)
	}
}

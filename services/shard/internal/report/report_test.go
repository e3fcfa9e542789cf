package report

import (
	"fmt"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-7.13, 21.35: acks that do not get through are put back in front, in order. Beyond 1,024 the oldest are dropped and
// counted, however long the coordinator is away.
func TestAcksWaitInFrontAndAreBounded(t *testing.T) {
	dropped := 0
	r := &Reporter{cfg: Config{OnDropped: func(n int) { dropped += n }}}
	for round := range 2 * acksMax {
		sent := r.acks // as build takes them
		r.acks = []*pb.InstructAck{{InstructionId: fmt.Sprint(round)}}
		r.requeue(sent)
	}
	if len(r.acks) != acksMax || dropped != acksMax {
		t.Fatalf("%d acks wait, %d were dropped", len(r.acks), dropped)
	}
	for i, a := range r.acks {
		if want := fmt.Sprint(acksMax + i); a.InstructionId != want {
			t.Fatalf("ack %d is %s, want %s", i, a.InstructionId, want)
		}
	}
}

package provider_test

import (
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// estimating is a cloud that knows how long its drains take.
type estimating struct{ *cloud }

func (estimating) DrainEstimate(provider.Offering) time.Duration { return 29500 * time.Millisecond }

// PROV-9.14: each machine shows how long its drain usually takes: what the offering says, else what the backend knows; it stays when the
// machine gets a host that says nothing about it.
func TestDrainEstimates(t *testing.T) {
	own := small(1)
	own.Name, own.DrainEstimate = "own", 7*time.Second
	r := startCloud(t, estimating{newCloud()}, fastRounds(provider.WithOfferings(small(1), own))...)
	r.must(t, provider.Create, id(0), stIdle)
	r.must(t, provider.Configure, id(0), stConfigured)
	got := map[string]int32{}
	for _, m := range r.list(t, nil).GetMachines() {
		got[m.GetId()] = m.GetDrainEstimateSeconds()
	}
	if got[id(0)] != 30 || got["cloud-own-0"] != 7 {
		t.Errorf("estimates %v, want 30 s of the backend and 7 s of the offering", got)
	}
}

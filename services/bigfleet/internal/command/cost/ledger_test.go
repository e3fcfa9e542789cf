package cost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// OPS-4.19, PROV-26.13: over histories of changing demand and refused Creates, what the decision log cost is what the simulated
// cloud booked, within a thousandth, whatever --points says; and `cost` and `status` of the running shard agree.
func TestCostsAreWhatTheCloudBooked(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func history(t *testing.T, draw *rand.Rand) {
	dir := ""
	offerings := []provider.Offering{virtual.Slots("a", "a", 6), virtual.Slots("b", "b", 6)}
	virtual.Run(t, offerings, func(c *shard.Config) { dir, c.NoRollupGuard = c.DataDir, true }, func(v *virtual.Fleet) {
		red := v.Operator("red", nil)
		v.Stock(&pb.MachineSelector{Zone: "b"}, 2) // so that Creates are refused
		for range 4 {
			red.Asks(virtual.Need("web", draw.IntN(11), 4, 0))
			time.Sleep(time.Duration(10+draw.IntN(20)) * time.Minute)
			live, summary := perHour(t, v)
			if math.Abs(live-summary) > 1e-6 {
				t.Errorf("cost says $%v/h, status $%v/h", live, summary)
			}
		}
		red.Asks() // a log ends at its last step, the cloud books on: compare when nothing exists any more
		for deadline := time.Now().Add(12 * time.Hour); ; time.Sleep(10 * time.Minute) {
			if left, _ := perHour(t, v); left == 0 {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("$%v/h are left", left)
			}
		}
		got, err := v.Control.GetState(context.Background(), connect.NewRequest(&pb.GetStateRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		booked := 0.0
		for _, dollars := range got.Msg.GetLedger().GetSpendByCapacityType() {
			booked += dollars
		}
		for _, points := range []string{"2", "7", "100"} {
			var log struct{ SpentUsd float64 }
			if err := json.Unmarshal([]byte(v.Does("cost", "--record", dir, "--points", points, "-o", "jsonl")), &log); err != nil {
				t.Fatal(err)
			}
			if booked < 0.1 || math.Abs(log.SpentUsd-booked) > booked/1000 {
				t.Errorf("--points %s: $%.4f by the log, $%.4f by the cloud", points, log.SpentUsd, booked)
			}
		}
	})
}

// perHour is what `cost` and `status` say at one moment.
func perHour(t *testing.T, v *virtual.Fleet) (cost, status float64) {
	t.Helper()
	var of struct {
		Points []struct {
			Rows []struct{ CostPerHourByState map[string]float64 }
		}
	}
	raw := v.Does("cost", "-o", "jsonl")
	if err := json.Unmarshal([]byte(raw), &of); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	for _, p := range of.Points {
		for _, r := range p.Rows {
			for _, dollars := range r.CostPerHourByState {
				cost += dollars
			}
		}
	}
	var fleet struct{ CostPerHour float64 }
	raw = v.Does("status", "-o", "jsonl")
	if err := json.Unmarshal([]byte(raw), &fleet); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return cost, fleet.CostPerHour
}

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
// cloud booked, within a thousandth, whatever --points says; and `cost` and `status` of the running shard agree. A machine that the cloud took
// counts until it is learnt: that much more is allowed for each, and none is left in the end.
func TestCostsAreWhatTheCloudBooked(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1)), seed >= 2) })
	}
}

// learnt bounds how long it takes to learn that a host is gone: by the next List where the machine was at rest, by two rounds of the provider's
// reconciliation where it left within an operation (PROV-17.4).
const learnt = 10*time.Second + 2*2*time.Minute

func history(t *testing.T, draw *rand.Rand, storms bool) {
	dir := ""
	offerings := []provider.Offering{virtual.Slots("a", "a", 6), virtual.Slots("b", "b", 6, func(o *provider.Offering) { o.CapacityType, o.InterruptionProbability = provider.Spot, 1e-9 })}
	virtual.Run(t, offerings, func(c *shard.Config) { dir, c.NoRollupGuard = c.DataDir, true }, func(v *virtual.Fleet) {
		red := v.Operator("red", nil)
		v.Stock(&pb.MachineSelector{Zone: "b"}, 2) // so that Creates are refused
		taken := 0
		for range 4 {
			red.Asks(virtual.Need("web", draw.IntN(11), 4, 0))
			time.Sleep(time.Duration(10+draw.IntN(20)) * time.Minute)
			live, summary := perHour(t, v)
			if math.Abs(live-summary) > 1e-6 {
				t.Errorf("cost says $%v/h, status $%v/h", live, summary)
			}
			if !storms {
				continue
			}
			storm, err := v.Control.Interrupt(context.Background(), connect.NewRequest(&pb.InterruptRequest{
				Selector: &pb.MachineSelector{CapacityType: pb.CapacityType_CAPACITY_TYPE_SPOT}, Max: int32(draw.IntN(3)), NoticeMillis: 120_000 * int64(draw.IntN(2))}))
			if err != nil {
				t.Fatal(err)
			}
			taken += len(storm.Msg.GetMachineIds())
		}
		red.Asks() // a log ends at its last step, the cloud books on: compare when nothing exists any more
		for deadline := time.Now().Add(12 * time.Hour); ; time.Sleep(10 * time.Minute) {
			if left, _ := perHour(t, v); left == 0 {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("$%v/h are left:\n%s", left, v.Does("get", "machines"))
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
			if booked < 0.1 || math.Abs(log.SpentUsd-booked) > booked/1000+float64(taken)*learnt.Hours()*0.2 {
				t.Errorf("--points %s: $%.4f by the log, $%.4f by the cloud, which took %d machines", points, log.SpentUsd, booked, taken)
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

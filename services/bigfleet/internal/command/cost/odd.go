package cost

import (
	"context"
	"math"
	"strconv"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// pinnedAbove is the largest penalty that is an amount; what is above it must not be interrupted (ENG-4.5).
const pinnedAbove = 1 << 23

// odd says what costs without need (OPS-4.19): work that must not be interrupted on machines that may be taken back, and
// machines that are paid for anyway idle beside others that are bought. A shard that does not answer was named before.
func odd(ctx context.Context, a *app.App, f *fleet.Fleet, shards []fleet.Shard) {
	answers, _ := fleet.Each(ctx, f, shards, "checking for waste", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.GetCostResponse, error) {
		got, err := s.Read.GetCost(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCostRequest{GroupBy: []string{"capacity", "penalty"}}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	groups := map[string]*sum{}
	for _, got := range answers {
		if got != nil && len((*got).GetPoints()) > 0 {
			add(groups, (*got).GetPoints()[0].GetRows())
		}
	}
	for _, say := range oddities(groups) {
		a.Notef("%s", say)
	}
}

// oddities looks at groups by capacity type and penalty.
func oddities(groups map[string]*sum) (out []string) {
	var pinned, idle, bought sum
	for _, s := range groups {
		capacity, penalty := s.group[0], s.group[1]
		dollars, err := strconv.ParseFloat(penalty, 64)
		if err != nil {
			dollars = math.NaN()
		}
		switch {
		case capacity == "spot" && dollars > pinnedAbove:
			pinned.machines += s.machines
			pinned.all += s.all
		case fixed(capacity) && s.idle > 0:
			idle.all += s.idle
		}
		if !fixed(capacity) {
			bought.all += s.arriving
		}
	}
	if pinned.machines > 0 {
		out = append(out, "look at: "+output.Count(int(pinned.machines), "spot machine")+" ("+output.Dollars(pinned.all)+") serve what must not be interrupted; `bigfleet cost --by cluster,capacity,penalty` says whose")
	}
	if idle.all > 0 && bought.all > 0 {
		out = append(out, "look at: fixed capacity for "+output.Dollars(idle.all)+" is idle while other machines for "+output.Dollars(bought.all)+" are on their way; `bigfleet get machines --state idle -o wide` shows it, `bigfleet explain machine/ID` why it does not fit")
	}
	return out
}

// fixed is capacity that is paid for whether it is used or not.
func fixed(capacity string) bool { return capacity == "bare-metal" || capacity == "reserved" }

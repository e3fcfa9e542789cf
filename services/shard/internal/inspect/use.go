package inspect

import (
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// use compares what a cluster requests with what its machines provide.
type use struct {
	requested, provided, unmet amounts
	serving, stuck             int64 // millionths of a dollar an hour
}

// amounts are thousandths by resource.
type amounts map[string]int64

func (a *amounts) add(list []resource.Quantity) {
	if *a == nil {
		*a = amounts{}
	}
	for _, q := range list {
		(*a)[q.Name] = resource.AddSat((*a)[q.Name], max(q.Milli, 0))
	}
}

func (a amounts) text() map[string]string {
	out := make(map[string]string, len(a))
	for name, milli := range a {
		if milli > 0 {
			out[name] = quantity.Format(name, milli)
		}
	}
	return out
}

// machine adds one. A machine that is stuck serves no cluster, whatever its state says.
func (u *use) machine(m *core.MachineView) {
	switch state := m.Machine.State; {
	case state == inventory.Idle: // kept, and counted by its state
	case state == inventory.Failed, slices.Contains(m.Flags, core.FlagStuck), slices.Contains(m.Flags, core.FlagUnjoined):
		u.stuck += m.Machine.Price
	case state == inventory.Configured:
		u.serving += m.Machine.Price
		u.provided.add(m.Machine.Resources)
	}
}

// unused is the part of what serves that is not used, as a fraction: by the resource of which the largest part is. What no machine covers
// uses nothing.
func (u *use) unused() float64 {
	most := 0.0
	for name, milli := range u.provided {
		if milli > 0 {
			most = max(most, min(1, float64(u.requested[name]-u.unmet[name])/float64(milli)))
		}
	}
	return 1 - most
}

func (u *use) fill(row *pb.CostRow) {
	row.Requested, row.Provided, row.Unmet = u.requested.text(), u.provided.text(), u.unmet.text()
	row.ServingPerHour, row.StuckPerHour = convert.Dollars(u.serving), convert.Dollars(u.stuck)
	row.UnusedPerHour = row.ServingPerHour * u.unused()
}

package cost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// waste is what one cluster is paid for and does not use. Machines without a cluster have a row of their own.
type waste struct {
	Cluster        string            `json:"cluster"` // "" for machines that serve no cluster
	Machines       int               `json:"machines"`
	Asked          map[string]string `json:"asked"`
	Bought         map[string]string `json:"bought"`
	UsedFraction   float64           `json:"usedFraction"` // of bought, what is asked and covered, in the resource of which most is used
	ServingPerHour float64           `json:"servingPerHour"`
	UnusedPerHour  float64           `json:"unusedPerHour"` // of the serving
	IdlePerHour    float64           `json:"idlePerHour"`
	StuckPerHour   float64           `json:"stuckPerHour"`
	WastePerHour   float64           `json:"wastePerHour"`

	asked, bought map[string]int64 // thousandths
	short         map[string]int64 // of asked, what no machine covers: it uses nothing
}

// wasted shows what is paid for and not used.
func wasted(ctx context.Context, a *app.App) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading costs", costsOfClusters)
	var all []*bigfleetv1alpha1.CostRow
	answered := false
	for _, got := range answers {
		if got != nil {
			all, answered = append(all, *got...), true
		}
	}
	if !answered && failed != nil {
		return failed
	}
	list := output.List{Columns: []output.Column{{Head: "CLUSTER"}, {Head: "MACHINES"}, {Head: "ASKED", Spare: true}, {Head: "BOUGHT", Spare: true}, {Head: "USED", Spare: true}, {Head: "SERVING"}, {Head: "UNUSED"}, {Head: "IDLE"}, {Head: "STUCK"}, {Head: "WASTE"}}}
	rows := weigh(all)
	sum := waste{Cluster: "TOTAL"}
	for _, w := range rows {
		list.Objects, list.Rows, list.Names = append(list.Objects, w), append(list.Rows, w.row()), append(list.Names, named(w.Cluster))
		sum.Machines += w.Machines
		sum.ServingPerHour, sum.UnusedPerHour, sum.IdlePerHour = sum.ServingPerHour+w.ServingPerHour, sum.UnusedPerHour+w.UnusedPerHour, sum.IdlePerHour+w.IdlePerHour
		sum.StuckPerHour, sum.WastePerHour = sum.StuckPerHour+w.StuckPerHour, sum.WastePerHour+w.WastePerHour
	}
	if len(rows) > 1 && a.Format.ForPeople() { // a spreadsheet adds up by itself
		list.Rows, list.Names = append(list.Rows, sum.row()), append(list.Names, "")
	}
	if a.Format.ForPeople() {
		a.Notef("prices as stated by the providers; UNUSED is at least this much: it counts by the resource of which most is used")
	}
	if err := a.Format.Write(a.Out, list); err != nil {
		return err
	}
	return failed
}

func named(cluster string) string {
	if cluster == "" {
		return ""
	}
	return "cluster/" + cluster
}

// costsOfClusters reads what each cluster of a shard costs, requests and is provided with.
func costsOfClusters(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.CostRow, error) {
	got, err := s.Read.GetCost(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCostRequest{GroupBy: []string{"cluster"}}))
	if err != nil || len(got.Msg.GetPoints()) == 0 {
		return nil, err
	}
	rows := got.Msg.GetPoints()[0].GetRows()
	for _, r := range rows {
		if r.GetCostPerHourByState()[configured] > 0 && r.GetServingPerHour()+r.GetStuckPerHour() == 0 {
			return nil, errors.New("this shard is older than the command and does not say what its machines provide: upgrade it, or use the command of its version")
		}
	}
	return rows, nil
}

var configured, idle = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED.String(), bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE.String()

// weigh adds up by cluster, over all shards, the largest waste first.
func weigh(rows []*bigfleetv1alpha1.CostRow) []*waste {
	by := map[string]*waste{}
	for _, r := range rows {
		cluster := r.GetGroup()[0]
		w := by[cluster]
		if w == nil {
			w = &waste{Cluster: cluster, asked: map[string]int64{}, bought: map[string]int64{}, short: map[string]int64{}}
			by[cluster] = w
		}
		w.Machines += int(r.GetMachines())
		plus(w.asked, r.GetRequested())
		plus(w.short, r.GetUnmet())
		plus(w.bought, r.GetProvided())
		w.ServingPerHour += r.GetServingPerHour()
		w.StuckPerHour += r.GetStuckPerHour()
		w.IdlePerHour += r.GetCostPerHourByState()[idle]
	}
	out := make([]*waste, 0, len(by))
	for _, w := range by {
		w.judge()
		out = append(out, w)
	}
	slices.SortFunc(out, func(x, y *waste) int {
		return cmp.Or(cmp.Compare(y.WastePerHour, x.WastePerHour), cmp.Compare(y.ServingPerHour, x.ServingPerHour), strings.Compare(x.Cluster, y.Cluster))
	})
	return out
}

// judge says how much of what serves is used.
func (w *waste) judge() {
	for name, bought := range w.bought {
		if bought > 0 {
			w.UsedFraction = max(w.UsedFraction, min(1, float64(w.asked[name]-w.short[name])/float64(bought)))
		}
	}
	w.UnusedPerHour = w.ServingPerHour * (1 - w.UsedFraction)
	w.WastePerHour = w.UnusedPerHour + w.IdlePerHour + w.StuckPerHour
	w.Asked, w.Bought = words(w.asked), words(w.bought)
}

// plus adds resources to a sum. What is not a quantity was refused where it entered.
func plus(sum map[string]int64, resources map[string]string) {
	for name, text := range resources {
		if milli, err := quantity.Parse(text, quantity.Down); err == nil {
			sum[name] += milli
		}
	}
}

func words(sum map[string]int64) map[string]string {
	out := map[string]string{}
	for name, milli := range sum {
		if name != "pods" && milli > 0 {
			out[name] = quantity.Human(name, milli)
		}
	}
	return out
}

func (w *waste) row() []string {
	used := output.Never
	if len(w.bought) > 0 {
		used = fmt.Sprintf("%.0f%%", math.Round(100*w.UsedFraction))
	}
	return []string{output.Dash(w.Cluster), fmt.Sprint(w.Machines), output.Dash(output.Vector(w.Asked)), output.Dash(output.Vector(w.Bought)), used, output.Dollars(w.ServingPerHour),
		output.Dollars(w.UnusedPerHour), output.Dollars(w.IdlePerHour), output.Dollars(w.StuckPerHour), output.Dollars(w.WastePerHour)}
}

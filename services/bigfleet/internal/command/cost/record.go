package cost

import (
	"context"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/plan"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

const pointsDefault = 24

// record is a decision log whose costs are followed.
type record struct {
	Dir           string
	Points        int
	Epoch, StopAt int64
}

// recorded replays the log and shows what the machines cost at even times of it, and at its end.
func recorded(ctx context.Context, a *app.App, by []string, r record) error {
	if r.Points < 2 || r.Points > 1000 {
		return exit.Usagef("--points %d: want 2 to 1000", r.Points)
	}
	over := a.Waits("replaying " + r.Dir + " takes long …")
	got, err := shard.Replay(ctx, shard.ReplayConfig{Dir: r.Dir, Epoch: r.Epoch, StopAt: r.StopAt, Cost: &shard.ReplayCost{GroupBy: by, Points: r.Points}}, io.Discard)
	over()
	if err != nil {
		return plan.LogError(r.Dir, err)
	}
	if d := got.Damage; d != nil && !d.Tail {
		a.Notef("warning: %s stops at byte %d, entry %d: %s; what follows is not counted", d.File, d.Offset, d.Entry, d.Why)
	}
	list := output.List{Columns: append([]output.Column{{Head: "TIME"}}, columns(by)...), Items: []proto.Message{&bigfleetv1alpha1.GetCostResponse{Points: got.Costs}}}
	for _, p := range got.Costs {
		groups := map[string]*sum{}
		add(groups, p.GetRows())
		for _, s := range sorted(groups) {
			list.Rows = append(list.Rows, append([]string{output.Time(p.GetAtUnixNanos())}, s.row()...))
			list.Names = append(list.Names, "cost/"+strings.Join(s.group, "/"))
		}
	}
	if a.Format.ForPeople() && len(got.Costs) > 1 {
		a.Notef("prices are what the providers state; together about $%.2f in %s", spent(got.Costs), output.Span(time.Duration(got.Costs[len(got.Costs)-1].GetAtUnixNanos()-got.Costs[0].GetAtUnixNanos())))
	}
	return a.Format.Write(a.Out, list)
}

// spent is dollars from the first point to the last, if each lasted until the next.
func spent(points []*bigfleetv1alpha1.CostPoint) (dollars float64) {
	for i, p := range points[:len(points)-1] {
		groups := map[string]*sum{}
		add(groups, p.GetRows())
		for _, s := range groups {
			dollars += s.all * time.Duration(points[i+1].GetAtUnixNanos()-p.GetAtUnixNanos()).Hours()
		}
	}
	return dollars
}

package cost

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/plan"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

const pointsDefault = 24

// record is a decision log whose costs are followed.
type record struct {
	Dir           string
	Points        int
	Epoch, StopAt int64
	From, To      string
}

// recorded replays the log and shows what the machines cost at even times of it, and at its end.
func recorded(ctx context.Context, a *app.App, by []string, r record) error {
	if r.Points < 2 || r.Points > 1000 {
		return exit.Usagef("--points %d: it must be 2 to 1000", r.Points)
	}
	from, to, err := r.span(a.Now())
	if err != nil {
		return err
	}
	over := a.Waits("replaying " + r.Dir + " is taking a while …")
	got, err := shard.Replay(ctx, shard.ReplayConfig{Dir: r.Dir, Epoch: r.Epoch, StopAt: r.StopAt, Cost: &shard.ReplayCost{GroupBy: by, Points: r.Points, From: from, To: to}}, io.Discard)
	over()
	if err != nil {
		return plan.LogError(r.Dir, err)
	}
	if d := got.Damage; d != nil && !d.Tail {
		a.Notef("warning: %s ends at byte %d, entry %d: %s; later entries are not counted", d.File, d.Offset, d.Entry, d.Why)
	}
	if len(got.Costs) == 0 {
		return &exit.Error{Code: exit.NotFound, Message: r.Dir + " has nothing of that time", Hint: "Without --from and --to the whole log is shown; --epoch names the log of an older process"}
	}
	list := output.List{Columns: append([]output.Column{{Head: "TIME"}}, columns(by)...), Items: []proto.Message{&bigfleetv1alpha1.GetCostResponse{Points: got.Costs, SpentUsd: got.Spent}}}
	for _, p := range got.Costs {
		groups := map[string]*sum{}
		add(groups, p.GetRows())
		for _, s := range sorted(groups) {
			list.Rows = append(list.Rows, append([]string{output.Time(p.GetAtUnixNanos())}, s.row()...))
			list.Names = append(list.Names, "cost/"+strings.Join(s.group, "/"))
		}
	}
	if a.Format.ForPeople() {
		a.Notef("prices as stated by the providers")
		total := make([]string, len(list.Columns))
		total[0], total[len(total)-1] = "SPENT", fmt.Sprintf("$%.2f", got.Spent)
		list.Rows, list.Names = append(list.Rows, total), append(list.Names, "")
	}
	return a.Format.Write(a.Out, list)
}

// span is the time that is asked for, in Unix nanoseconds; 0 where it is open.
func (r record) span(now time.Time) (from, to int64, err error) {
	var begins, ends time.Time
	if r.From != "" {
		if begins, err = when.Parse("from", r.From, now); err != nil {
			return 0, 0, err
		}
		from = begins.UnixNano()
	}
	if r.To != "" {
		if ends, err = when.ParseEnd("to", r.To, begins, now); err != nil {
			return 0, 0, err
		}
		to = ends.UnixNano()
	}
	if to != 0 && to <= from {
		return 0, 0, exit.Usagef("--to %s is not after --from %s", ends.Format(time.RFC3339), begins.Format(time.RFC3339))
	}
	return from, to, nil
}

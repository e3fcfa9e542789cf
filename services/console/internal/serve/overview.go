package serve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

const shownMax = 50 // waiting needs and records on the overview

// GetSources names the sources and how fresh each is.
func (c *Console) GetSources(ctx context.Context, _ *connect.Request[pb.GetSourcesRequest]) (*connect.Response[pb.GetSourcesResponse], error) {
	v, _ := ctx.Value(viewerKey{}).(viewer)
	return connect.NewResponse(&pb.GetSourcesResponse{Sources: c.statuses(), WritesAllowed: c.Orders.may(v), User: v.user}), nil
}

// statuses are all sources, with clusters where none is read: what that costs should be known (OPS-6.4).
func (c *Console) statuses() []*pb.SourceStatus {
	out := c.Sources.Statuses()
	if c.Clusters == nil {
		out = append(out, &pb.SourceStatus{Source: "clusters", Flag: "--kubeconfig"})
	}
	return out
}

// WatchOverview streams the overview, whole, once a second.
func (c *Console) WatchOverview(ctx context.Context, req *connect.Request[pb.WatchOverviewRequest], out *connect.ServerStream[pb.WatchOverviewResponse]) error {
	leave, err := c.view()
	if err != nil {
		return err
	}
	defer leave()
	defer c.Sources.Watch()()
	return c.every(ctx, func() error { return out.Send(c.overview(req.Msg.GetShardId())) })
}

// every calls do at once, and then after changes, at most once a second and at least every five.
func (c *Console) every(ctx context.Context, do func() error) error {
	for {
		changed := c.Sources.Changed()
		if err := do(); err != nil {
			return err
		}
		if !sleep(ctx, tick) {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-time.After(4 * tick):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (c *Console) overview(only string) *pb.WatchOverviewResponse {
	fleet := c.Sources.Fleet()
	out := &pb.WatchOverviewResponse{
		AtUnixNanos: time.Now().UnixNano(), Sources: c.statuses(), Fleet: fleet.Status,
		UnsatisfiedByReason: map[string]int64{}, MachinesByState: map[string]int64{}, ActionsPerMinute: map[string]float64{},
	}
	unmet, stale := int64(0), []string{}
	for _, x := range c.Sources.Shards() {
		if only != "" && x.ID != only {
			continue
		}
		st := x.Snapshot()
		if st.Err != nil {
			stale = append(stale, x.ID)
		}
		if st.Status == nil {
			continue
		}
		out.Shards = append(out.Shards, st.Status)
		out.Needs += int64(st.Status.GetNeeds())
		unmet += int64(st.Status.GetUnsatisfiedNeeds())
		out.CostPerHour += st.Status.GetCostPerHour()
		for k, n := range st.Status.GetMachinesByState() {
			out.MachinesByState[k] += int64(n)
		}
		st.PerMinute(out.ActionsPerMinute)
		for _, w := range st.Status.GetWarnings() {
			out.Warnings = append(out.Warnings, x.ID+": "+w)
		}
		out.Recent = append(out.Recent, recent(st)...)
		for _, row := range needsOf(st) {
			if !row.GetNeed().GetSatisfied() {
				out.UnsatisfiedByReason[row.GetNeed().GetUnmetReason().String()]++
				out.Waiting = append(out.Waiting, row)
			}
		}
	}
	slices.SortStableFunc(out.Waiting, func(a, b *pb.FleetNeed) int {
		return cmp.Compare(a.GetNeed().GetUnmetSinceUnixNanos(), b.GetNeed().GetUnmetSinceUnixNanos())
	})
	slices.SortStableFunc(out.Recent, func(a, b *pb.DecisionRecord) int { return cmp.Compare(b.GetAtUnixNanos(), a.GetAtUnixNanos()) })
	out.Waiting, out.Recent = out.Waiting[:min(len(out.Waiting), shownMax)], out.Recent[:min(len(out.Recent), shownMax)]
	out.Headline = headline(out, unmet, stale, fleet)
	return out
}

func needsOf(st sources.State) []*pb.FleetNeed {
	if st.Needs == nil {
		return nil
	}
	return st.Needs.Rows
}

// quiet are records that say nothing to people who look at a fleet.
var quiet = map[pb.RecordType]bool{
	pb.RecordType_RECORD_TYPE_ROLLUP_ACCEPTED: true, pb.RecordType_RECORD_TYPE_GATE_OPENED: true, pb.RecordType_RECORD_TYPE_SESSION_OPENED: true,
}

func recent(st sources.State) (out []*pb.DecisionRecord) {
	for i := len(st.Records) - 1; i >= 0 && len(out) < shownMax; i-- {
		if r := st.Records[i]; !quiet[r.GetType()] {
			out = append(out, r)
		}
	}
	return out
}

// headline says whether anything is wrong: the worst first.
func headline(o *pb.WatchOverviewResponse, unmet int64, stale []string, fleet sources.Fleet) string {
	var paused, fenced int
	var down []string
	for _, s := range o.GetShards() {
		paused += len(s.GetPauses())
		if s.GetSuperseded() {
			fenced++
		}
		for _, p := range s.GetProviders() {
			if p.GetBreaker() == "open" {
				down = append(down, p.GetName())
			}
		}
	}
	slices.Sort(down)
	down = slices.Compact(down)
	var wrong []string
	say := func(when bool, format string, a ...any) {
		if when {
			wrong = append(wrong, fmt.Sprintf(format, a...))
		}
	}
	say(len(stale) > 0, "%s no answer", listed(stale, "gives", "give"))
	say(len(down) > 0, "provider %s down", listed(down, "is", "are"))
	say(fenced > 0, "%s superseded", counted(fenced, "shard is", "shards are"))
	say(paused > 0, "%s in force", counted(paused, "pause is", "pauses are"))
	say(unmet > 0, "%s", counted(int(unmet), "need waits", "needs wait"))
	say(fleet.Err != nil && !fleet.At.IsZero(), "the coordinator does not answer: shards continue without it")
	switch {
	case len(wrong) > 0:
		s := strings.Join(wrong, "; ") + "."
		return strings.ToUpper(s[:1]) + s[1:]
	case len(o.GetShards()) == 0:
		return "No shard has answered yet."
	case o.GetNeeds() == 0:
		return "Nothing asks for capacity."
	}
	met := counted(int(o.GetNeeds()), "need is", "needs are") + " met"
	if failed := o.GetMachinesByState()[pb.MachineState_MACHINE_STATE_FAILED.String()]; failed > 0 {
		return fmt.Sprintf("%s; %s failed.", met, counted(int(failed), "machine has", "machines have"))
	}
	return "All is well: " + met + "."
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func listed(names []string, one, many string) string {
	if len(names) == 1 {
		return names[0] + " " + one
	}
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more %s", strings.Join(names[:2], ", "), len(names)-2, many)
	}
	return strings.Join(names, ", ") + " " + many
}

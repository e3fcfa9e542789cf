package get

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// gather asks every shard for its rows and joins them in shard order, with the shard of each.
func gather[T proto.Message](ctx context.Context, a *app.App, what string, ask func(context.Context, fleet.Shard) ([]T, error)) (out []T, of []string, failed error) {
	f, all, err := a.Shards(ctx)
	if err != nil {
		return nil, nil, err
	}
	answers, failed := fleet.Each(ctx, f, all, what, ask)
	for i, rows := range answers {
		if rows != nil {
			out, of = append(out, *rows...), append(of, slices.Repeat([]string{all[i].Label()}, len(*rows))...)
		}
	}
	return out, of, failed
}

// by adds the shard of each row.
func by(l output.List, shards []string) output.List {
	l.Shards = shards
	return l
}

// table turns messages into a list: row says the cells, the first of which is the name.
func table[T proto.Message](prefix string, columns []output.Column, items []T, row func(T) []string) output.List {
	l := output.List{Columns: columns}
	for _, m := range items {
		cells := row(m)
		l.Rows = append(l.Rows, cells)
		l.Names = append(l.Names, prefix+cells[0])
		l.Items = append(l.Items, m)
	}
	return l
}

// columns reads heads: + for what shows with -o wide only, - for what gives way on a narrow screen.
func columns(heads ...string) []output.Column {
	out := make([]output.Column, len(heads))
	for i, h := range heads {
		name, wide := strings.CutPrefix(h, "+")
		name, spare := strings.CutPrefix(name, "-")
		name, fold := strings.CutPrefix(name, "^")
		out[i] = output.Column{Head: name, Wide: wide, Spare: spare, Fold: fold}
	}
	return out
}

func machines(ctx context.Context, a *app.App, f filter) (output.List, error) {
	states, err := enums[bigfleetv1alpha1.MachineState]("state", "MACHINE_STATE_", f.states, bigfleetv1alpha1.MachineState_value)
	if err != nil {
		return output.List{}, err
	}
	marks, err := enums[bigfleetv1alpha1.MachineFlag]("flag", "MACHINE_FLAG_", f.marks, bigfleetv1alpha1.MachineFlag_value)
	if err != nil {
		return output.List{}, err
	}
	var hidden atomic.Int64
	items, _, failed := gather(ctx, a, "listing machines", func(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.MachineView, error) {
		req := &bigfleetv1alpha1.ListMachinesRequest{
			PageSize: 5000, States: states, ClusterId: f.cluster, Provider: f.provider, InstanceType: f.instanceType, Zone: f.zone, Flags: marks,
		}
		if f.nameOnly() { // a shard has half a million others (OPS-4.13)
			got, err := s.Read.GetMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.GetMachineRequest{MachineId: f.name}))
			if err == nil {
				return []*bigfleetv1alpha1.MachineView{got.Msg.GetMachine()}, nil
			}
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil, nil
			}
			if connect.CodeOf(err) != connect.CodeUnimplemented {
				return nil, err
			}
		}
		var out []*bigfleetv1alpha1.MachineView
		for {
			got, err := s.Read.ListMachines(ctx, connect.NewRequest(req))
			if err != nil {
				return nil, err
			}
			for _, m := range got.Msg.GetMachines() {
				if f.name != "" && m.GetMachine().GetId() != f.name {
					continue
				}
				if f.hides(m) {
					if !isForeign(m) { // the shard that it belongs to counts it
						hidden.Add(1)
					}
					continue
				}
				out = append(out, m)
			}
			if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
				return out, nil
			}
		}
	})
	now, items := a.Now(), onceEach(items)
	if n := hidden.Load(); n > 0 && a.Format.ForPeople() {
		a.Notef("%s available to buy; --all shows them", are(n))
	}
	return table("machine/", columns("NAME", "STATE", "CLUSTER", "TYPE", "ZONE", "-CAPACITY", "PRICE", "SINCE", "+INTERRUPTION", "+NODE", "+OPERATION", "+FLAGS", "+WITHHELD", "+SHARD"), items,
		func(v *bigfleetv1alpha1.MachineView) []string {
			m := v.GetMachine()
			cluster := m.GetCluster()
			if cluster == "" && v.GetIntendedClusterId() != "" {
				cluster = "(" + v.GetIntendedClusterId() + ")"
			}
			return []string{
				m.GetId(), output.Enum("MACHINE_STATE_", m.GetState().String()), output.Dash(cluster), m.GetInstanceType(), m.GetZone(),
				output.Enum("CAPACITY_TYPE_", m.GetCapacityType().String()), output.Dollars(m.GetPricePerHour()), since(now, v),
				interruption(m), output.Dash(v.GetNodeName()), output.Dash(v.GetOperationId()), output.Dash(flagsOf(v)), output.Dash(strings.ReplaceAll(v.GetWithheldReason(), "_", "-")), output.Dash(v.GetShardId()),
			}
		}), failed
}

// since is for how long a machine has been in its state. A shard that has started meanwhile knows only a part of it.
func since(now time.Time, v *bigfleetv1alpha1.MachineView) string {
	if v.GetStateSinceStart() && v.GetStateSinceUnixNanos() != 0 {
		return output.AtLeast + output.Age(now, v.GetStateSinceUnixNanos())
	}
	return output.Age(now, v.GetStateSinceUnixNanos())
}

// hides says whether a machine is left out: one that does not exist yet, unless it is asked for.
func (f filter) hides(m *bigfleetv1alpha1.MachineView) bool {
	return !f.all && f.name == "" && len(f.states)+len(f.marks) == 0 && m.GetMachine().GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
}

// are words how many machines could be bought.
func are(n int64) string {
	if n == 1 {
		return "1 more machine is"
	}
	return fmt.Sprintf("%d more machines are", n)
}

// isForeign says whether a machine belongs to another shard than the one that lists it.
func isForeign(v *bigfleetv1alpha1.MachineView) bool {
	return slices.Contains(v.GetFlags(), bigfleetv1alpha1.MachineFlag_MACHINE_FLAG_FOREIGN)
}

// onceEach leaves out what a shard says of machines that another one answers for: shards that share a provider know each other's.
func onceEach(items []*bigfleetv1alpha1.MachineView) []*bigfleetv1alpha1.MachineView {
	if !slices.ContainsFunc(items, isForeign) {
		return items
	}
	answered := map[string]bool{}
	for _, v := range items {
		if !isForeign(v) {
			answered[v.GetMachine().GetId()] = true
		}
	}
	return slices.DeleteFunc(items, func(v *bigfleetv1alpha1.MachineView) bool { return isForeign(v) && answered[v.GetMachine().GetId()] })
}

// interruption is how often an hour the provider takes such a machine back, as it says.
func interruption(m *bigfleetv1alpha1.Machine) string {
	if m.GetInterruptionProbability() >= 1 {
		return "announced"
	}
	return fmt.Sprintf("%.3g/h", m.GetInterruptionProbability())
}

func flagsOf(v *bigfleetv1alpha1.MachineView) string {
	out := make([]string, len(v.GetFlags()))
	for i, f := range v.GetFlags() {
		out[i] = output.Enum("MACHINE_FLAG_", f.String())
	}
	return strings.Join(out, ",")
}

func needs(ctx context.Context, a *app.App, f filter) (output.List, error) {
	reasons, err := enums[bigfleetv1alpha1.UnmetReason]("reason", "UNMET_REASON_", f.reasons, bigfleetv1alpha1.UnmetReason_value)
	if err != nil {
		return output.List{}, err
	}
	who, err := f.owners(ctx, a)
	if err != nil {
		return output.List{}, err
	}
	at, now := int64(0), a.Now()
	if f.at != "" {
		if now, err = when.Parse("at", f.at, now); err != nil {
			return output.List{}, err
		}
		at = now.UnixNano()
	}
	items, of, failed := gather(ctx, a, "reading needs", func(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.NeedView, error) {
		cluster := f.cluster
		if of, _, whole := strings.Cut(f.name, "/"); whole && cluster == "" {
			cluster = of
		}
		stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{ClusterId: cluster, UnsatisfiedOnly: f.unmet, AtUnixNanos: at}))
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.Close() }()
		var out []*bigfleetv1alpha1.NeedView
		for stream.Receive() {
			n := stream.Msg().GetNeed()
			if n == nil || len(reasons) > 0 && !slices.Contains(reasons, n.GetUnmetReason()) || !strings.HasPrefix(subject.NeedName(n), f.name) {
				continue
			}
			out = append(out, n)
		}
		return out, stream.Err()
	})
	if i := slices.IndexFunc(items, func(n *bigfleetv1alpha1.NeedView) bool { return subject.NeedName(n) == f.name }); i >= 0 {
		items, of = items[i:i+1], of[i:i+1] // the whole name; otherwise its first letters do, as everywhere
	}
	if who != nil {
		if items, of, err = who.selects(items, of, f.cluster != ""); err != nil {
			return output.List{}, err
		}
	}
	list := by(table("need/", columns("NAME", "PRIORITY", "STATUS", "UNMET FOR", "-WANTS", "-MACHINES", "-ON THE WAY", "-SHORT OF", "+COST", "+GROUP", "+DOMAIN", "WHY"), items,
		func(n *bigfleetv1alpha1.NeedView) []string {
			return []string{
				subject.ShortNeed(n), fmt.Sprint(n.GetNeed().GetPriority()), output.Enum("NEED_STATE_", n.GetStatus().String()), output.Age(now, n.GetUnmetSinceUnixNanos()),
				output.Vector(n.GetNeed().GetAggregateResources()), fmt.Sprint(n.GetClaimedMachineCount()), fmt.Sprint(n.GetOnTheWayCount()), output.Dash(output.Vector(n.GetResidualDeficit().GetResources())),
				output.Dollars(n.GetCostUsdPerHour()), output.Dash(n.GetNeed().GetGroup()), output.Dash(n.GetSameDomain()), output.Dash(n.GetDetailText()),
			}
		}), of)
	for i, n := range items {
		list.Names[i] = "need/" + subject.NeedName(n)
	}
	if who != nil {
		who.column(&list, items)
	}
	return list, failed
}

func hints(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, of, failed := gather(ctx, a, "listing hints", func(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.CapacityHint, error) {
		req := &bigfleetv1alpha1.ListHintsRequest{ClusterId: f.cluster}
		var out []*bigfleetv1alpha1.CapacityHint
		for {
			got, err := s.Read.ListHints(ctx, connect.NewRequest(req))
			if err != nil {
				return nil, err
			}
			out = append(out, got.Msg.GetHints()...)
			if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
				return out, nil
			}
		}
	})
	return by(table("hint/", columns("CLUSTER", "AVAILABLE", "CONFIDENCE", "SHAPE", "COST", "WHY", "+PROFILE"), items, func(h *bigfleetv1alpha1.CapacityHint) []string {
		return []string{h.GetClusterId(), fmt.Sprint(h.GetAvailableCount()), strings.ToLower(h.GetConfidence()), output.Dash(output.Vector(h.GetResources().GetResources())), output.Dollars(h.GetCostPerHour()), output.Dash(h.GetReason()), h.GetProfileFingerprint()}
	}), of), failed
}

func pauses(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, of, failed := gather(ctx, a, "reading pauses", func(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.Pause, error) {
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(got.Msg.GetPauses(), func(p *bigfleetv1alpha1.Pause) bool {
			return f.name != "" && p.GetPauseId() != f.name || f.cluster != "" && p.GetClusterId() != "" && p.GetClusterId() != f.cluster ||
				f.provider != "" && p.GetProvider() != "" && p.GetProvider() != f.provider // one without a cluster holds for all of them
		}), nil
	})
	return by(table("pause/", columns("NAME", "KINDS", "-CLUSTER", "-PROVIDER", "^REASON", "^BY", "-SINCE", "UNTIL"), items, func(p *bigfleetv1alpha1.Pause) []string {
		kinds := make([]string, len(p.GetKinds()))
		for i, k := range p.GetKinds() {
			kinds[i] = output.Enum("ACTION_KIND_", k.String())
		}
		all := strings.Join(kinds, ",")
		if all == "" {
			all = "all"
		}
		return []string{p.GetPauseId(), all, output.Dash(p.GetClusterId()), output.Dash(p.GetProvider()), p.GetReason(), p.GetActor(), output.Time(p.GetCreatedAtUnixNanos()), output.Time(p.GetExpiresAtUnixNanos())}
	}), of), failed
}

func drains(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, of, failed := gather(ctx, a, "reading drains", func(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.DrainView, error) {
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(got.Msg.GetDrains(), func(d *bigfleetv1alpha1.DrainView) bool {
			return f.name != "" && d.GetMachineId() != f.name || f.cluster != "" && d.GetClusterId() != f.cluster
		}), nil
	})
	now := a.Now()
	return by(table("drain/", columns("MACHINE", "CLUSTER", "STATE", "SINCE", "PODS LEFT", "^BLOCKED BY", "DEADLINE", "^REASON"), items, func(d *bigfleetv1alpha1.DrainView) []string {
		state := output.Enum("DRAIN_STATE_", d.GetState().String())
		if d.GetInstructionId() == "" { // a person empties it, or an agent does
			state = "cordoned"
		}
		return []string{d.GetMachineId(), d.GetClusterId(), state, output.Age(now, d.GetStartedAtUnixNanos()), fmt.Sprint(d.GetPodsLeft()), output.Dash(strings.Join(d.GetBlockingBudgets(), ", ")),
			output.Time(d.GetDeadlineUnixNanos()), output.Dash(d.GetReason())}
	}), of), failed
}

func shards(ctx context.Context, a *app.App, f filter) (output.List, error) {
	fl, err := a.Fleet()
	if err != nil {
		return output.List{}, err
	}
	var items []*bigfleetv1alpha1.ShardRegistryEntry
	only := a.ShardID()
	err = fl.Leader(ctx, "listing shards", func(ctx context.Context, c fleet.Coordinator) error {
		items = nil
		got, err := c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
		if err != nil {
			return err
		}
		for _, s := range got.Msg.GetShards() {
			if (f.name == "" || s.GetShardId() == f.name) && (only == "" || s.GetShardId() == only) {
				items = append(items, s)
			}
		}
		return nil
	})
	now := a.Now()
	return table("shard/", columns("NAME", "STATE", "ADDRESS", "LAST REPORT", "+EPOCH", "+REGISTERED"), items, func(s *bigfleetv1alpha1.ShardRegistryEntry) []string {
		return []string{s.GetShardId(), output.Enum("SHARD_STATE_", s.GetState().String()), s.GetAddress(), output.Age(now, s.GetLastHeartbeatUnixNs()), fmt.Sprint(s.GetEpoch()), output.Time(s.GetRegisteredAtUnixNs())}
	}), err
}

// enums reads the short forms of enum values, for example idle or priority-starved.
func enums[E ~int32](flag, prefix string, values []string, all map[string]int32) ([]E, error) {
	var out []E
	for _, v := range values {
		n, ok := all[prefix+strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(v, "-", "_")), prefix)] // as -o json prints it, too
		if !ok || n == 0 {
			var known []string
			for name, n := range all {
				if n != 0 {
					known = append(known, output.Enum(prefix, name))
				}
			}
			slices.Sort(known)
			return nil, exit.Usagef("--%s %s is unknown: use one of %s", flag, v, strings.Join(known, ", "))
		}
		out = append(out, E(n))
	}
	return out, nil
}

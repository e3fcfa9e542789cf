package get

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// fromLeader lists one thing that the coordinator's leader keeps. next reads a page: it returns the token of the next one.
func fromLeader[T proto.Message](ctx context.Context, a *app.App, what string, next func(context.Context, fleet.Coordinator, string) ([]T, string, error)) ([]T, error) {
	f, err := a.Fleet()
	if err != nil {
		return nil, err
	}
	var out []T
	err = f.Leader(ctx, what, func(ctx context.Context, c fleet.Coordinator) error {
		out = nil
		for token := ""; ; {
			rows, after, err := next(ctx, c, token)
			if err != nil {
				return err
			}
			out = append(out, rows...)
			if token = after; token == "" {
				return nil
			}
		}
	})
	return out, err
}

func domains(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing domains", func(ctx context.Context, c fleet.Coordinator, token string) ([]*bigfleetv1alpha1.DomainAssignment, string, error) {
		got, err := c.Core.ListDomainAssignments(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainAssignmentsRequest{PageToken: token}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetAssignments(), got.Msg.GetNextPageToken(), nil
	})
	name := func(d *bigfleetv1alpha1.DomainAssignment) string {
		return d.GetTopologyKey() + "=" + d.GetTopologyValue()
	}
	items = ofShard(items, a.ShardID(), func(d *bigfleetv1alpha1.DomainAssignment) []string {
		return []string{d.GetShardId(), d.GetNextShardId()}
	})
	return table("domain/", columns("NAME", "SHARD", "MOVING TO", "SINCE"), named(items, f.name, name), func(d *bigfleetv1alpha1.DomainAssignment) []string {
		return []string{name(d), output.Dash(d.GetShardId()), output.Dash(d.GetNextShardId()), output.Time(d.GetSinceUnixNanos())}
	}), err
}

// named keeps the item that the second argument of get names, or all.
func named[T any](items []T, want string, name func(T) string) []T {
	if want == "" {
		return items
	}
	return slices.DeleteFunc(items, func(v T) bool { return name(v) != want })
}

// ofShard keeps the items that have to do with the shard that --shard names by id, or all.
func ofShard[T any](items []T, shard string, of func(T) []string) []T {
	if shard == "" {
		return items
	}
	return slices.DeleteFunc(items, func(v T) bool { return !slices.Contains(of(v), shard) })
}

// handovers are domains that change hands.
func handovers(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing handovers", func(ctx context.Context, c fleet.Coordinator, _ string) ([]*bigfleetv1alpha1.DomainMove, string, error) {
		got, err := c.Admin.ListDomainMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainMovesRequest{}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetMoves(), "", nil
	})
	name := func(m *bigfleetv1alpha1.DomainMove) string {
		return m.GetDomain().GetTopologyKey() + "=" + m.GetDomain().GetTopologyValue()
	}
	items = ofShard(items, a.ShardID(), func(m *bigfleetv1alpha1.DomainMove) []string {
		return []string{m.GetDomain().GetShardId(), m.GetDomain().GetNextShardId()}
	})
	now := a.Now()
	return table("handover/", columns("NAME", "FROM", "TO", "FOR", "WAITS FOR"), named(items, f.name, name), func(m *bigfleetv1alpha1.DomainMove) []string {
		return []string{name(m), output.Dash(m.GetDomain().GetShardId()), output.Dash(m.GetDomain().GetNextShardId()), output.Age(now, m.GetDomain().GetSinceUnixNanos()), output.Dash(m.GetWaitingFor())}
	}), err
}

// reports are what shards last reported to the coordinator.
func reports(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing reports", func(ctx context.Context, c fleet.Coordinator, token string) ([]*bigfleetv1alpha1.ShardReportSnapshot, string, error) {
		got, err := c.Core.ListShardReports(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardReportsRequest{ShardId: cmp.Or(f.name, a.ShardID()), PageToken: token}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetReports(), got.Msg.GetNextPageToken(), nil
	})
	return table("report/", columns("SHARD", "REPORT", "AGE", "MACHINES", "FREE", "-CLUSTERS", "SHORTFALLS", "OLDEST", "SPEND", "PAUSED", "+EPOCH", "+PROVIDERS"), items, func(r *bigfleetv1alpha1.ShardReportSnapshot) []string {
		s, paused, oldest := r.GetSummary(), "no", int64(0)
		if s.GetPaused() {
			paused = "yes"
		}
		for _, short := range r.GetShortfalls() {
			oldest = max(oldest, short.GetAgeSeconds())
		}
		age := "—"
		if oldest > 0 {
			age = output.Span(time.Duration(oldest) * time.Second)
		}
		return []string{
			r.GetShardId(), fmt.Sprint(r.GetCycle()), output.Span(time.Duration(r.GetAgeSeconds() * float64(time.Second))), fmt.Sprint(s.GetTotalMachines()), fmt.Sprint(s.GetFreeMachines()),
			fmt.Sprint(len(r.GetClusters())), fmt.Sprint(len(r.GetShortfalls())), age, output.Dollars(s.GetCostPerHour()), paused, fmt.Sprint(r.GetShardEpoch()), output.Dash(s.GetProviderAddress()),
		}
	}), err
}

func bindings(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing bindings", func(ctx context.Context, c fleet.Coordinator, token string) ([]*bigfleetv1alpha1.ClusterBinding, string, error) {
		got, err := c.Admin.ListClusterBindings(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClusterBindingsRequest{PageToken: token}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetBindings(), got.Msg.GetNextPageToken(), nil
	})
	items = named(named(items, f.name, (*bigfleetv1alpha1.ClusterBinding).GetClusterId), f.cluster, (*bigfleetv1alpha1.ClusterBinding).GetClusterId)
	items = ofShard(items, a.ShardID(), func(b *bigfleetv1alpha1.ClusterBinding) []string {
		return []string{b.GetShardId(), b.GetConflictingShardId()}
	})
	return table("binding/", columns("CLUSTER", "SHARD", "SOURCE", "SESSION", "MACHINES", "CONFLICT"), items, func(b *bigfleetv1alpha1.ClusterBinding) []string {
		session := "none"
		if b.GetLiveSession() {
			session = "live"
		}
		return []string{b.GetClusterId(), b.GetShardId(), output.Enum("SOURCE_", b.GetSource().String()), session, fmt.Sprint(b.GetBoundMachines()), output.Dash(b.GetConflictingShardId())}
	}), err
}

func registrations(ctx context.Context, a *app.App) ([]*bigfleetv1alpha1.ProviderRegistration, error) {
	return fromLeader(ctx, a, "listing providers", func(ctx context.Context, c fleet.Coordinator, _ string) ([]*bigfleetv1alpha1.ProviderRegistration, string, error) {
		got, err := c.Admin.ListProviders(ctx, connect.NewRequest(&bigfleetv1alpha1.ListProvidersRequest{}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetProviders(), "", nil
	})
}

func providers(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := registrations(ctx, a)
	names := shownNames(ctx, a, items)
	name := func(p *bigfleetv1alpha1.ProviderRegistration) string { return names[p.GetName()] }
	items = either(items, f.name, (*bigfleetv1alpha1.ProviderRegistration).GetName, name)
	return shownAs(table("provider/", columns("NAME", "REGION", "ADDRESSES", "SHARDS", "DEFAULT OWNER", "+PARTITION KEYS"), items, func(p *bigfleetv1alpha1.ProviderRegistration) []string {
		return []string{name(p), output.Dash(p.GetRegion()), strings.Join(p.GetAddresses(), ","), output.Dash(strings.Join(p.GetShardIds(), ",")), output.Dash(p.GetDefaultOwner()), output.Dash(strings.Join(p.GetPartitionKeys(), ","))}
	}), items, name), err
}

// shownNames are the names that people read of registrations.
func shownNames(ctx context.Context, a *app.App, items []*bigfleetv1alpha1.ProviderRegistration) map[string]string {
	f, err := a.Fleet()
	if err != nil { // they came from it
		return nil
	}
	return f.ProviderNames(ctx, items)
}

// either keeps the items that one of two names of theirs is what was asked for, or all.
func either[T any](items []T, want string, one, other func(T) string) []T {
	if want == "" {
		return items
	}
	return slices.DeleteFunc(items, func(v T) bool { return one(v) != want && other(v) != want })
}

// shownAs adds for programs what people read as the provider of each item.
func shownAs[T any](l output.List, items []T, name func(T) string) output.List {
	for _, v := range items {
		l.Also = append(l.Also, map[string]any{"shownAs": name(v)})
	}
	return l
}

func quotas(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing quotas", func(ctx context.Context, c fleet.Coordinator, _ string) ([]*bigfleetv1alpha1.Quota, string, error) {
		got, err := c.Admin.ListQuotas(ctx, connect.NewRequest(&bigfleetv1alpha1.ListQuotasRequest{}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetQuotas(), "", nil
	})
	var registered []*bigfleetv1alpha1.ProviderRegistration
	if len(items) > 0 {
		if registered, err = registrations(ctx, a); err != nil {
			return output.List{}, err
		}
	}
	names := shownNames(ctx, a, registered)
	provider := func(q *bigfleetv1alpha1.Quota) string { return cmp.Or(names[q.GetProvider()], q.GetProvider()) }
	name := func(q *bigfleetv1alpha1.Quota) string { return strings.TrimSuffix(provider(q)+"/"+q.GetRegion(), "/") }
	byAddress := func(q *bigfleetv1alpha1.Quota) string {
		return strings.TrimSuffix(q.GetProvider()+"/"+q.GetRegion(), "/")
	}
	items = either(either(items, f.provider, (*bigfleetv1alpha1.Quota).GetProvider, provider), f.name, name, byAddress)
	return shownAs(table("quota/", columns("NAME", "DECLARED", "SLICES", "HELD BACK"), items, func(q *bigfleetv1alpha1.Quota) []string {
		return []string{name(q), fmt.Sprint(q.GetDeclared()), output.Dash(numbers(q.GetSlices())), output.Dash(numbers(q.GetHeldBack()))}
	}), items, provider), err
}

func numbers(m map[string]int32) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%d", k, m[k]))
	}
	return strings.Join(out, " ")
}

func moves(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing moves", func(ctx context.Context, c fleet.Coordinator, _ string) ([]*bigfleetv1alpha1.Move, string, error) {
		got, err := c.Admin.ListMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMovesRequest{}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetMoves(), "", nil
	})
	items = named(items, f.name, (*bigfleetv1alpha1.Move).GetMoveId)
	items = ofShard(items, a.ShardID(), func(m *bigfleetv1alpha1.Move) []string { return []string{m.GetFromShardId(), m.GetToShardId()} })
	return table("move/", columns("NAME", "STATE", "TIER", "FROM", "TO", "WANTED", "MACHINES", "REASON", "+UPDATED"), items, func(m *bigfleetv1alpha1.Move) []string {
		return []string{
			m.GetMoveId(), output.Enum("STATE_", m.GetState().String()), output.Enum("MOVE_TIER_", m.GetTier().String()), m.GetFromShardId(), m.GetToShardId(),
			fmt.Sprint(m.GetWanted()), fmt.Sprint(len(m.GetMachineIds())), output.Dash(m.GetReason()), output.Time(m.GetUpdatedAtUnixNanos()),
		}
	}), err
}

func instructions(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "listing instructions", func(ctx context.Context, c fleet.Coordinator, _ string) ([]*bigfleetv1alpha1.PendingInstruction, string, error) {
		got, err := c.Admin.ListInstructions(ctx, connect.NewRequest(&bigfleetv1alpha1.ListInstructionsRequest{}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetInstructions(), "", nil
	})
	name := func(i *bigfleetv1alpha1.PendingInstruction) string { return i.GetInstruction().GetInstructionId() }
	items = ofShard(items, a.ShardID(), func(i *bigfleetv1alpha1.PendingInstruction) []string { return []string{i.GetShardId()} })
	now := a.Now()
	return table("instruction/", columns("NAME", "SHARD", "AGE", "STUCK", "LAST ANSWER"), named(items, f.name, name), func(i *bigfleetv1alpha1.PendingInstruction) []string {
		stuck := "no"
		if i.GetStuck() {
			stuck = "yes"
		}
		return []string{name(i), i.GetShardId(), output.Age(now, i.GetSinceUnixNanos()), stuck, output.Dash(i.GetLastAck().GetReason())}
	}), err
}

func audit(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, err := fromLeader(ctx, a, "reading the audit", func(ctx context.Context, c fleet.Coordinator, token string) ([]*bigfleetv1alpha1.AuditRecord, string, error) {
		got, err := c.Admin.ListAudit(ctx, connect.NewRequest(&bigfleetv1alpha1.ListAuditRequest{PageToken: token}))
		if err != nil {
			return nil, "", err
		}
		return got.Msg.GetRecords(), got.Msg.GetNextPageToken(), nil
	})
	index := func(r *bigfleetv1alpha1.AuditRecord) string { return fmt.Sprint(r.GetIndex()) }
	return table("audit/", columns("INDEX", "TIME", "METHOD", "-ACTOR", "^REQUEST", "-RESULT", "^REASON"), named(items, f.name, index), func(r *bigfleetv1alpha1.AuditRecord) []string {
		return []string{index(r), output.Time(r.GetAtUnixNanos()), strings.TrimPrefix(r.GetMethod(), "/bigfleet.v1alpha1."), r.GetActor(), output.Dash(r.GetRequestJson()), r.GetResult(), output.Dash(r.GetReason())}
	}), err
}

// peers asks each replica for itself: it works without a leader.
func peers(ctx context.Context, a *app.App, f filter) (output.List, error) {
	fl, err := a.Fleet()
	if err != nil {
		return output.List{}, err
	}
	replicas, err := fl.Replicas()
	if err != nil {
		return output.List{}, err
	}
	byID := map[string]*bigfleetv1alpha1.RaftPeer{}
	var last error
	for _, r := range replicas {
		bounded, cancel := fl.Deadline(ctx)
		got, err := r.Admin.GetCoordinatorStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		cancel()
		if err != nil {
			last = fleet.Unanswered("the status of "+r.Address, err)
			continue
		}
		for _, p := range got.Msg.GetPeers() {
			if known := byID[p.GetNodeId()]; known == nil || got.Msg.GetRole() == "leader" {
				byID[p.GetNodeId()] = p
			}
		}
	}
	items := make([]*bigfleetv1alpha1.RaftPeer, 0, len(byID))
	for _, p := range byID {
		items = append(items, p)
	}
	slices.SortFunc(items, func(x, y *bigfleetv1alpha1.RaftPeer) int { return cmp.Compare(x.GetNodeId(), y.GetNodeId()) })
	if len(items) > 0 {
		last = nil // one replica's list is the whole list
	}
	items = named(items, f.name, (*bigfleetv1alpha1.RaftPeer).GetNodeId)
	return table("peer/", columns("NAME", "ROLE", "SUFFRAGE", "RPC", "RAFT", "LAST CONTACT", "+BUILD"), items, func(p *bigfleetv1alpha1.RaftPeer) []string {
		role := "follower"
		if p.GetLeader() {
			role = "leader"
		}
		return []string{p.GetNodeId(), role, p.GetSuffrage(), output.Dash(p.GetRpcAddress()), p.GetRaftAddress(), fmt.Sprintf("%d ms", p.GetLastContactMs()), output.Dash(p.GetBuild())}
	}), last
}

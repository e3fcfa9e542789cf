package server

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// auditPage is the page of ListAudit when the request names none (COORD-2).
const auditPage = 1000

// ListShards lists registered shards, by id.
func (s *Server) ListShards(ctx context.Context, req *connect.Request[v1.ListShardsRequest]) (*connect.Response[v1.ListShardsResponse], error) {
	key, err := keyOf("shards", req.Msg.GetPageToken(), 1)
	if err != nil {
		return nil, err
	}
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	registry := leadOf(ctx).registry
	out := &v1.ListShardsResponse{Rebuilding: registry.Rebuilding()}
	out.Shards, out.NextPageToken = page(req.Msg.GetPageSize(), each(st.ShardsAfter(key[0]), func(sh *pb.Shard) *v1.ShardRegistryEntry {
		return shardEntry(st, registry, sh)
	}), func(e *v1.ShardRegistryEntry) string { return tokenOf("shards", e.GetShardId()) })
	return connect.NewResponse(out), nil
}

// each maps a walk; a nil row is left out.
func each[A, B any](in iter.Seq[*A], f func(*A) *B) iter.Seq[*B] {
	return func(yield func(*B) bool) {
		for a := range in {
			if b := f(a); b != nil && !yield(b) {
				return
			}
		}
	}
}

// ListDomainAssignments lists domains, by key and value.
func (s *Server) ListDomainAssignments(ctx context.Context, req *connect.Request[v1.ListDomainAssignmentsRequest]) (*connect.Response[v1.ListDomainAssignmentsResponse], error) {
	key, err := keyOf("domains", req.Msg.GetPageToken(), 2)
	if err != nil {
		return nil, err
	}
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	only := req.Msg.GetShardId()
	rows := st.DomainsAfter(key[0], key[1])
	if only != "" {
		rows = st.DomainsOf(only)
	}
	out := &v1.ListDomainAssignmentsResponse{}
	out.Assignments, out.NextPageToken = page(req.Msg.GetPageSize(), each(rows, func(d *pb.Domain) *v1.DomainAssignment {
		if only != "" && cmp.Or(cmp.Compare(d.GetKey(), key[0]), cmp.Compare(d.GetValue(), key[1])) <= 0 && key[0] != "" {
			return nil // on an earlier page
		}
		return domainAssignment(d)
	}), func(d *v1.DomainAssignment) string {
		return tokenOf("domains", d.GetTopologyKey(), d.GetTopologyValue())
	})
	return connect.NewResponse(out), nil
}

// ListShardReports lists what shards last said to this leader, by id.
func (s *Server) ListShardReports(ctx context.Context, req *connect.Request[v1.ListShardReportsRequest]) (*connect.Response[v1.ListShardReportsResponse], error) {
	key, err := keyOf("reports", req.Msg.GetPageToken(), 1)
	if err != nil {
		return nil, err
	}
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	registry, only := leadOf(ctx).registry, req.Msg.GetShardId()
	if only != "" && st.Shard(only) == nil {
		return nil, notFound("shard", only)
	}
	out := &v1.ListShardReportsResponse{Rebuilding: registry.Rebuilding()}
	rows := st.ShardsAfter(key[0])
	if only != "" {
		rows = func(yield func(*pb.Shard) bool) { yield(st.Shard(only)) }
	}
	out.Reports, out.NextPageToken = page(req.Msg.GetPageSize(), each(rows, func(sh *pb.Shard) *v1.ShardReportSnapshot {
		return reportSnapshot(registry, sh.GetShardId(), true)
	}), func(r *v1.ShardReportSnapshot) string { return tokenOf("reports", r.GetShardId()) })
	return connect.NewResponse(out), nil
}

// ListClusterBindings lists bindings, by cluster.
func (s *Server) ListClusterBindings(ctx context.Context, req *connect.Request[v1.ListClusterBindingsRequest]) (*connect.Response[v1.ListClusterBindingsResponse], error) {
	key, err := keyOf("bindings", req.Msg.GetPageToken(), 1)
	if err != nil {
		return nil, err
	}
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	registry, only, now := leadOf(ctx).registry, req.Msg.GetShardId(), time.Now()
	conflicts := registry.Conflicts()
	out := &v1.ListClusterBindingsResponse{Rebuilding: registry.Rebuilding()}
	out.Bindings, out.NextPageToken = page(req.Msg.GetPageSize(), each(st.ClustersAfter(key[0]), func(c *pb.Cluster) *v1.ClusterBinding {
		if c.GetShardId() == "" || only != "" && c.GetShardId() != only {
			return nil // an unbound row only records the releases
		}
		return clusterBinding(registry, conflicts, c, now)
	}), func(b *v1.ClusterBinding) string { return tokenOf("bindings", b.GetClusterId()) })
	return connect.NewResponse(out), nil
}

// ListDomainMoves lists handovers under way.
func (s *Server) ListDomainMoves(ctx context.Context, _ *connect.Request[v1.ListDomainMovesRequest]) (*connect.Response[v1.ListDomainMovesResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	registry := leadOf(ctx).registry
	out := &v1.ListDomainMovesResponse{}
	for d := range st.Domains() {
		if fleet.InHandover(d) {
			out.Moves = append(out.Moves, &v1.DomainMove{Domain: domainAssignment(d), WaitingFor: waitingFor(registry.SoftState, d)})
		}
	}
	return connect.NewResponse(out), nil
}

// ListProviders lists providers, by name.
func (s *Server) ListProviders(ctx context.Context, _ *connect.Request[v1.ListProvidersRequest]) (*connect.Response[v1.ListProvidersResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	out := &v1.ListProvidersResponse{}
	for p := range st.Providers() {
		out.Providers = append(out.Providers, providerRegistration(st, p))
	}
	return connect.NewResponse(out), nil
}

// ListQuotas lists quotas, by provider and region.
func (s *Server) ListQuotas(ctx context.Context, _ *connect.Request[v1.ListQuotasRequest]) (*connect.Response[v1.ListQuotasResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	out := &v1.ListQuotasResponse{}
	for q := range st.Quotas() {
		out.Quotas = append(out.Quotas, quota(q))
	}
	return connect.NewResponse(out), nil
}

// GetRebalance describes the rebalancer's policy.
func (s *Server) GetRebalance(ctx context.Context, _ *connect.Request[v1.GetRebalanceRequest]) (*connect.Response[v1.GetRebalanceResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	registry := leadOf(ctx).registry
	return connect.NewResponse(&v1.GetRebalanceResponse{Policy: st.Policy(), LastSweepAtUnixNanos: nanos(registry.LastSweep()), Waiting: registry.Waiting()}), nil
}

// ListMoves lists moves, newest first: open, finished within the hour, and proposed by dry runs.
func (s *Server) ListMoves(ctx context.Context, req *connect.Request[v1.ListMovesRequest]) (*connect.Response[v1.ListMovesResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	only := req.Msg.GetShardId()
	var moves []*v1.Move
	take := func(m *v1.Move) {
		if only == "" || m.GetFromShardId() == only || m.GetToShardId() == only {
			moves = append(moves, m)
		}
	}
	for m := range st.Moves() {
		if fleet.Open(m) || !req.Msg.GetOpenOnly() {
			take(wireMove(m))
		}
	}
	if !req.Msg.GetOpenOnly() {
		for _, m := range leadOf(ctx).registry.Proposed() {
			take(m)
		}
	}
	slices.SortStableFunc(moves, func(x, y *v1.Move) int {
		return cmp.Or(cmp.Compare(y.GetStartedAtUnixNanos(), x.GetStartedAtUnixNanos()), cmp.Compare(x.GetMoveId(), y.GetMoveId()))
	})
	return connect.NewResponse(&v1.ListMovesResponse{Moves: moves}), nil
}

// ListInstructions lists pending and stuck instructions, by shard.
func (s *Server) ListInstructions(ctx context.Context, req *connect.Request[v1.ListInstructionsRequest]) (*connect.Response[v1.ListInstructionsResponse], error) {
	if _, err := s.confirmed(ctx); err != nil {
		return nil, err
	}
	out := &v1.ListInstructionsResponse{Instructions: leadOf(ctx).registry.Pending(req.Msg.GetShardId())}
	if req.Msg.GetStuckOnly() {
		out.Instructions = slices.DeleteFunc(out.Instructions, func(i *v1.PendingInstruction) bool { return !i.GetStuck() })
	}
	return connect.NewResponse(out), nil
}

// ListAudit lists audit records, newest first.
func (s *Server) ListAudit(ctx context.Context, req *connect.Request[v1.ListAuditRequest]) (*connect.Response[v1.ListAuditResponse], error) {
	m := req.Msg
	key, err := keyOf("audit", m.GetPageToken(), 1)
	if err != nil {
		return nil, err
	}
	before := uint64(0)
	if key[0] != "" {
		if before, err = strconv.ParseUint(key[0], 10, 64); err != nil {
			return nil, invalidArgument("page-token", "page_token was not issued by this list: start again without it")
		}
	}
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	size := int(m.GetPageSize())
	if size == 0 {
		size = auditPage
	}
	out := &v1.ListAuditResponse{}
	last := uint64(0)
	for row := range st.AuditNewestFirst(before) {
		r := row.GetRecord()
		if m.GetSinceUnixNanos() > 0 && r.GetAtUnixNanos() < m.GetSinceUnixNanos() || m.GetMethod() != "" && !isMethod(r.GetMethod(), m.GetMethod()) ||
			m.GetActor() != "" && r.GetActor() != m.GetActor() {
			continue
		}
		if len(out.Records) == size {
			out.NextPageToken = tokenOf("audit", strconv.FormatUint(last, 10))
			break
		}
		out.Records = append(out.Records, r)
		last = row.GetSequence()
	}
	return connect.NewResponse(out), nil
}

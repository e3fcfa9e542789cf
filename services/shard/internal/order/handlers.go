package order

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inspect"
)

// PauseActuation stops the start of operations. The same order twice gives the same pause.
func (s *Server) PauseActuation(ctx context.Context, r *connect.Request[pb.PauseActuationRequest]) (*connect.Response[pb.PauseActuationResponse], error) {
	who, err := actor(ctx)
	if err != nil {
		return nil, err
	}
	p := s.pauseOf(who, r.Msg)
	e := core.AdminAsked{Command: core.AdminPause, Reason: r.Msg.Reason, Pause: p}
	if r.Msg.ValidateOnly {
		if _, err := s.do(ctx, e, true, nil); err != nil {
			return nil, err
		}
		return connect.NewResponse(&pb.PauseActuationResponse{Pause: inspect.Pause(p)}), nil
	}
	w := pauseWrite(p)
	if err := s.cfg.Store.Put(w.bucket, w.key, w.value); err != nil { // takes effect all the same (SHARD-5.4)
		p.Fragile = true
		s.cfg.Log.Error(unstored(p, err), "pause", p.ID)
	}
	if _, err := s.do(ctx, e, false, nil); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.PauseActuationResponse{Pause: inspect.Pause(p)}), nil
}

// pauseOf makes the pause a request asks for, under the id of an equal one that is in force.
func (s *Server) pauseOf(who string, m *pb.PauseActuationRequest) *core.Pause {
	p := &core.Pause{ID: newID(), Cluster: m.ClusterId, Provider: m.Provider, Reason: m.Reason, Actor: who, Created: nowUnix(),
		TTL: m.TtlSeconds * int64(time.Second)}
	if m.TtlSeconds > 0 {
		p.Expires = p.Created + p.TTL
	}
	for _, k := range m.Kinds {
		p.Kinds = append(p.Kinds, core.Kind(k))
	}
	slices.Sort(p.Kinds)
	p.Kinds = slices.Compact(p.Kinds)
	if v := s.cfg.View(); v != nil {
		for _, old := range v.Status.Pauses {
			if old.Cluster == p.Cluster && old.Provider == p.Provider && old.Reason == p.Reason && slices.Equal(old.Kinds, p.Kinds) {
				p.ID, p.Created = old.ID, old.Created
			}
		}
	}
	return p
}

// ResumeActuation lifts one pause, by its id.
func (s *Server) ResumeActuation(ctx context.Context, r *connect.Request[pb.ResumeActuationRequest]) (*connect.Response[pb.ResumeActuationResponse], error) {
	e := core.AdminAsked{Command: core.AdminResume, Reason: r.Msg.Reason, PauseID: r.Msg.PauseId}
	if _, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketPauses, r.Msg.PauseId, nil}); err != nil {
		return nil, err
	}
	out := &pb.ResumeActuationResponse{}
	if v := s.cfg.View(); v != nil {
		for _, p := range inspect.Pauses(&v.Status) {
			if p.PauseId != r.Msg.PauseId || r.Msg.ValidateOnly {
				out.Remaining = append(out.Remaining, p)
			}
		}
	}
	return connect.NewResponse(out), nil
}

// SetDryRun switches dry run.
func (s *Server) SetDryRun(ctx context.Context, r *connect.Request[pb.SetDryRunRequest]) (*connect.Response[pb.SetDryRunResponse], error) {
	w := &durable{core.BucketControl, "dry-run", nil}
	if r.Msg.DryRun {
		w.value = []byte{1}
	}
	if _, err := s.do(ctx, core.AdminAsked{Command: core.AdminDryRun, Reason: r.Msg.Reason, DryRun: r.Msg.DryRun}, r.Msg.ValidateOnly, w); err != nil {
		return nil, err
	}
	on := r.Msg.DryRun
	if v := s.cfg.View(); v != nil && v.Status.Config.DryRun {
		on = true // stays on while the start-up flag is set
	}
	return connect.NewResponse(&pb.SetDryRunResponse{DryRun: on}), nil
}

// RetryMachine clears the machine's pauses, asks the provider and adopts the answer.
func (s *Server) RetryMachine(ctx context.Context, r *connect.Request[pb.RetryMachineRequest]) (*connect.Response[pb.RetryMachineResponse], error) {
	e := core.AdminAsked{Command: core.AdminRetry, Reason: r.Msg.Reason, Machine: r.Msg.MachineId}
	if _, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketForgotten, r.Msg.MachineId, nil}); err != nil {
		return nil, err
	}
	m, err := s.cfg.Reads.GetMachine(ctx, connect.NewRequest(&pb.GetMachineRequest{MachineId: r.Msg.MachineId}))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RetryMachineResponse{Machine: m.Msg.Machine}), nil
}

// ForgetMachine drops an unbound machine until its state at the provider changes.
func (s *Server) ForgetMachine(ctx context.Context, r *connect.Request[pb.ForgetMachineRequest]) (*connect.Response[pb.ForgetMachineResponse], error) {
	note := core.Forgotten{Machine: r.Msg.MachineId}
	if m, err := s.cfg.Reads.GetMachine(ctx, connect.NewRequest(&pb.GetMachineRequest{MachineId: r.Msg.MachineId})); err == nil {
		note.State = uint8(m.Msg.Machine.Machine.State)
	}
	e := core.AdminAsked{Command: core.AdminForget, Reason: r.Msg.Reason, Machine: r.Msg.MachineId, Cluster: r.Msg.FailedInCluster}
	a, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketForgotten, note.Machine, codec.Marshal(note)})
	if err != nil {
		return nil, err
	}
	cost, _ := a.Answer.(core.ForgottenCost)
	return connect.NewResponse(&pb.ForgetMachineResponse{CostPerHour: convert.Dollars(cost.PriceMicro)}), nil
}

// AcceptRollup accepts the roll-up that is being held and opens the gate.
func (s *Server) AcceptRollup(ctx context.Context, r *connect.Request[pb.AcceptRollupRequest]) (*connect.Response[pb.AcceptRollupResponse], error) {
	a, err := s.do(ctx, core.AdminAsked{Command: core.AdminAcceptRollup, Reason: r.Msg.Reason, Cluster: r.Msg.ClusterId}, r.Msg.ValidateOnly, nil)
	if err != nil {
		return nil, err
	}
	got, _ := a.Answer.(core.AcceptedRollup)
	return connect.NewResponse(&pb.AcceptRollupResponse{NeedsBefore: int32(got.Before), NeedsAfter: int32(got.After), SurplusMachines: int32(got.Surplus)}), nil
}

// ReconcileNow reads one provider, or all, in full.
func (s *Server) ReconcileNow(ctx context.Context, r *connect.Request[pb.ReconcileNowRequest]) (*connect.Response[pb.ReconcileNowResponse], error) {
	who, err := actor(ctx)
	if err != nil {
		return nil, err
	}
	a, err := s.ask(ctx, core.AdminAsked{Command: core.AdminReconcile, Reason: r.Msg.Reason, Provider: r.Msg.Provider, Actor: who})
	if err != nil {
		return nil, err
	}
	got, _ := a.Answer.(core.Reconciled)
	return connect.NewResponse(&pb.ReconcileNowResponse{Machines: int32(got.Machines), Rejected: int32(got.Rejected), RemovalsHeld: int32(got.Held)}), nil
}

// RetireCluster declares a silent cluster dead.
func (s *Server) RetireCluster(ctx context.Context, r *connect.Request[pb.RetireClusterRequest]) (*connect.Response[pb.RetireClusterResponse], error) {
	e := core.AdminAsked{Command: core.AdminRetire, Reason: r.Msg.Reason, Cluster: r.Msg.ClusterId, Bound: int64(r.Msg.BoundMachines)}
	a, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketRetired, r.Msg.ClusterId, []byte{1}})
	if err != nil {
		return nil, err
	}
	got, _ := a.Answer.(core.Retired)
	out := &pb.RetireClusterResponse{BoundMachines: int32(got.Bound)}
	if v := s.cfg.View(); v != nil {
		out.LastRollupAtUnixNanos = v.Wall(got.Fresh)
	}
	return connect.NewResponse(out), nil
}

// UnretireCluster takes the declaration back.
func (s *Server) UnretireCluster(ctx context.Context, r *connect.Request[pb.UnretireClusterRequest]) (*connect.Response[pb.UnretireClusterResponse], error) {
	e := core.AdminAsked{Command: core.AdminUnretire, Reason: r.Msg.Reason, Cluster: r.Msg.ClusterId}
	if _, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketRetired, r.Msg.ClusterId, nil}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.UnretireClusterResponse{}), nil
}

// AbandonReservation gives up the reservation of a move.
func (s *Server) AbandonReservation(ctx context.Context, r *connect.Request[pb.AbandonReservationRequest]) (*connect.Response[pb.AbandonReservationResponse], error) {
	e := core.AdminAsked{Command: core.AdminAbandon, Reason: r.Msg.Reason, Move: r.Msg.MoveId}
	a, err := s.do(ctx, e, r.Msg.ValidateOnly, &durable{core.BucketReservations, r.Msg.MoveId, nil})
	if err != nil {
		return nil, err
	}
	got, _ := a.Answer.(core.Reservation)
	return connect.NewResponse(&pb.AbandonReservationResponse{MachineIds: got.Machines}), nil
}

// ClearBackoff clears the pauses of a cluster, need, pool or provider.
func (s *Server) ClearBackoff(ctx context.Context, r *connect.Request[pb.ClearBackoffRequest]) (*connect.Response[pb.ClearBackoffResponse], error) {
	e := core.AdminAsked{Command: core.AdminClearBackoff, Reason: r.Msg.Reason}
	switch x := r.Msg.Subject.(type) {
	case *pb.ClearBackoffRequest_ClusterId:
		e.Cluster = x.ClusterId
	case *pb.ClearBackoffRequest_Need:
		row, err := s.rowOf(x.Need)
		if err != nil {
			return nil, err
		}
		e.Cluster, e.Row = x.Need.ClusterId, row
	case *pb.ClearBackoffRequest_Pool:
		e.Pool = x.Pool
	case *pb.ClearBackoffRequest_Provider:
		e.Provider = x.Provider
	}
	a, err := s.do(ctx, e, r.Msg.ValidateOnly, nil)
	if err != nil {
		return nil, err
	}
	n, _ := a.Answer.(int)
	return connect.NewResponse(&pb.ClearBackoffResponse{Cleared: int32(n)}), nil
}

// rowOf finds the row key behind a reference.
func (s *Server) rowOf(n *pb.NeedRef) (demand.RowKey, error) {
	if n.ProfileFingerprint != "" {
		return demand.RowKey{Fingerprint: n.ProfileFingerprint, Group: n.Group}, nil
	}
	if v := s.cfg.View(); v != nil {
		for _, b := range v.Needs {
			for i := range b.Rows {
				if x := &b.Rows[i]; b.Cluster == n.ClusterId && x.RowID == n.RowId && n.RowId != "" {
					return demand.RowKey{Fingerprint: x.Form.Fingerprint, Group: x.Group}, nil
				}
			}
		}
	}
	return demand.RowKey{}, rpc.NewError(connect.CodeNotFound, "no such need")
}

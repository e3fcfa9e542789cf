package inspect

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// planFlags are the flags that a what-if may name. None of them changes what is planned: they say how fast, and whether,
// it starts.
var planFlags = map[string]string{
	"actuation-paused":      "it determines whether actions start, not which ones",
	"dry-run":               "it determines whether actions start, not which ones",
	"max-actions-per-cycle": "it spreads the same actions over more cycles",
	"provision-rate":        "it spreads the same Creates over more time",
	"reclaim-cap-fraction":  "it spreads the same Reclaims over more time",
	"reclaim-cap-window":    "it spreads the same Reclaims over more time",
	"execute-concurrency":   "it limits commands in flight, not what is planned",
	"execute-per-cluster":   "it limits commands in flight, not what is planned",
	"provider-concurrency":  "it limits commands in flight, not what is planned",
}

// Plan runs the engine on a copy of the present with edits, and without (SHARD-23.1, ENG-20). Nothing changes.
func (s *Server) Plan(ctx context.Context, r *connect.Request[pb.PlanRequest]) (*connect.Response[pb.PlanResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	q := r.Msg
	edits, warnings, err := s.question(q)
	if err != nil {
		return nil, err
	}
	out, err := study(ctx, s, func(w *core.Study) *pb.PlanResponse { return s.whatIf(w, edits, nil, q) })
	if err != nil {
		return nil, err
	}
	out.Warnings = append(warnings, out.Warnings...)
	return connect.NewResponse(out), nil
}

// question reads what is asked, and says of what is asked in vain that it is.
func (s *Server) question(q *pb.PlanRequest) (edits []explain.Edit, warnings []string, err error) {
	if edits, err = s.edits(q); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(q.Flags)) {
		why, known := planFlags[name]
		if !known {
			return nil, nil, rpc.NewError(connect.CodeInvalidArgument, "no flag --"+name+" can be tried; known are "+flagNames())
		}
		warnings = append(warnings, "--"+name+" changes nothing here: "+why)
	}
	return edits, warnings, nil
}

// whatIf plans a copy with edits, and without. A nil policy is the one in force.
func (s *Server) whatIf(w *core.Study, edits []explain.Edit, policy *engine.Policy, q *pb.PlanRequest) *pb.PlanResponse {
	for i := range edits {
		if p, ok := edits[i].(explain.PutMachine); ok {
			edits[i] = s.ofProvider(w, p)
		}
	}
	return s.answer(w, explain.WhatIf(w.Input(), edits, policy, q.Settle), q)
}

func flagNames() string { return fmt.Sprint(slices.Sorted(maps.Keys(planFlags))) }

// ofProvider gives an edited machine the provider it has, or the first one.
func (s *Server) ofProvider(w *core.Study, p explain.PutMachine) explain.PutMachine {
	if i, ok := w.World.Inventory.Find(p.Machine.ID); ok {
		p.Machine.Provider = w.World.Inventory.Provider(i)
	} else if names := slices.Sorted(maps.Keys(s.cfg.Addresses)); len(names) > 0 {
		p.Machine.Provider = names[0]
	}
	return p
}

// edits turns the request's edits into the engine's, through the same gate as roll-ups and machine records.
func (s *Server) edits(q *pb.PlanRequest) (out []explain.Edit, err error) {
	for i, d := range q.Demand {
		e, err := s.demandEdit(d)
		if err != nil {
			return nil, rpc.NewError(connect.CodeInvalidArgument, fmt.Sprintf("demand[%d]: %v", i, err))
		}
		out = append(out, e)
	}
	for i, m := range q.Machines {
		e, err := s.machineEdit(m)
		if err != nil {
			return nil, rpc.NewError(connect.CodeInvalidArgument, fmt.Sprintf("machines[%d]: %v", i, err))
		}
		out = append(out, e)
	}
	if q.LiftHolds {
		out = append(out, explain.LiftHolds{Cluster: q.ClusterId})
	}
	return out, nil
}

func (s *Server) demandEdit(d *pb.DemandEdit) (explain.Edit, error) {
	switch e := d.Edit.(type) {
	case *pb.DemandEdit_Replace:
		m := proto.Clone(e.Replace).(*pb.ClusterCapacityNeeds)
		if m.ClusterId == "" {
			m.ClusterId = d.ClusterId
		}
		x := s.cfg.Gate.Rollup(m, d.ClusterId, proto.Size(m), time.Now())
		if x.Reject != nil {
			return nil, fmt.Errorf("%s: %s", x.Reject.Reason, x.Reject.Message)
		}
		return explain.ReplaceRows{Cluster: d.ClusterId, Rows: x.Rows, Overhead: x.Overhead}, nil
	case *pb.DemandEdit_Add:
		m := &pb.ClusterCapacityNeeds{ClusterId: d.ClusterId, Needs: []*pb.CapacityNeed{e.Add}}
		x := s.cfg.Gate.Rollup(m, d.ClusterId, proto.Size(m), time.Now())
		if x.Reject != nil {
			return nil, fmt.Errorf("%s: %s", x.Reject.Reason, x.Reject.Message)
		}
		return explain.AddRow{Cluster: d.ClusterId, Row: x.Rows[0]}, nil
	case *pb.DemandEdit_Remove:
		return explain.RemoveRows{Cluster: d.ClusterId, Name: e.Remove}, nil
	case *pb.DemandEdit_Scale:
		return explain.ScaleRows{Cluster: d.ClusterId, PerMillion: perMillion(e.Scale)}, nil
	case *pb.DemandEdit_Drop:
		return explain.DropCluster{Cluster: d.ClusterId}, nil
	}
	return nil, fmt.Errorf("no edit is given")
}

func (s *Server) machineEdit(m *pb.MachineEdit) (explain.Edit, error) {
	switch e := m.Edit.(type) {
	case *pb.MachineEdit_Put:
		f, refused := s.cfg.Gate.Machine(e.Put, "")
		if refused != nil {
			return nil, refused
		}
		return explain.PutMachine{Machine: f.Machine}, nil
	case *pb.MachineEdit_Remove:
		return explain.RemoveMachine{ID: e.Remove}, nil
	case *pb.MachineEdit_Price:
		return explain.ScalePrice{Pool: pool(e.Price), PerMillion: perMillion(e.Price.GetFactor())}, nil
	case *pb.MachineEdit_StockOut:
		return explain.StockOut{Pool: pool(e.StockOut)}, nil
	case *pb.MachineEdit_DrainZone:
		return explain.DrainZone{Zone: e.DrainZone}, nil
	case *pb.MachineEdit_Node:
		return explain.SetNode{ID: e.Node.GetMachineId(), Ready: e.Node.GetReady()}, nil
	}
	return nil, fmt.Errorf("no edit is given")
}

func pool(p *pb.PriceEdit) explain.Pool {
	return explain.Pool{InstanceType: p.GetInstanceType(), Zone: p.GetZone(), CapacityType: inventory.CapacityType(p.GetCapacityType())}
}

func perMillion(factor float64) int64 {
	return int64(math.Min(math.Round(factor*1e6), math.MaxInt64/2))
}

// answer writes what a what-if found.
func (s *Server) answer(w *core.Study, a *explain.Answer, q *pb.PlanRequest) *pb.PlanResponse {
	out := &pb.PlanResponse{BaseCycle: w.Cycle, CostPerHourBefore: convert.Dollars(a.CostNow), CostPerHourAfter: convert.Dollars(a.CostThen),
		Warnings: a.Warnings, Rounds: int32(a.Rounds), Actions: s.planned(a.World, a.Actions, q.ClusterId),
		BaselineActions: s.planned(w.World, a.Baseline, q.ClusterId)}
	if q.Settle && !a.Settled {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the plan still changes after %d rounds", a.Rounds))
	}
	switch {
	case q.LiftPauses:
	case w.Paused:
		out.Warnings = append(out.Warnings, "actuation is paused: none of these actions would start")
	case w.DryRun:
		out.Warnings = append(out.Warnings, "dry run: none of these actions would start")
	}
	v := s.cfg.View()
	for _, c := range a.Changes {
		if q.ClusterId != "" && c.Cluster != q.ClusterId {
			continue
		}
		x := &pb.NeedChange{}
		if !c.Before.None() {
			cluster, n := core.Row(w.World, a.Base, c.Before)
			x.Before = needView(v, row{cluster, n, int32(a.Base.AllocationPosition(c.Before))})
		}
		if !c.After.None() {
			cluster, n := core.Row(a.World, a.Final, c.After)
			x.After = needView(v, row{cluster, n, int32(a.Final.AllocationPosition(c.After))})
		}
		out.Needs = append(out.Needs, x)
	}
	return out
}

func (s *Server) planned(w *engine.World, list []engine.View, only string) (out []*pb.DecisionRecord) {
	for i := range list {
		if only != "" && list[i].Cluster != only && list[i].PreemptorCluster != only {
			continue
		}
		provider := ""
		if at, ok := w.Inventory.Find(list[i].Machine); ok {
			provider = w.Inventory.Provider(at)
		}
		r := core.RecordOf(&list[i], provider)
		out = append(out, convert.Record(&r, s.cfg.ShardID))
	}
	return out
}

package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

const (
	explainRecords = 20
	// suggestMachines bounds the fleets in which a suggestion is tried by planning it: each try costs a copy of the world.
	// In larger ones the remedy of the verdict's detail is given.
	suggestMachines = 50_000
)

// Explain explains one need or machine from a plan of the present (SHARD-23.1, ENG-19.8).
func (s *Server) Explain(ctx context.Context, r *connect.Request[pb.ExplainRequest]) (*connect.Response[pb.ExplainResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var out *pb.ExplainResponse
	switch q := r.Msg.Subject.(type) {
	case *pb.ExplainRequest_Need:
		out, err = s.explainNeed(ctx, q.Need)
	case *pb.ExplainRequest_MachineId:
		out, err = s.explainMachine(ctx, q.MachineId)
	default:
		return nil, rpc.NewError(connect.CodeInvalidArgument, "name a need or a machine")
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// explained is what the study of a need found.
type explained struct {
	of         *explain.NeedExplanation
	cluster    string
	row        *core.NeedRow
	place      int32
	suggestion string
	cycle      int64
}

func (s *Server) explainNeed(ctx context.Context, q *pb.NeedRef) (*pb.ExplainResponse, error) {
	if _, err := narrow(ctx, q.ClusterId); err != nil {
		return nil, err
	}
	if q.RowId == "" && q.ProfileFingerprint == "" {
		return nil, rpc.NewError(connect.CodeInvalidArgument, "a need is named by its cluster and its row_id or profile_fingerprint")
	}
	e, err := study(ctx, s, func(w *core.Study) *explained {
		plan := planner.Plan(w.Input())
		ref, ok := findNeed(plan, q)
		if !ok {
			return nil
		}
		e := &explained{of: explain.ExplainNeed(w.World, w.Policy, plan, ref), cycle: w.Cycle, place: int32(plan.AllocationPosition(ref))}
		e.cluster, e.row = core.Row(w.World, plan, ref)
		if w.World.Inventory.Len() <= suggestMachines && e.of.Verdict.Detail != engine.DetailOtherShard { // its remedy is the move
			if x := explain.Suggest(w.Input(), plan, ref); x != nil {
				e.suggestion = x.Say
			}
		}
		return e
	})
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, notFound("this shard has no such need in cluster " + q.ClusterId)
	}
	v := s.cfg.View()
	shown := published(v, e.cluster, e.row, e.place)
	if shown.Own() { // what only the shell knows goes before what the engine makes of it
		of := e.row.Verdict.Detail
		e.of.Sentence, e.suggestion = strings.TrimSpace(strings.Replace(e.of.Sentence, of.Sentence(), "", 1))+" "+shown.Text(), shown.Remedy()
	}
	if e.suggestion == "" {
		e.suggestion = shown.Remedy()
	}
	out := &pb.ExplainResponse{Need: needView(v, shown), Verdict: e.of.Sentence, Suggestion: e.suggestion,
		Cycle: e.cycle, CycleAtUnixNanos: v.Wall(v.Status.CycleAt), Withheld: map[string]int32{},
		WinnerCount: int32(e.of.AllHolders), DomainCount: int32(e.of.AllDomains), CandidateCount: int32(e.of.AllCandidates)}
	for _, f := range e.of.Funnel {
		step := &pb.FunnelStep{Step: stepText(f), Machines: int32(f.Machines)}
		var lost []string
		for _, l := range f.Lost {
			text := l.Text
			if text == "" {
				text = l.Why.Sentence()
			}
			lost = append(lost, fmt.Sprintf("%d: %s", l.Machines, text))
		}
		step.Why = strings.Join(lost, "; ")
		out.Funnel = append(out.Funnel, step)
	}
	for _, w := range e.of.Withheld {
		out.Withheld[w.Reason.String()] = int32(w.Machines)
	}
	seen := make([]*pb.SeenInterruptions, len(e.of.Candidates))
	if err := s.visit(ctx, func(c *core.Core) {
		for i := range e.of.Candidates {
			seen[i] = seenInterruptions(v, c, e.of.Candidates[i].Machine)
		}
	}); err != nil {
		return nil, err
	}
	s.others(ctx, out, e.of, seen)
	for _, d := range e.of.Domains {
		out.Domains = append(out.Domains, &pb.DomainCoverage{Domain: d.Domain, CoveragePerMille: d.PerMille, Satisfiable: d.Satisfiable})
	}
	key := e.of.Need
	out.Records, err = s.records(ctx, key.Key.Fingerprint, func(x *pb.DecisionRecord) bool {
		return x.ClusterId == key.Cluster && x.ProfileFingerprint == key.Key.Fingerprint && x.Group == key.Key.Group
	})
	return out, err
}

// others writes what an explanation says about machines and needs that may be of other clusters. A cluster's own identity
// sees no names of others (SHARD-23.6).
func (s *Server) others(ctx context.Context, out *pb.ExplainResponse, e *explain.NeedExplanation, seen []*pb.SeenInterruptions) {
	own := scope(ctx)
	for _, h := range e.Holders {
		x := &pb.Holder{Priority: h.Priority, Machines: int32(h.Machines), Why: h.Why.Sentence()}
		if own == "" || h.Cluster == own {
			x.Need = &pb.NeedRef{ClusterId: h.Cluster, RowId: h.RowID, ProfileFingerprint: h.Key.Fingerprint, Group: h.Key.Group}
		}
		out.Winners = append(out.Winners, x)
	}
	for i, c := range e.Candidates {
		x := candidate(&c)
		x.SeenInterruptions = seen[i]
		if own != "" && !c.Taken {
			x.MachineId = ""
		}
		out.Candidates = append(out.Candidates, x)
	}
	if m := e.Nearest; m != nil {
		out.NearestMiss = m.Text
		if own == "" {
			out.NearestMiss = m.Machine + ": " + m.Text
		}
	}
}

func candidate(c *explain.Candidate) *pb.Candidate {
	out := &pb.Candidate{MachineId: c.Machine, PricePerHour: convert.Dollars(c.Price), InterruptionProbability: float64(c.Probability) / 1e6,
		InterruptionPenaltyDollars: c.Penalty.Dollars(), EffectiveCost: convert.Dollars(c.Cost), Taken: c.Taken}
	if !c.Taken {
		out.Why = c.Why.Sentence()
	}
	return out
}

// findNeed finds the row that a request names.
func findNeed(r *engine.Result, q *pb.NeedRef) (engine.Ref, bool) {
	b, at := r.Block(q.ClusterId)
	if b == nil {
		return engine.NoNeed, false
	}
	for i := range b.Needs {
		n := &b.Needs[i]
		if (q.RowId == "" || n.RowID == q.RowId) && (q.ProfileFingerprint == "" || n.Form.Fingerprint == q.ProfileFingerprint) &&
			(q.Group == "" || n.Group == q.Group) {
			return engine.Ref{Block: at, Row: int32(i)}, true
		}
	}
	return engine.NoNeed, false
}

// published is the row as the last cycle published it, which knows more than a plan does: since when it is short, and what
// holds its actions back. A row that no cycle has seen yet is returned as it is.
func published(v *core.Publish, cluster string, x *core.NeedRow, place int32) row {
	for _, b := range v.Needs {
		if b.Cluster != cluster {
			continue
		}
		for i := range b.Rows {
			if n := &b.Rows[i]; n.Form.Fingerprint == x.Form.Fingerprint && n.Group == x.Group {
				return row{cluster, n, b.Place(i)}
			}
		}
	}
	return row{cluster, x, place}
}

func (s *Server) explainMachine(ctx context.Context, id string) (*pb.ExplainResponse, error) {
	m, err := s.getMachine(ctx, id)
	if err != nil {
		return nil, err
	}
	own := scope(ctx)
	type found struct {
		*explain.MachineExplanation
		cycle int64
	}
	e, err := study(ctx, s, func(w *core.Study) *found {
		i, ok := w.World.Inventory.Find(id)
		if !ok {
			return nil
		}
		return &found{explain.ExplainMachine(w.World, w.Policy, planner.Plan(w.Input()), i, own), w.Cycle}
	})
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, notFound("this shard knows no machine " + id)
	}
	v := s.cfg.View()
	out := &pb.ExplainResponse{Machine: m, Verdict: e.Sentence, Suggestion: e.Change, Cycle: e.cycle, CycleAtUnixNanos: v.Wall(v.Status.CycleAt)}
	if change := heldChange(m.KeepReason); change != "" { // what only the shell knows: what holds a release
		out.Verdict, out.Suggestion = e.Sentence+" Its "+m.KeepText+".", change
	} else if m.KeepReason == pb.KeepReason_KEEP_REASON_OUT_OF_SERVICE { // the engine sees it as failed
		out.Verdict = "Its" + strings.TrimPrefix(m.KeepText, "its") + "."
		out.Suggestion = "It counts again when its node accepts Pods: uncordon the node, remove the taint, or repair it."
	} else if s := m.Machine.GetMachine().GetState(); m.KeepReason == pb.KeepReason_KEEP_REASON_FAILED && s != pb.MachineState_MACHINE_STATE_FAILED {
		out.Verdict = "It" + strings.TrimPrefix(m.KeepText, "it") + "."
		out.Suggestion = "Check its provider with `bigfleet provider ping ADDRESS`. The machine counts again when it arrives."
	} else if k := e.Keep; k.Reason == engine.KeepWithheld && k.Until > 0 {
		out.Verdict += " It is offered again at " + clock(v, k.Until) + "."
	}
	if e.Next != nil && scope(ctx) == "" {
		out.Candidates = append(out.Candidates, candidate(e.Next))
	}
	if n := e.Need; n != nil && (own == "" || n.Cluster == own) {
		out.Winners = append(out.Winners, &pb.Holder{Priority: n.Priority, Machines: 1,
			Need: &pb.NeedRef{ClusterId: n.Cluster, RowId: n.RowID, ProfileFingerprint: n.Key.Fingerprint, Group: n.Key.Group}})
	}
	out.Records, err = s.records(ctx, id, func(x *pb.DecisionRecord) bool {
		return x.MachineId == id && (own == "" || x.ClusterId == own)
	})
	return out, err
}

// records finds the newest records that match; each of them holds the word.
func (s *Server) records(ctx context.Context, word string, match func(*pb.DecisionRecord) bool) ([]*pb.DecisionRecord, error) {
	list, _, err := s.cfg.Records.History(ctx, audit.Query{Match: match, Word: word, Limit: explainRecords})
	return veiled(scope(ctx), list), err
}

// stepTexts say what the machines that are left after a step of the funnel have in common.
var stepTexts = map[explain.Step]string{
	explain.StepAll: "all machines", explain.StepTaints: "have no taint against it", explain.StepMatch: "meet all requirements", explain.StepFit: "large enough for one Pod",
	explain.StepFree: "free, or already its own", explain.StepOffered: "usable for it now", explain.StepClaimed: "chosen for it",
}

// stepText words a step. A requirement is its own text.
func stepText(f explain.FunnelStep) string {
	return cmp.Or(stepTexts[f.Step], f.Name)
}

package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Bounds of one visit of the core (SHARD-23.3): its time, and between two looks at the clock the rows that are looked at and the machines
// that are added up.
const (
	visitFor  = 2 * time.Millisecond
	visitRows = 8192
	visitPaid = 1024
)

// ListMachines pages through machines, by id.
func (s *Server) ListMachines(ctx context.Context, r *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	only, err := narrow(ctx, r.Msg.ClusterId)
	if err != nil {
		return nil, err
	}
	key, err := untoken(r.Msg.PageToken, 1)
	if err != nil {
		return nil, err
	}
	after := ""
	if len(key) > 0 {
		after = key[0]
	}
	l := listing{q: r.Msg, columns: columnsOf(r.Msg, only), size: pageSize(r.Msg.PageSize, 1000), skip: int(r.Msg.Skip), after: after, out: &pb.ListMachinesResponse{}}
	if r.Msg.Count && after != "" { // what stands before the page counts too
		all := l
		all.after, all.skip, all.size, all.out = "", 0, -1, &pb.ListMachinesResponse{}
		if err := s.run(ctx, &all); err != nil {
			return nil, err
		}
		l.counted, l.out.Total = true, all.out.Total
	}
	if err := s.run(ctx, &l); err != nil {
		return nil, err
	}
	return connect.NewResponse(l.answer()), nil
}

// listing is one page on its way.
type listing struct {
	q       *pb.ListMachinesRequest
	columns *core.MachineColumns
	size    int // of the page; below 0: none is asked for
	skip    int
	counted bool // what matches is counted already
	after   string
	out     *pb.ListMachinesResponse
}

// full says that the page and one machine more are there: then there is another page.
func (l *listing) full() bool { return len(l.out.Machines) > l.size }

func (s *Server) run(ctx context.Context, l *listing) error {
	counts := l.q.Count && !l.counted
	for more := true; more && (counts || !l.full()); {
		if err := s.visit(ctx, func(c *core.Core) { more = l.visit(s, c, counts) }); err != nil {
			return err
		}
	}
	return nil
}

// visit continues for as long as one visit may take, and says whether there are more machines to look at.
func (l *listing) visit(s *Server, c *core.Core, counts bool) (more bool) {
	if l.out.FirstCycle == 0 {
		l.out.FirstCycle = c.Cycle()
	}
	l.out.LastCycle = c.Cycle()
	for stop := time.Now().Add(visitFor); ; {
		more = l.look(s, c, counts, stop)
		if !more || !counts && l.full() || time.Now().After(stop) {
			return more
		}
	}
}

// look continues by visitRows, or until stop where machines have to be described.
func (l *listing) look(s *Server, c *core.Core, counts bool, stop time.Time) (more bool) {
	view := s.cfg.View()
	all, described, most := !l.exact(), 0, visitRows
	if all && !counts {
		most = min(most, l.skip+l.size+1-len(l.out.Machines))
	}
	table := c.MachineTable()
	found, last, more := table.Select(l.after, l.columns, most, visitRows)
	for n, i := range found {
		if described > 0 && described%64 == 0 && time.Now().After(stop) {
			l.after = table.ID(found[n-1])
			return true
		}
		var m core.MachineView
		if wanted := !l.full() && l.skip == 0; wanted || !all {
			if m, described = table.MachineAt(i), described+1; !l.matches(&m) {
				continue
			}
			if wanted {
				l.out.Machines = append(l.out.Machines, s.machine(view, &m))
			}
		}
		if counts {
			l.out.Total++
		} else if l.full() {
			break
		}
		if l.skip > 0 {
			l.skip--
		}
	}
	l.after = last
	return more
}

func (l *listing) answer() *pb.ListMachinesResponse {
	out := l.out
	if l.full() {
		out.Machines = out.Machines[:l.size]
		out.NextPageToken = token(out.Machines[l.size-1].Machine.Id)
	}
	return out
}

// columnsOf is the part of a selection that is answered without describing machines.
func columnsOf(q *pb.ListMachinesRequest, only string) *core.MachineColumns {
	out := &core.MachineColumns{Cluster: only, Provider: q.Provider, Type: q.InstanceType, Zone: q.Zone, Owned: q.OwnedOnly, Part: strings.ToLower(q.NamePart)}
	for _, x := range q.States {
		out.States = append(out.States, inventory.State(x))
	}
	for _, x := range q.CapacityTypes {
		out.Capacity = append(out.Capacity, inventory.CapacityType(x))
	}
	return out
}

// exact says that columns do not decide.
func (l *listing) exact() bool { return l.q.ProfileFingerprint != "" || len(l.q.Flags) > 0 }

func (l *listing) matches(m *core.MachineView) bool {
	return (l.q.ProfileFingerprint == "" || m.Attribution.Fingerprint == l.q.ProfileFingerprint) &&
		(len(l.q.Flags) == 0 || slices.ContainsFunc(m.Flags, func(f core.MachineFlag) bool { return slices.Contains(l.q.Flags, pb.MachineFlag(f)) }))
}

func (s *Server) machine(v *core.Publish, m *core.MachineView) *pb.MachineView {
	out := &pb.MachineView{Machine: convert.Machine(&m.Machine, &m.Attribution), HasHost: new(m.Machine.Exists()), Provider: m.Machine.Provider, StateSinceUnixNanos: v.Wall(m.Since),
		IntendedClusterId: m.Intended, ProfileFingerprint: m.Attribution.Fingerprint, Group: m.Attribution.Group, Priority: m.Attribution.Priority,
		InterruptionPenaltyDollars: m.Attribution.Interruption.Dollars(), ReclamationPenaltyDollars: m.Attribution.Reclamation.Dollars(),
		OperationId: m.Op, OperationKind: pb.ActionKind(m.OpKind), WithheldReason: m.Withheld, BackoffUntilUnixNanos: v.Wall(m.Backoff),
		NodeName: m.Node, NodeReady: m.Ready, ShardId: s.cfg.ShardID, StateSinceStart: m.Met}
	for _, f := range m.Flags {
		out.Flags = append(out.Flags, pb.MachineFlag(f))
	}
	return out
}

// GetMachine describes one machine and why it is kept.
func (s *Server) GetMachine(ctx context.Context, r *connect.Request[pb.GetMachineRequest]) (*connect.Response[pb.GetMachineResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out, err := s.getMachine(ctx, r.Msg.MachineId)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func (s *Server) getMachine(ctx context.Context, id string) (*pb.GetMachineResponse, error) {
	var (
		m     core.MachineView
		why   core.Kept
		found bool
		hold  int64
		seen  *pb.SeenInterruptions
	)
	v := s.cfg.View()
	if err := s.visit(ctx, func(c *core.Core) {
		if m, found = c.Machine(id); found {
			why, _ = c.Why(id)
			hold = c.HoldUntil(id)
			seen = seenInterruptions(v, c, id)
		}
	}); err != nil {
		return nil, err
	}
	own := scope(ctx)
	if !found || own != "" && m.Machine.Cluster != own && m.Intended != own {
		return nil, notFound("this shard knows no machine " + id)
	}
	if own != "" && why.Need.Cluster != own {
		why.Need.Cluster, why.Need.RowID = "", ""
	}
	out := &pb.GetMachineResponse{Machine: s.machine(v, &m), HoldUntilUnixNanos: v.Wall(hold), RowId: why.Need.RowID, SeenInterruptions: seen}
	out.KeepReason, out.KeepText = keep(v, &m, &why)
	if why.Drain != nil {
		out.Drain = drain(v, why.Drain)
	}
	if why.Op != nil {
		out.Operation = veil(own, convert.Record(why.Op, s.cfg.ShardID))
	}
	return out, nil
}

// seenInterruptions are those of the pool of a machine; nil when no host of it was seen.
func seenInterruptions(v *core.Publish, c *core.Core, id string) *pb.SeenInterruptions {
	x, ok := c.SeenInterruptions(id)
	if !ok {
		return nil
	}
	return &pb.SeenInterruptions{Interruptions: x.Taken, MachineHours: x.Hours, SinceUnixNanos: v.Wall(x.Since)}
}

// keep says in the words of the wire and in a sentence why a machine is as it is, or what holds its release.
func keep(v *core.Publish, m *core.MachineView, k *core.Kept) (pb.KeepReason, string) {
	if k.Planned != 0 {
		return planned(v, k)
	}
	if o := k.Out; o != nil && m.Machine.State == inventory.Configured {
		if o.Pods > 0 {
			return pb.KeepReason_KEEP_REASON_OUT_OF_SERVICE, fmt.Sprintf("its node accepts no new Pods (%s); it is kept because %d Pods run on it", o, o.Pods)
		}
		return pb.KeepReason_KEEP_REASON_OUT_OF_SERVICE, fmt.Sprintf("its node accepts no new Pods (%s) and has none; it is reclaimed after the release delay", o)
	}
	need := fmt.Sprintf("need %s of cluster %s (priority %d)", k.Need.Fingerprint, k.Need.Cluster, k.Need.Priority)
	if k.Need.Cluster == "" {
		need = fmt.Sprintf("a need of another cluster (priority %d)", k.Need.Priority)
	}
	r := pb.KeepReason(k.Keep.Reason)
	switch k.Keep.Reason {
	case engine.KeepClaimed:
		return r, "it serves " + need
	case engine.KeepClaimedWithShares:
		return r, fmt.Sprintf("it serves %s, and %d other needs use its remaining capacity", need, k.Keep.Recipients)
	case engine.KeepNotHeard:
		return r, "the demand of its cluster is not confirmed since this shard started, so nothing is released from it"
	case engine.KeepReadinessGuard:
		return r, "its Node has not joined, but too many others have not joined either, so the machine is not replaced"
	case engine.KeepNotOwned:
		return r, "another shard owns it"
	case engine.KeepSurplusMatures:
		return r, "no need uses it, but it is still starting, and it is released after that"
	case engine.KeepPromised:
		return r, "it is reserved for " + need
	case engine.KeepPromisedUnused:
		return r, "it was bought for a need that no longer requires it"
	case engine.KeepLeaving:
		return r, "it is being released"
	case engine.KeepHold:
		return r, "idle; kept until " + time.Unix(0, v.Wall(k.Keep.Until)).UTC().Format(time.RFC3339) + " in case a need requires it"
	case engine.KeepFixed:
		return r, "idle; machines of this capacity type are never released"
	case engine.KeepWithheld:
		if k.Keep.Mark == inventory.WithheldReserved {
			return pb.KeepReason_KEEP_REASON_RESERVED, "reserved for a move to another shard"
		}
		if k.Keep.Mark == inventory.WithheldDrained {
			return r, "withheld until " + clock(v, k.Keep.Until) + ", because a person drained it"
		}
		return r, "withheld: " + k.Keep.Mark.String()
	case engine.KeepSlot:
		return r, "available to buy; it costs nothing"
	case engine.KeepFailed:
		return r, failed(m)
	}
	if m.Machine.State == inventory.Failed {
		return pb.KeepReason_KEEP_REASON_FAILED, failed(m)
	}
	return r, "it has not been evaluated yet"
}

// failed says what a machine failed of, in the words of its provider, and whether anything is to be done.
func failed(m *core.MachineView) string {
	if m.Machine.Failure == inventory.FailureHostLost {
		return "its host is lost (" + m.Machine.LastError + "), and it costs nothing now; its provider offers a new machine in its place"
	}
	if s := m.Machine.State; s != inventory.Failed {
		return "it is still " + s.String() + " and does not count as capacity: " + overdue(m)
	}
	return "its provider says: " + m.Machine.LastError
}

// overdue says why a machine on its way counts as failed (SHARD-14.14, 14.15).
func overdue(m *core.MachineView) string {
	if slices.Contains(m.Flags, core.FlagStuck) {
		return "it takes longer than such a machine may"
	}
	return "its provider does not answer"
}

// heldChange says what would have to change for a planned release to happen, or "".
func heldChange(r pb.KeepReason) string {
	switch r {
	case pb.KeepReason_KEEP_REASON_BUDGET:
		return "Released when the budget has refilled. A higher --reclaim-cap-fraction releases faster."
	case pb.KeepReason_KEEP_REASON_NO_SESSION:
		return "Released when the operator of its cluster has connected and reported. Bring it back, or retire the cluster if it is gone."
	case pb.KeepReason_KEEP_REASON_PAUSED:
		return "`bigfleet get pauses` shows who paused it and why. `bigfleet resume` ends the pause, and `bigfleet dry-run off` ends a dry run."
	case pb.KeepReason_KEEP_REASON_RELEASE_DELAY:
		return "Released after it has been unneeded for --release-delay without interruption."
	case pb.KeepReason_KEEP_REASON_PROTECTED_PODS:
		return "Released once these Pods have left, or when their budget allows a disruption and none is annotated do-not-disrupt."
	case pb.KeepReason_KEEP_REASON_DRAIN_BACKOFF:
		return "Released once its Pods may be evicted. Allow a disruption in the budget that is named, or scale the workload up."
	case pb.KeepReason_KEEP_REASON_STALE_INVENTORY:
		return "Released when its provider answers again. `bigfleet doctor` checks the provider."
	}
	return ""
}

// planned says what will happen to a machine, or what holds that back.
func planned(v *core.Publish, k *core.Kept) (pb.KeepReason, string) {
	what := k.Planned.String() + " is planned"
	switch held := k.BlockedText(); held {
	case "":
		return pb.KeepReason_KEEP_REASON_UNSPECIFIED, what
	case "reclaim_budget":
		return pb.KeepReason_KEEP_REASON_BUDGET, what + ", but the reclaim budget is used up for now"
	case "no_session", "no_report", "gate":
		return pb.KeepReason_KEEP_REASON_NO_SESSION, what + ", but its cluster has not reported in this session"
	case "paused", "dry_run":
		return pb.KeepReason_KEEP_REASON_PAUSED, what + ", but actions are paused or in dry run"
	case "release_delay":
		return pb.KeepReason_KEEP_REASON_RELEASE_DELAY, what + ", but not before " + clock(v, k.Until) + ": a machine must be unneeded for a while first"
	case "protected_pods":
		return pb.KeepReason_KEEP_REASON_PROTECTED_PODS, what + ", but its node has Pods that must not be disrupted"
	case "drain_backoff":
		return pb.KeepReason_KEEP_REASON_DRAIN_BACKOFF, what + ", but not before " + clock(v, k.Until) + ": the last drain was given up, " + k.Because
	case "stale_inventory":
		return pb.KeepReason_KEEP_REASON_STALE_INVENTORY, what + ", but the inventory is too old to act on"
	default:
		return pb.KeepReason_KEEP_REASON_UNSPECIFIED, what + "; it waits: " + held
	}
}

// clock writes a moment of the shard's process as a time of day.
func clock(v *core.Publish, mono int64) string {
	return time.Unix(0, v.Wall(mono)).UTC().Format(time.TimeOnly + " MST")
}

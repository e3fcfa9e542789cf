package inspect

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// row is one need and whose it is.
type row struct {
	cluster string
	*core.NeedRow
	place int32 // among all short needs of the shard, from 1; 0: it is not short
}

// compareRows is the order of InspectNeeds: priority descending, arrival, cluster, and then what makes it total.
func compareRows(a, b row) int {
	return cmp.Or(cmp.Compare(b.Form.Priority, a.Form.Priority), demand.CompareArrival(a.Arrival, b.Arrival),
		strings.Compare(a.cluster, b.cluster), strings.Compare(a.Form.Fingerprint, b.Form.Fingerprint), strings.Compare(a.Group, b.Group))
}

// InspectNeeds streams a header, then one frame per need, highest precedence first (WIRE-9.4).
func (s *Server) InspectNeeds(ctx context.Context, r *connect.Request[pb.InspectNeedsRequest], out *connect.ServerStream[pb.InspectNeedsResponse]) error {
	end, err := s.streams.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	q := r.Msg
	only, err := narrow(ctx, q.ClusterId)
	if err != nil {
		return err
	}
	after, err := untoken(q.PageToken, 5)
	if err != nil {
		return err
	}
	v, rows, header, err := s.selected(ctx, q, only)
	if err != nil {
		return err
	}
	if len(after) > 0 {
		rows = rows[position(rows, after):]
	}
	if n := int(q.Limit); n > 0 && len(rows) > n {
		rows = rows[:n]
		header.NextPageToken = rowToken(rows[n-1])
	}
	if err := out.Send(&pb.InspectNeedsResponse{Frame: &pb.InspectNeedsResponse_Header{Header: header}}); err != nil {
		return err
	}
	for _, x := range rows {
		if err := out.Send(&pb.InspectNeedsResponse{Frame: &pb.InspectNeedsResponse_Need{Need: needView(v, x)}}); err != nil {
			return err
		}
	}
	return nil
}

// selected is what a request asks for. The read ends here, before anything is sent.
func (s *Server) selected(ctx context.Context, q *pb.InspectNeedsRequest, only string) (*core.Publish, []row, *pb.InspectNeedsHeader, error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer done()
	v := s.cfg.View()
	if q.AtUnixNanos > 0 {
		then, err := s.past.at(0, q.AtUnixNanos)
		if err != nil {
			return nil, nil, nil, err
		}
		v = then.publish()
	}
	since, changes := s.since(q)
	rows, total, short := selectRows(v, only, q, since)
	return v, rows, &pb.InspectNeedsHeader{Cycle: v.Status.Cycle, ComputedAtUnixNanos: v.Wall(v.Status.CycleAt), TotalNeeds: int32(total),
		UnsatisfiedNeeds: int32(short), ShardId: s.cfg.ShardID, Revision: s.revision(v.At), ChangesOnly: changes}, nil
}

// revision names a view of this process; since is the view that a request names, where only changes are asked for.
func (s *Server) revision(at int64) string {
	return strconv.FormatInt(s.cfg.Started.UnixNano(), 36) + "." + strconv.FormatInt(at, 36)
}

func (s *Server) since(q *pb.InspectNeedsRequest) (at int64, changes bool) {
	process, text, _ := strings.Cut(q.ChangedSince, ".")
	at, err := strconv.ParseInt(text, 36, 64)
	if err != nil || process != strconv.FormatInt(s.cfg.Started.UnixNano(), 36) || q.Limit > 0 || q.PageToken != "" || q.UnsatisfiedOnly || q.RowId != "" || q.AtUnixNanos != 0 {
		return -1, false
	}
	return at, true
}

// selectRows are the rows of the clusters that changed after a time, in order, and how many match whenever they changed.
func selectRows(v *core.Publish, only string, q *pb.InspectNeedsRequest, since int64) (rows []row, total, short int) {
	for _, b := range v.Needs {
		if only != "" && b.Cluster != only {
			continue
		}
		old := b.ChangedAt() < since // what changed at that very moment comes again: the view may have been taken within it
		for i := range b.Rows {
			n := &b.Rows[i]
			isShort := n.Unmet()
			if q.UnsatisfiedOnly && !isShort || q.RowId != "" && n.RowID != q.RowId {
				continue
			}
			if isShort {
				short++
			}
			if total++; !old {
				rows = append(rows, row{b.Cluster, n, b.Place(i)})
			}
		}
	}
	slices.SortFunc(rows, compareRows)
	return rows, total, short
}

func rowToken(r row) string {
	return token(strconv.FormatInt(int64(r.Form.Priority), 10), strconv.FormatInt(r.Arrival, 10), r.cluster, r.Form.Fingerprint,
		strings.ReplaceAll(r.Group, "\x00", "\x01"))
}

// position is the first row behind a token. The row it names may be gone.
func position(rows []row, key []string) int {
	priority, _ := strconv.ParseInt(key[0], 10, 32)
	arrival, _ := strconv.ParseInt(key[1], 10, 64)
	at := row{key[2], &core.NeedRow{Arrival: arrival, Group: strings.ReplaceAll(key[4], "\x01", "\x00"),
		Form: &demand.Form{Fingerprint: key[3], Profile: demand.Profile{Priority: int32(priority)}}}, 0}
	i, found := slices.BinarySearchFunc(rows, at, compareRows)
	if found {
		i++
	}
	return i
}

// stateOf says how a need stands. What is held back is short: nothing of it is on a way that moves.
func stateOf(r *core.NeedRow) pb.NeedState {
	if r.Unmet() {
		return pb.NeedState_NEED_STATE_SHORT
	}
	return pb.NeedState(r.Verdict.Status)
}

// needView writes one row with its verdict.
func needView(v *core.Publish, r row) *pb.NeedView {
	d, stated := &r.Verdict, r.Demand()
	out := &pb.NeedView{
		Need: convert.Need(&stated), ClusterId: r.cluster, ArrivalUnixNanos: v.Wall(r.Arrival), ProfileFingerprint: r.Form.Fingerprint,
		Satisfied: !r.Unmet(), ResidualDeficit: convert.Quantities(r.Residual), ClaimedMachineCount: d.Claimed,
		BootstrapCount: d.Bootstrap, ProvisionCount: d.Provision, SameDomain: r.Domain, SameSatisfiable: d.Satisfiable && r.Group != "",
		AcquisitionParked: d.Hold == demand.HeldParked, ParkedAgeCycles: int32(r.Parked), UnmetReason: pb.UnmetReason(d.Reason),
		Detail: pb.NeedDetail(r.Detail()), Hold: pb.NeedHold(d.Hold), Status: stateOf(r.NeedRow), OnTheWayCount: r.Coming(), SharedCount: d.Shared,
		TurnPosition: r.place, CoveragePerMille: d.CoveragePerMille, CostUsdPerHour: convert.Dollars(d.Cost),
	}
	out.DetailText = r.Text()
	if r.Unmet() {
		out.AgeCyclesUnmet, out.UnmetSinceUnixNanos = int32(v.AgeCycles(r.NeedRow)), v.Wall(r.Since)
		if d.Reason == engine.PreemptionExhausted {
			out.Preemption = &pb.PreemptionSummary{VictimsFound: d.Victims, CapacityFreed: convert.Quantities(r.Freed)}
		}
	}
	return out
}

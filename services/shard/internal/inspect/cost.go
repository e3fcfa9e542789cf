package inspect

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// GetCost tells dollars per hour by group and state, now. What it was in the past is not kept by a shard: a request for
// it is refused rather than answered with a guess; shard.Replay finds it in the decision log.
func (s *Server) GetCost(ctx context.Context, r *connect.Request[pb.GetCostRequest]) (*connect.Response[pb.GetCostResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Msg.SinceUnixNanos != 0 || r.Msg.Points > 1 {
		return nil, rpc.NewError(connect.CodeUnimplemented, "a running shard reports present costs only; `bigfleet cost --record DIR` reads past costs from its decision log")
	}
	bill := NewBill(r.Msg.GroupBy)
	if err := s.walk(ctx, bill.Add); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetCostResponse{Points: []*pb.CostPoint{bill.Point(time.Now().UnixNano())}}), nil
}

// Bill adds up what machines cost an hour, by group and state.
type Bill struct {
	by   []string
	rows map[string]*costRow
}

// NewBill begins one. by are keys of GetCostRequest.
func NewBill(by []string) *Bill { return &Bill{by: by, rows: map[string]*costRow{}} }

// Add counts a machine, if it is this shard's and exists.
func (b *Bill) Add(m *core.MachineView) {
	if slices.Contains(m.Flags, core.FlagForeign) || !m.Machine.Exists() {
		return
	}
	group := make([]string, 0, len(b.by))
	for _, by := range b.by {
		group = append(group, groupOf(by, m))
	}
	key := strings.Join(group, "\x00")
	row := b.rows[key]
	if row == nil {
		row = &costRow{group: group, byState: map[string]int64{}}
		b.rows[key] = row
	}
	row.machines++
	row.byState[pb.MachineState(m.Machine.State).String()] += m.Machine.Price
}

// Point is what was added, as of a time.
func (b *Bill) Point(atUnixNanos int64) *pb.CostPoint {
	point := &pb.CostPoint{AtUnixNanos: atUnixNanos}
	for _, row := range b.rows { // sorted below
		out := &pb.CostRow{Group: row.group, Machines: row.machines, CostPerHourByState: map[string]float64{}}
		for state, micro := range row.byState {
			out.CostPerHourByState[state] = convert.Dollars(micro)
		}
		point.Rows = append(point.Rows, out)
	}
	slices.SortFunc(point.Rows, func(a, b *pb.CostRow) int { return slices.CompareFunc(a.Group, b.Group, cmp.Compare[string]) })
	return point
}

type costRow struct {
	group    []string
	machines int32
	byState  map[string]int64
}

func groupOf(by string, m *core.MachineView) string {
	switch by {
	case "cluster":
		return cmp.Or(m.Machine.Cluster, m.Intended)
	case "priority":
		return strconv.FormatInt(int64(m.Stamp.Priority), 10)
	case "provider":
		return m.Machine.Provider
	case "type":
		return m.Machine.InstanceType
	case "capacity":
		return m.Machine.CapacityType.String()
	case "zone":
		return m.Machine.Zone
	}
	return strconv.FormatFloat(m.Stamp.Interruption.Dollars(), 'f', -1, 64)
}

// walk visits every machine in chunks between the core's steps.
func (s *Server) walk(ctx context.Context, each func(*core.MachineView)) error {
	after, more := "", true
	for more {
		if err := s.visit(ctx, func(c *core.Core) {
			ids := c.Ids(after, visitMachines)
			more = len(ids) == visitMachines
			for _, id := range ids {
				if m, ok := c.Machine(id); ok {
					each(&m)
				}
				after = id
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

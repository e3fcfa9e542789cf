package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// GetCost answers dollars per hour by group and state, now. What it was in the past is not kept by a shard: a request for
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
	bills := []*Bill{NewBill(r.Msg.GroupBy)}
	switch {
	case r.Msg.Separate:
		bills = bills[:0]
		for _, by := range r.Msg.GroupBy {
			bills = append(bills, NewBill([]string{by}))
		}
	case len(r.Msg.GroupBy) > groupsMax:
		return nil, rpc.NewError(connect.CodeInvalidArgument, fmt.Sprintf("group_by has %d keys, and at most %d can be combined; set `separate` to group by each key separately", len(r.Msg.GroupBy), groupsMax))
	}
	clusters := slices.ContainsFunc(bills, (*Bill).ofClusters)
	if err := s.walkPaid(ctx, clusters, func(m *core.MachineView) {
		for _, bill := range bills {
			bill.add(m)
		}
	}); err != nil {
		return nil, err
	}
	out := &pb.GetCostResponse{}
	for _, bill := range bills {
		bill.request(s.cfg.View().Needs)
		out.Points = append(out.Points, bill.Point(time.Now().UnixNano()))
	}
	return connect.NewResponse(out), nil
}

const groupsMax = 3

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
	b.add(m)
}

func (b *Bill) add(m *core.MachineView) {
	key := ""
	for i, by := range b.by {
		if i > 0 {
			key += "\x00"
		}
		key += groupOf(by, m) // of one group this copies nothing
	}
	row := b.rows[key]
	if row == nil {
		row = &costRow{byState: map[inventory.State]int64{}}
		for _, by := range b.by {
			row.group = append(row.group, groupOf(by, m))
		}
		b.rows[key] = row
	}
	row.machines++
	row.byState[m.Machine.State] += m.Machine.Price
	if b.ofClusters() {
		row.use.machine(m)
	}
}

// ofClusters reports whether the groups are clusters, and so can be compared with what clusters request.
func (b *Bill) ofClusters() bool { return slices.Equal(b.by, []string{"cluster"}) }

// request adds what clusters request, those without machines included.
func (b *Bill) request(needs []*core.NeedBlock) {
	if !b.ofClusters() {
		return
	}
	for _, of := range needs {
		row := b.rows[of.Cluster]
		if row == nil && len(of.Rows) > 0 {
			row = &costRow{group: []string{of.Cluster}}
			b.rows[of.Cluster] = row
		}
		for i := range of.Rows {
			row.use.requested.add(of.Rows[i].Aggregate)
			row.use.unmet.add(of.Rows[i].Residual)
		}
	}
}

// Point is what was added, as of a time.
func (b *Bill) Point(atUnixNanos int64) *pb.CostPoint {
	point := &pb.CostPoint{AtUnixNanos: atUnixNanos}
	for _, row := range b.rows { // sorted below
		out := &pb.CostRow{Group: row.group, Machines: row.machines, CostPerHourByState: map[string]float64{}}
		for state, micro := range row.byState {
			out.CostPerHourByState[pb.MachineState(state).String()] = convert.Dollars(micro)
		}
		row.use.fill(out)
		point.Rows = append(point.Rows, out)
	}
	slices.SortFunc(point.Rows, func(a, b *pb.CostRow) int { return slices.CompareFunc(a.Group, b.Group, cmp.Compare[string]) })
	return point
}

type costRow struct {
	group    []string
	machines int32
	byState  map[inventory.State]int64
	use      use // of clusters
}

func groupOf(by string, m *core.MachineView) string {
	switch by {
	case "cluster":
		return cmp.Or(m.Machine.Cluster, m.Intended)
	case "priority":
		return strconv.FormatInt(int64(m.Attribution.Priority), 10)
	case "provider":
		return m.Machine.Provider
	case "type":
		return m.Machine.InstanceType
	case "capacity":
		return m.Machine.CapacityType.String()
	case "zone":
		return m.Machine.Zone
	}
	return strconv.FormatFloat(m.Attribution.Interruption.Dollars(), 'f', -1, 64)
}

// walkPaid visits every machine that this shard pays for, between the core's steps, for as long as one visit may take; with its
// resources where they count.
func (s *Server) walkPaid(ctx context.Context, clusters bool, each func(*core.MachineView)) error {
	q := &core.MachineColumns{Owned: true, States: hosted}
	after, more := "", true
	for more {
		if err := s.visit(ctx, func(c *core.Core) {
			table := c.MachineTable()
			for stop := time.Now().Add(visitFor); ; {
				var found []inventory.Index
				found, after, more = table.Select(after, q, visitPaid, visitRows)
				for _, i := range found {
					if table.Exists(i) {
						m := table.Priced(i, clusters)
						each(&m)
					}
				}
				if !more || time.Now().After(stop) {
					return
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// hosted are the states in which a machine may cost something.
var hosted = []inventory.State{inventory.Creating, inventory.Idle, inventory.Configuring, inventory.Configured, inventory.Draining, inventory.Deleting, inventory.Failed}

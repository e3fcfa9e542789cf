package console

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// arithmetic is a shard whose machines and needs are computed from their numbers, and that notes what it is asked for.
type arithmetic struct {
	api.UnimplementedShardReadHandler
	machines, needs int

	mu    sync.Mutex
	pages []int32 // sizes asked of ListMachines
}

var states = []v1.MachineState{v1.MachineState_MACHINE_STATE_CONFIGURED, v1.MachineState_MACHINE_STATE_IDLE, v1.MachineState_MACHINE_STATE_CREATING}

func (s *arithmetic) machine(i int) *v1.MachineView {
	state := states[min(i%10, 2)] // eight of ten are being made
	return &v1.MachineView{ShardId: "s0", Provider: "cloud", Machine: &v1.Machine{Id: fmt.Sprintf("m-%06d", i), State: state, InstanceType: "type-" + strconv.Itoa(i%7), Zone: "zone-" + strconv.Itoa(i%3), CapacityType: v1.CapacityType_CAPACITY_TYPE_SPOT, PricePerHour: 1}}
}

func (s *arithmetic) GetStatus(context.Context, *connect.Request[v1.GetStatusRequest]) (*connect.Response[v1.GetStatusResponse], error) {
	return connect.NewResponse(&v1.GetStatusResponse{ShardId: "s0", Ready: true, Cycle: 1, Needs: int32(s.needs), UnsatisfiedNeeds: int32(s.needs / 2), Sessions: int32(min(s.needs, 1)), //nolint:gosec // below a million
		MachinesByState: map[string]int32{"MACHINE_STATE_CONFIGURED": int32(s.machines)}}), nil //nolint:gosec // below a million
}

func (s *arithmetic) ListMachines(_ context.Context, r *connect.Request[v1.ListMachinesRequest]) (*connect.Response[v1.ListMachinesResponse], error) {
	q := r.Msg
	s.mu.Lock()
	s.pages = append(s.pages, q.GetPageSize())
	s.mu.Unlock()
	out, skip := &v1.ListMachinesResponse{}, int(q.GetSkip())
	first, _ := strconv.Atoi(q.GetPageToken())
	for i := range s.machines {
		if q.GetInstanceType() != "" && q.GetInstanceType() != "type-"+strconv.Itoa(i%7) {
			continue
		}
		out.Total++
		if i < first {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		switch n := len(out.GetMachines()); {
		case n < int(q.GetPageSize()):
			out.Machines = append(out.Machines, s.machine(i))
		case out.GetNextPageToken() == "":
			out.NextPageToken = strconv.Itoa(i)
		}
		if out.GetNextPageToken() != "" && !q.GetCount() {
			break
		}
	}
	return connect.NewResponse(out), nil
}

func (s *arithmetic) InspectNeeds(_ context.Context, r *connect.Request[v1.InspectNeedsRequest], out *connect.ServerStream[v1.InspectNeedsResponse]) error {
	rows := s.needs
	if r.Msg.GetChangedSince() == "all" {
		rows = 0
	}
	if err := out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Header{Header: &v1.InspectNeedsHeader{Cycle: 1, Revision: "all", ChangesOnly: rows == 0, TotalNeeds: int32(s.needs)}}}); err != nil { //nolint:gosec // below a million
		return err
	}
	for i := range rows {
		n := &v1.NeedView{ClusterId: "red", Satisfied: i%2 == 0, ProfileFingerprint: strconv.Itoa(i), DetailText: "Met.", Need: &v1.CapacityNeed{RowId: fmt.Sprintf("row-%05d", i), Priority: int32(s.needs - i), AggregateResources: map[string]string{"cpu": "4"}}} //nolint:gosec // below a million
		if !n.GetSatisfied() {
			n.UnmetReason, n.DetailText, n.UnmetSinceUnixNanos = v1.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY, "No suitable machine is free.", 1
		}
		if err := out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Need{Need: n}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *arithmetic) ListClusters(context.Context, *connect.Request[v1.ListClustersRequest]) (*connect.Response[v1.ListClustersResponse], error) {
	return connect.NewResponse(&v1.ListClustersResponse{}), nil
}

func (s *arithmetic) GetMachineHistory(context.Context, *connect.Request[v1.GetMachineHistoryRequest]) (*connect.Response[v1.GetMachineHistoryResponse], error) {
	return connect.NewResponse(&v1.GetMachineHistoryResponse{}), nil
}

func (s *arithmetic) WatchDecisions(ctx context.Context, _ *connect.Request[v1.WatchDecisionsRequest], out *connect.ServerStream[v1.WatchDecisionsResponse]) error {
	if err := out.Send(&v1.WatchDecisionsResponse{}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// OPS-6.6, ADR 0585: a page costs as much on 500,000 machines and 20,000 needs as on a thousandth of them: it holds and asks for the rows in view, reaches every row,
// and filters at the shard. `make bench-console` measures times. A fleet without anything says what to do next.
func TestLargeLists(t *testing.T) {
	web(t)
	sizes := map[string]*arithmetic{"LARGE": {machines: 500_000, needs: 20_000}, "SMALL": {machines: 500, needs: 300}, "EMPTY": {}}
	var env []string
	for name, s := range sizes {
		env = append(env, name+"="+consoleOver(t, "console-"+strings.ToLower(name), s))
	}
	browse(t, "large.mjs", env)
	large := sizes["LARGE"]
	large.mu.Lock()
	defer large.mu.Unlock()
	rows := 0
	for _, n := range large.pages {
		if rows += int(n); n > 200 {
			t.Errorf("a page of %d machines was asked for; a viewer pays for the rows it shows", n)
		}
	}
	if rows > large.machines/20 {
		t.Errorf("%d rows of %d were asked for in %d questions", rows, large.machines, len(large.pages))
	}
	t.Logf("%d rows of %d machines in %d questions", rows, large.machines, len(large.pages))
}

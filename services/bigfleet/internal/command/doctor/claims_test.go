package doctor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
)

// lists is a shard that answers what it has.
type lists struct {
	api.ShardReadClient
	machines []*pb.MachineView
}

func (l lists) ListClusters(context.Context, *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	return connect.NewResponse(&pb.ListClustersResponse{}), nil
}

func (l lists) ListMachines(_ context.Context, req *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	out := &pb.ListMachinesResponse{}
	for _, m := range l.machines {
		if slices.Contains(req.Msg.GetStates(), m.GetMachine().GetState()) {
			out.Machines = append(out.Machines, m)
		}
	}
	return connect.NewResponse(out), nil
}

// COORD-9.11: a host that two shards call their own is named, whatever its state; one that a shard knows to be another's is
// none.
func TestMachinesOfTwoShards(t *testing.T) {
	view := func(id string, state pb.MachineState, flags ...pb.MachineFlag) *pb.MachineView {
		return &pb.MachineView{Machine: &pb.Machine{Id: id, State: state}, Flags: flags}
	}
	const idle, bound = pb.MachineState_MACHINE_STATE_IDLE, pb.MachineState_MACHINE_STATE_CONFIGURED
	shards := []fleet.Shard{
		{ID: "shard-0", Read: lists{machines: []*pb.MachineView{view("m-1", bound), view("m-2", idle), view("m-3", idle), view("m-4", bound)}}},
		{ID: "shard-1", Read: lists{machines: []*pb.MachineView{view("m-1", bound), view("m-2", idle), view("m-4", bound, pb.MachineFlag_MACHINE_FLAG_FOREIGN)}}},
	}
	r := &report{}
	claims(t.Context(), fleet.New(fleet.Config{Timeout: time.Minute}), r, shards, skew.Versions{})
	var messages []string
	for _, f := range r.findings {
		messages = append(messages, f.About+": "+f.Message)
	}
	slices.Sort(messages)
	if len(messages) != 2 || !strings.Contains(messages[0], "m-1: shards shard-0 and shard-1 both claim it") || !strings.Contains(messages[1], "m-2: shards") {
		t.Errorf("%q", messages)
	}
}

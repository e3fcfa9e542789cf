package explain_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// reason is one detail of ENG-19.4, ENG-19.5 or SHARD-23.4, how it comes about, and what the command must say of it.
type reason struct {
	detail    pb.NeedDetail
	offerings []provider.Offering
	edit      func(*shard.Config)
	cause     func(v *virtual.Fleet) (cluster, row string)
	says      []string // what is so, and what to do about it
}

func reasons() []reason {
	return []reason{
		{pb.NeedDetail_NEED_DETAIL_CLUSTER_OFFLINE, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 1, 4, 0), virtual.Need("more", 1, 4, -1))
			v.Configured("red", 1)
			red.Close()
			return "red", "more"
		}, []string{"operator is not connected", "Try: Bring the operator back; demand is kept."}},
		{pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_BACKOFF, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse { return nil }).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"last bootstrap of this need failed", "Try: Look at the bootstrap template"}},
		{pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "template: no field Tokn", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Boot data could not be rendered: template: no field Tokn.", "Try: Put the bootstrap template of the cluster right"}},
		{pb.NeedDetail_NEED_DETAIL_PARKED, []provider.Offering{virtual.Slots("a", "a", 2), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("lone", 1, 4, 100, virtual.In(virtual.ZoneKey, "a")), virtual.Need("other", 1, 4, 100, virtual.In(virtual.ZoneKey, "b")), virtual.Need("gang", 2, 4, 0, virtual.Same(virtual.ZoneKey)))
			return "red", "gang"
		}, []string{"waits for the next probe", "a                    covers 50.0%", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_DOMAIN_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("gang", 3, 4, 0, virtual.Same(virtual.RackKey)))
			return "red", "gang"
		}, []string{"No domain could hold the gang", "covers 66.6%", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_NO_MATCH, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0, virtual.In(virtual.ZoneKey, "mars")))
			return "red", "web"
		}, []string{"Without topology.kubernetes.io/zone in (mars) most would match", "Try: Drop the requirement topology.kubernetes.io/zone in (mars)."}},
		{pb.NeedDetail_NEED_DETAIL_DIMENSION_MISSING, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0, virtual.Wants("example.com/fpga", "1")))
			return "red", "web"
		}, []string{"Nobody offers example.com/fpga", "Try: Add 1 machine like cloud-a-0, but with example.com/fpga 1."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 16, 0))
			return "red", "web"
		}, []string{"The largest is cloud-a-0: cpu: it offers 4, one unit asks for 16", "Try: Add 1 machine like cloud-a-0, but with cpu 16."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2, func(o *provider.Offering) { o.Resources["memory"] = "16Gi" })}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 1, 0, virtual.Wants("memory", "24Gi")))
			return "red", "web"
		}, []string{"memory: it offers 16Gi, one unit asks for 24Gi", "Try: Ask for units that fit cloud-a-0"}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_BLOCKED, []provider.Offering{virtual.Slots("a", "a", 9), virtual.Slots("b", "b", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 2, 4, 0, virtual.Spread(virtual.ZoneKey)))
			v.Configured("red", 2)
			red.Asks(virtual.Need("web", 8, 4, 0, virtual.Spread(virtual.ZoneKey)))
			return "red", "web"
		}, []string{"only where the spread constraint forbids them", "Try: Allow more skew"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_JOINED, []provider.Offering{virtual.Slots("a", "a", 10)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Does("pause", "--kind", "reclaim", "--reason", "nothing goes now", "--yes")
			oneNeverJoins(v)
			return "red", "web"
		}, []string{"its node never joined", "Try: Make the nodes join", "network of the nodes"}},
		{pb.NeedDetail_NEED_DETAIL_PREEMPTION_SHORT, []provider.Offering{virtual.Slots("a", "a", 3)}, nil, func(v *virtual.Fleet) (string, string) {
			red, blue := v.Operator("red", nil), v.Operator("blue", nil)
			blue.Asks(virtual.Need("urgent", 2, 4, 1000))
			v.Configured("blue", 2)
			red.Asks(virtual.Need("batch", 1, 4, 0))
			v.Configured("red", 1)
			v.Does("pause", "--kind", "preempt", "--reason", "a trial", "--yes") // else the victim soon is no victim any more
			blue.Asks(virtual.Need("urgent", 2, 4, 1000), virtual.Need("second", 2, 4, 500))
			return "blue", "second"
		}, []string{"Victims were found, but they free too little", "need/blue/urgent  priority 1000", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_STOCK_OUT, []provider.Offering{virtual.Slots("a", "a", 4)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"out of the machines that fit", "withheld: 3 for stock-out", "Try: Wait for the machines that are withheld (stock-out), or ask the provider for more."}},
		{pb.NeedDetail_NEED_DETAIL_QUOTA, []provider.Offering{virtual.Slots("a", "a", 4)}, coordinated, func(v *virtual.Fleet) (string, string) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true, QuotaSlices: []*pb.QuotaSlice{{Provider: "cloud", Machines: 1}}})
			v.Operator("red", nil).Asks(virtual.Need("web", 2, 4, 0))
			return "red", "web"
		}, []string{"withheld: 3 for quota", "Try: "}},
		{pb.NeedDetail_NEED_DETAIL_NEW_CLUSTER, []provider.Offering{virtual.Slots("a", "a", 4)}, coordinated, func(v *virtual.Fleet) (string, string) {
			v.Views("v1", 1, &pb.ShardView{DefaultOwner: true})
			v.StopProvider()
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"The cluster is new to this shard", "Try: Nothing is to be done: this lasts one List"}},
		{pb.NeedDetail_NEED_DETAIL_WITHHELD, []provider.Offering{virtual.Slots("a", "a", 10)}, nil, func(v *virtual.Fleet) (string, string) {
			oneNeverJoins(v) // and is given up, so that nothing is left for this cluster
			return "red", "web"
		}, []string{"withheld: 1 for not-joined", "Nearest miss: cloud-a-"}},
		{pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("train", 2, 4, 1000))
			v.Configured("red", 2)
			v.Operator("blue", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "blue", "web"
		}, []string{"Most are with train of cluster red (priority 1000)", "2 machines  need/red/train  priority 1000", "Try: Add 1 machine like cloud-a-0."}},
		{pb.NeedDetail_NEED_DETAIL_STARTING, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Behaves(&pb.Behaviour{Call: "Configure", LatencyMillis: 60_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"On the way: 1 of its machines is not ready yet. Machines are being configured.", "Try: Nothing is to be done"}},
		{pb.NeedDetail_NEED_DETAIL_CREATING, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 60_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Machines are being created.", "Try: Nothing is to be done"}},
		{pb.NeedDetail_NEED_DETAIL_WAITING_FOR_DRAIN, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("batch", 1, 4, 0))
			v.Configured("red", 1)
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 60_000})
			v.Operator("blue", nil).Asks(virtual.Need("urgent", 1, 4, 1000))
			return "blue", "urgent"
		}, []string{"once they are drained", "the list of drains names what blocks it"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_READY, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 1, 4, 0))
			name := v.Configured("red", 1)[0]
			red.Reports(true, map[string]bool{name: true})
			time.Sleep(time.Second)
			red.Reports(false, map[string]bool{name: false})
			return "red", "web"
		}, []string{"Met: 1 machine counts for it. A node that joined is not Ready now.", "Try: Look at the node"}},
		{pb.NeedDetail_NEED_DETAIL_UNPLACED, []provider.Offering{virtual.Slots("a", "a", 12)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 1, 4, 0))
			v.Configured("red", 1)
			red.Beats(func() { // room does not help it (ENG-11.16): after a few tries all that is left is to say so
				red.Asks(virtual.Need("web", 1, 4, 0))
				red.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{Rows: []*pb.UnplacedRow{
					{RowId: "web", Pods: 2, OldestSinceUnixNanos: time.Now().Add(-time.Hour).UnixNano(), Resources: map[string]string{"cpu": "2"}}}}}})
			})
			return "red", "web"
		}, []string{"the scheduler could not place all Pods", "Try: Look at the events of the pending Pods."}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_IGNORED, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("gang", 2, 4, 0, virtual.Same(virtual.RackKey), virtual.Spread(virtual.ZoneKey)))
			return "red", "gang"
		}, []string{"The spread constraint is ignored", "Try: Drop the spread constraint"}},
		{pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER, []provider.Offering{virtual.Slots("a", "a", 12)}, nil, func(v *virtual.Fleet) (string, string) {
			v.StopProvider()
			v.Operator("red", nil).Asks(virtual.Need("web", 12, 4, 0))
			return "red", "web"
		}, []string{"The provider does not answer; commands wait", "Try: Bring the provider back", "bigfleet provider ping"}},
		{pb.NeedDetail_NEED_DETAIL_PAUSED, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Does("pause", "--kind", "provision", "--cluster", "red", "--reason", "a trial", "--yes")
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Actuation is paused", "`bigfleet get pauses` says who paused it and why; `bigfleet resume` lifts it."}},
		{pb.NeedDetail_NEED_DETAIL_RAIL, []provider.Offering{virtual.Slots("a", "a", 40)}, func(c *shard.Config) { c.ProvisionRate = 1 }, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 40, 4, 0))
			return "red", "web"
		}, []string{"waits for a limit of the shard: provision rate", "Try: Wait, or raise the limit"}},
	}
}

// oneNeverJoins lets nine of ten machines join.
func oneNeverJoins(v *virtual.Fleet) {
	red := v.Operator("red", nil)
	red.Asks(virtual.Need("web", 10, 4, 0))
	red.Reports(true, nil)
	nodes := map[string]bool{}
	for _, name := range v.Configured("red", 10)[1:] {
		nodes[name] = true
	}
	red.Reports(false, nodes)
}

// user-asks 1, ENG-19.4, ENG-19.5, SHARD-23.4: each reason for which a need can wait, or be met with a warning, is caused for real
// at a shard with a simulated cloud, and the command says what is so and what to do about it. None is left out.
func TestEachReason(t *testing.T) {
	left := map[int32]string{}
	for n, name := range pb.NeedDetail_name {
		left[n] = name
	}
	delete(left, 0)
	for _, r := range reasons() {
		delete(left, int32(r.detail))
		t.Run(strings.TrimPrefix(r.detail.String(), "NEED_DETAIL_"), func(t *testing.T) {
			virtual.Run(t, r.offerings, r.edit, func(v *virtual.Fleet) {
				cluster, row := r.cause(v)
				out := v.Explains(cluster, row, r.detail)
				for _, want := range append(r.says, "Machines that could serve it:", "Try: ", "Cycle ") {
					if !strings.Contains(out, want) {
						t.Errorf("lacks %q:\n%s", want, out)
					}
				}
			})
		})
	}
	if len(left) > 0 {
		t.Errorf("nothing causes %v", left)
	}
}

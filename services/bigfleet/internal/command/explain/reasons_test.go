package explain_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// reason is one detail of ENG-19.4, ENG-19.5 or SHARD-23.4, how it comes about, and what the command must say of it.
type reason struct {
	detail    pb.NeedDetail
	offerings []provider.Offering
	edit      func(*shard.Config)
	cause     func(v *fleet) (cluster, row string)
	says      []string // what is so, and what to do about it
}

func reasons() []reason {
	return []reason{
		{pb.NeedDetail_NEED_DETAIL_CLUSTER_OFFLINE, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			red := v.operator("red", nil)
			red.asks(need("web", 1, 4, 0), need("more", 1, 4, -1))
			v.configured("red", 1)
			red.close()
			return "red", "more"
		}, []string{"operator is not connected", "Try: Bring the operator back; demand is kept."}},
		{pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_BACKOFF, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse { return nil }).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"last bootstrap of this need failed", "Try: Look at the bootstrap template"}},
		{pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "template: no field Tokn", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Boot data could not be rendered: template: no field Tokn.", "Try: Put the bootstrap template of the cluster right"}},
		{pb.NeedDetail_NEED_DETAIL_PARKED, []provider.Offering{slots("a", "a", 2), slots("b", "b", 2)}, nil, func(v *fleet) (string, string) {
			red := v.operator("red", nil)
			red.asks(need("lone", 1, 4, 100, in(zoneKey, "a")), need("other", 1, 4, 100, in(zoneKey, "b")), need("gang", 2, 4, 0, same(zoneKey)))
			return "red", "gang"
		}, []string{"waits for the next probe", "a                    covers 50.0%", "Try: Add 2 machines like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_DOMAIN_TOO_SMALL, []provider.Offering{slots("a", "a", 2), slots("b", "b", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("gang", 3, 4, 0, same(rackKey)))
			return "red", "gang"
		}, []string{"No domain could hold the gang", "covers 66.6%", "Try: Add 3 machines like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_NO_MATCH, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("web", 1, 4, 0, in(zoneKey, "mars")))
			return "red", "web"
		}, []string{"Without topology.kubernetes.io/zone in (mars) most would match", "Try: Drop the requirement topology.kubernetes.io/zone in (mars)."}},
		{pb.NeedDetail_NEED_DETAIL_DIMENSION_MISSING, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("web", 1, 4, 0, wants("example.com/fpga", "1")))
			return "red", "web"
		}, []string{"Nobody offers example.com/fpga", "Try: Add 1 machine like cloud-a-0, but with example.com/fpga 1."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_SMALL, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("web", 1, 16, 0))
			return "red", "web"
		}, []string{"The largest is cloud-a-0: cpu: it offers 4, one unit asks for 16", "Try: Add 1 machine like cloud-a-0, but with cpu 16."}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_BLOCKED, []provider.Offering{slots("a", "a", 9), slots("b", "b", 1)}, nil, func(v *fleet) (string, string) {
			red := v.operator("red", nil)
			red.asks(need("web", 2, 4, 0, spread(zoneKey)))
			v.configured("red", 2)
			red.asks(need("web", 8, 4, 0, spread(zoneKey)))
			return "red", "web"
		}, []string{"only where the spread constraint forbids them", "Try: Allow more skew"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_JOINED, []provider.Offering{slots("a", "a", 10)}, nil, func(v *fleet) (string, string) {
			v.does("pause", "--kind", "reclaim", "--reason", "nothing goes now", "--yes")
			oneNeverJoins(v)
			return "red", "web"
		}, []string{"its node never joined", "Try: Make the nodes join", "network of the nodes"}},
		{pb.NeedDetail_NEED_DETAIL_PREEMPTION_SHORT, []provider.Offering{slots("a", "a", 3)}, nil, func(v *fleet) (string, string) {
			red, blue := v.operator("red", nil), v.operator("blue", nil)
			blue.asks(need("urgent", 2, 4, 1000))
			v.configured("blue", 2)
			red.asks(need("batch", 1, 4, 0))
			v.configured("red", 1)
			v.does("pause", "--kind", "preempt", "--reason", "a trial", "--yes") // else the victim soon is no victim any more
			blue.asks(need("urgent", 2, 4, 1000), need("second", 2, 4, 500))
			return "blue", "second"
		}, []string{"Victims were found, but they free too little", "need/blue/urgent  priority 1000", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_STOCK_OUT, []provider.Offering{slots("a", "a", 4)}, nil, func(v *fleet) (string, string) {
			v.stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			v.operator("red", nil).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"out of the machines that fit", "withheld: 3 for stock-out", "Try: Wait for the machines that are withheld (stock-out), or ask the provider for more."}},
		{pb.NeedDetail_NEED_DETAIL_WITHHELD, []provider.Offering{slots("a", "a", 10)}, nil, func(v *fleet) (string, string) {
			oneNeverJoins(v) // and is given up, so that nothing is left for this cluster
			return "red", "web"
		}, []string{"withheld: 1 for not-joined", "Nearest miss: cloud-a-"}},
		{pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("train", 2, 4, 1000))
			v.configured("red", 2)
			v.operator("blue", nil).asks(need("web", 1, 4, 0))
			return "blue", "web"
		}, []string{"Most are with train of cluster red (priority 1000)", "2 machines  need/red/train  priority 1000", "Try: Add 1 machine like cloud-a-0."}},
		{pb.NeedDetail_NEED_DETAIL_STARTING, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			v.behaves(&pb.Behaviour{Call: "Configure", LatencyMillis: 60_000})
			v.operator("red", nil).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"On the way: 1 of its machines is not ready yet. Machines are being configured.", "Try: Nothing is to be done"}},
		{pb.NeedDetail_NEED_DETAIL_CREATING, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			v.behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 60_000})
			v.operator("red", nil).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Machines are being created.", "Try: Nothing is to be done"}},
		{pb.NeedDetail_NEED_DETAIL_WAITING_FOR_DRAIN, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("batch", 1, 4, 0))
			v.configured("red", 1)
			v.behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 60_000})
			v.operator("blue", nil).asks(need("urgent", 1, 4, 1000))
			return "blue", "urgent"
		}, []string{"once they are drained", "the list of drains names what blocks it"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_READY, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			red := v.operator("red", nil)
			red.asks(need("web", 1, 4, 0))
			name := v.configured("red", 1)[0]
			red.reports(true, map[string]bool{name: true})
			time.Sleep(time.Second)
			red.reports(false, map[string]bool{name: false})
			return "red", "web"
		}, []string{"Met: 1 machine counts for it. A node that joined is not Ready now.", "Try: Look at the node"}},
		{pb.NeedDetail_NEED_DETAIL_UNPLACED, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			red := v.operator("red", nil)
			red.asks(need("web", 1, 4, 0))
			v.configured("red", 1)
			red.beats(func() { // at level 0 of sharing nothing more can be done about it than to say so
				red.asks(need("web", 1, 4, 0))
				red.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{Rows: []*pb.UnplacedRow{
					{RowId: "web", Pods: 2, OldestSinceUnixNanos: time.Now().Add(-time.Hour).UnixNano(), Resources: map[string]string{"cpu": "2"}}}}}})
			})
			return "red", "web"
		}, []string{"the scheduler could not place all Pods", "Try: Look at the events of the pending Pods."}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_IGNORED, []provider.Offering{slots("a", "a", 2)}, nil, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("gang", 2, 4, 0, same(rackKey), spread(zoneKey)))
			return "red", "gang"
		}, []string{"The spread constraint is ignored", "Try: Drop the spread constraint"}},
		{pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER, []provider.Offering{slots("a", "a", 12)}, nil, func(v *fleet) (string, string) {
			v.stopProvider()
			v.operator("red", nil).asks(need("web", 12, 4, 0))
			return "red", "web"
		}, []string{"The provider does not answer; commands wait", "Try: Bring the provider back", "bigfleet provider ping"}},
		{pb.NeedDetail_NEED_DETAIL_PAUSED, []provider.Offering{slots("a", "a", 1)}, nil, func(v *fleet) (string, string) {
			v.does("pause", "--kind", "provision", "--cluster", "red", "--reason", "a trial", "--yes")
			v.operator("red", nil).asks(need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Actuation is paused", "`bigfleet get pauses` says who paused it and why; `bigfleet resume` lifts it."}},
		{pb.NeedDetail_NEED_DETAIL_RAIL, []provider.Offering{slots("a", "a", 40)}, func(c *shard.Config) { c.ProvisionRate = 1 }, func(v *fleet) (string, string) {
			v.operator("red", nil).asks(need("web", 40, 4, 0))
			return "red", "web"
		}, []string{"waits for a limit of the shard: provision rate", "Try: Wait, or raise the limit"}},
	}
}

// oneNeverJoins lets nine of ten machines join.
func oneNeverJoins(v *fleet) {
	red := v.operator("red", nil)
	red.asks(need("web", 10, 4, 0))
	red.reports(true, nil)
	nodes := map[string]bool{}
	for _, name := range v.configured("red", 10)[1:] {
		nodes[name] = true
	}
	red.reports(false, nodes)
}

// user-asks 1, ENG-19.4, ENG-19.5, SHARD-23.4: each reason for which a need can wait, or be met with a warning, is caused for real
// at a shard with a simulated cloud, and the command says what is so and what to do about it. QUOTA, which the coordinator gives,
// is in the scripts of a whole `up`.
func TestEachReason(t *testing.T) {
	for _, r := range reasons() {
		t.Run(strings.TrimPrefix(r.detail.String(), "NEED_DETAIL_"), func(t *testing.T) {
			run(t, r.offerings, r.edit, func(v *fleet) {
				cluster, row := r.cause(v)
				out := v.explains(cluster, row, r.detail)
				for _, want := range append(r.says, "Machines that could serve it:", "Try: ", "Cycle ") {
					if !strings.Contains(out, want) {
						t.Errorf("lacks %q:\n%s", want, out)
					}
				}
			})
		})
	}
}

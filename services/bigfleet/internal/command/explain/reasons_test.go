package explain_test

import (
	"fmt"
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
		}, []string{"last bootstrap for this need failed", "Try: Check the cluster's bootstrap template"}},
		{pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "template: no field Tokn", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Boot data could not be rendered: template: no field Tokn.", "Try: Correct the bootstrap template of the cluster"}},
		{pb.NeedDetail_NEED_DETAIL_CONFIGURE_FAILED, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Behaves(&pb.Behaviour{Call: "Configure", Fault: pb.FaultKind_FAULT_KIND_ERROR, ErrorClass: "bootstrap"})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"The last machine for this need could not be configured: ", "Check the provider first"}},
		{pb.NeedDetail_NEED_DETAIL_PARKED, []provider.Offering{virtual.Slots("a", "a", 2), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("lone", 1, 4, 100, virtual.In(virtual.ZoneKey, "a")), virtual.Need("other", 1, 4, 100, virtual.In(virtual.ZoneKey, "b")), virtual.Need("gang", 2, 4, 0, virtual.Same(virtual.ZoneKey)))
			return "red", "gang"
		}, []string{"waits for the next probe", "a                    could hold 50.0%", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_DOMAIN_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("gang", 3, 4, 0, virtual.Same(virtual.RackKey)))
			return "red", "gang"
		}, []string{"No domain can hold the gang", "could hold 66.6%", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_NO_MATCH, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0, virtual.In(virtual.ZoneKey, "mars")))
			return "red", "web"
		}, []string{"Without topology.kubernetes.io/zone in (mars) most machines would match", "Try: Drop the requirement topology.kubernetes.io/zone in (mars)."}},
		{pb.NeedDetail_NEED_DETAIL_DIMENSION_MISSING, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0, virtual.Wants("example.com/fpga", "1")))
			return "red", "web"
		}, []string{"No machine offers example.com/fpga", "Try: Add 1 machine like cloud-a-0, but with example.com/fpga 1."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 16, 0))
			return "red", "web"
		}, []string{"The largest is cloud-a-0: cpu: it offers 4, one Pod requests 16", "Try: Add 1 machine like cloud-a-0, but with cpu 16."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_SMALL, []provider.Offering{virtual.Slots("a", "a", 2, func(o *provider.Offering) { o.Resources["memory"] = "16Gi" })}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 1, 0, virtual.Wants("memory", "24Gi")))
			return "red", "web"
		}, []string{"memory: it offers 16Gi, one Pod requests 24Gi", "Try: Request units that fit cloud-a-0"}},
		{pb.NeedDetail_NEED_DETAIL_GANG_SHORT, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("train", 3, 4, 0, func(n *pb.CapacityNeed) { n.MinMembers = 3 }))
			return "red", "train"
		}, []string{"Too few suitable machines are free for the Pods of the gang"}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_BLOCKED, []provider.Offering{virtual.Slots("a", "a", 9), virtual.Slots("b", "b", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 2, 4, 0, virtual.Spread(virtual.ZoneKey)))
			v.Configured("red", 2)
			red.Asks(virtual.Need("web", 8, 4, 0, virtual.Spread(virtual.ZoneKey)))
			return "red", "web"
		}, []string{"only in domains that the spread constraint excludes", "Try: Increase maxSkew"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_JOINED, []provider.Offering{virtual.Slots("a", "a", 10)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Does("pause", "--kind", "reclaim", "--reason", "nothing goes now", "--yes")
			oneNeverJoins(v)
			return "red", "web"
		}, []string{"its Node never joined", "Try: Make the missing Nodes join", "network of the Nodes"}},
		{pb.NeedDetail_NEED_DETAIL_PREEMPTION_SHORT, []provider.Offering{virtual.Slots("a", "a", 3)}, nil, func(v *virtual.Fleet) (string, string) {
			red, blue := v.Operator("red", nil), v.Operator("blue", nil)
			blue.Asks(virtual.Need("urgent", 2, 4, 1000))
			v.Configured("blue", 2)
			red.Asks(virtual.Need("batch", 1, 4, 0))
			v.Configured("red", 1)
			v.Does("pause", "--kind", "preempt", "--reason", "a trial", "--yes") // else the victim soon is no victim any more
			blue.Asks(virtual.Need("urgent", 2, 4, 1000), virtual.Need("second", 2, 4, 500))
			return "blue", "second"
		}, []string{"could be preempted, but they free too little", "need/blue/urgent  priority 1000", "Try: Add 1 machine like cloud-"}},
		{pb.NeedDetail_NEED_DETAIL_STOCK_OUT, []provider.Offering{virtual.Slots("a", "a", 4)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"out of stock at the provider", "withheld: 3 for stock-out", "Try: Wait for the withheld machines (stock-out), or request more from the provider."}},
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
		}, []string{"The cluster is new to this shard", "Try: No action is needed: this ends with the next List"}},
		{pb.NeedDetail_NEED_DETAIL_WITHHELD, []provider.Offering{virtual.Slots("a", "a", 10)}, nil, func(v *virtual.Fleet) (string, string) {
			oneNeverJoins(v) // and is given up, so that nothing is left for this cluster
			return "red", "web"
		}, []string{"withheld: 1 for not-joined", "Nearest miss: cloud-a-"}},
		{pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("train", 2, 4, 1000))
			v.Configured("red", 2)
			v.Operator("blue", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "blue", "web"
		}, []string{"Most are used by train of cluster red (priority 1000)", "2 machines  need/red/train  priority 1000", "Try: Add 1 machine like cloud-a-0."}},
		{pb.NeedDetail_NEED_DETAIL_OTHER_SHARD, []provider.Offering{virtual.Slots("a", "a", 2)}, coordinated, func(v *virtual.Fleet) (string, string) {
			v.Views("v1", 1, &pb.ShardView{PartitionKeys: []string{virtual.ZoneKey}, OwnedDomains: []*pb.DomainRef{{TopologyKey: virtual.ZoneKey, TopologyValue: "b"}}})
			v.Operator("blue", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "blue", "web"
		}, []string{"The suitable machines that are free belong to another shard. 2 machines: Other shards own them.", "Try: The coordinator moves machines to a shard that stays short. `bigfleet rebalance status` shows what it waits for"}},
		{pb.NeedDetail_NEED_DETAIL_POSTPONED, racks(500), nil, func(v *virtual.Fleet) (string, string) {
			var needs []*pb.CapacityNeed
			for i := range 1_600 {
				units := 1
				if i == 0 {
					units = 501 // never met, whichever group has the first turn
				}
				needs = append(needs, virtual.Need(fmt.Sprint("web-", i), units, 4, 0, virtual.Spread(virtual.RackKey), func(n *pb.CapacityNeed) { n.Group = n.RowId }))
			}
			v.Operator("red", nil).Asks(needs...)
			return "red", "web-0"
		}, []string{"look at more racks or zones than one plan can", "Try: No action is needed."}},
		{pb.NeedDetail_NEED_DETAIL_TOO_MANY_DOMAINS, racks(1<<16 + 1), nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 2, 4, 0, virtual.Spread(virtual.RackKey)))
			return "red", "web"
		}, []string{"Machines have more than 65536 values of the topology key " + virtual.RackKey, "Try: Use a topology key that machines share"}},
		{pb.NeedDetail_NEED_DETAIL_STARTING, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Behaves(&pb.Behaviour{Call: "Configure", LatencyMillis: 60_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"On the way: 1 of its machines is not ready yet. Machines are being configured.", "Try: No action is needed"}},
		{pb.NeedDetail_NEED_DETAIL_CREATING, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 60_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"Machines are being created.", "Try: No action is needed"}},
		{pb.NeedDetail_NEED_DETAIL_WAITING_FOR_DRAIN, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("batch", 1, 4, 0))
			v.Configured("red", 1)
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 60_000})
			v.Operator("blue", nil).Asks(virtual.Need("urgent", 1, 4, 1000))
			return "blue", "urgent"
		}, []string{"waits for machines that are being drained", "`bigfleet get drains` names what blocks it"}},
		{pb.NeedDetail_NEED_DETAIL_NODE_NOT_READY, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("web", 1, 4, 0))
			name := v.Configured("red", 1)[0]
			red.Reports(true, map[string]bool{name: true})
			time.Sleep(time.Second)
			red.Reports(false, map[string]bool{name: false})
			return "red", "web"
		}, []string{"Met: 1 machine counts for it. A Node that joined is no longer Ready.", "Try: Check the Node"}},
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
		}, []string{"the scheduler has not placed all Pods", "Try: Check the events of the pending Pods."}},
		{pb.NeedDetail_NEED_DETAIL_SPREAD_IGNORED, []provider.Offering{virtual.Slots("a", "a", 2)}, nil, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("gang", 2, 4, 0, virtual.Same(virtual.RackKey), virtual.Spread(virtual.ZoneKey)))
			return "red", "gang"
		}, []string{"The spread constraint is ignored", "Try: Remove the spread constraint"}},
		{pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER, []provider.Offering{virtual.Slots("a", "a", 12)}, nil, func(v *virtual.Fleet) (string, string) {
			v.StopProvider()
			v.Operator("red", nil).Asks(virtual.Need("web", 12, 4, 0))
			return "red", "web"
		}, []string{"does not answer commands since", "Try: Restore the provider", "bigfleet provider ping"}},
		{pb.NeedDetail_NEED_DETAIL_PROVIDER_DOWN, []provider.Offering{virtual.Slots("a", "a", 12)}, nil, func(v *virtual.Fleet) (string, string) {
			v.StopProvider()
			time.Sleep(6 * time.Minute)
			v.Operator("red", nil).Asks(virtual.Need("web", 12, 4, 0))
			return "red", "web"
		}, []string{"has not listed its machines since", "Try: Restore the provider", "bigfleet provider ping"}},
		{pb.NeedDetail_NEED_DETAIL_LIMIT, []provider.Offering{virtual.Slots("a", "a", 9)}, func(c *shard.Config) { c.ClusterMachinesMax = 2 }, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 5, 4, 0))
			return "red", "web"
		}, []string{"cluster red may have at most 2 machines (--cluster-machines-max)", "Try: Wait, or raise the limit"}},
		{pb.NeedDetail_NEED_DETAIL_PAUSED, []provider.Offering{virtual.Slots("a", "a", 1)}, nil, func(v *virtual.Fleet) (string, string) {
			red := v.Operator("red", nil) // connected first: a pause refuses a cluster that no shard has
			time.Sleep(time.Second)
			v.Does("pause", "--kind", "provision", "--cluster", "red", "--reason", "a trial", "--yes")
			red.Asks(virtual.Need("web", 1, 4, 0))
			return "red", "web"
		}, []string{"paused by", ": a trial", "`bigfleet get pauses` says who paused it and why; `bigfleet resume` ends it."}},
		{pb.NeedDetail_NEED_DETAIL_RAIL, []provider.Offering{virtual.Slots("a", "a", 40)}, func(c *shard.Config) { c.ProvisionRate = 1 }, func(v *virtual.Fleet) (string, string) {
			v.Operator("red", nil).Asks(virtual.Need("web", 40, 4, 0))
			return "red", "web"
		}, []string{"held by a limit of the shard: --provision-rate allows 1 Creates per minute", "Try: Wait, or raise the limit"}},
	}
}

// racks are machines in a rack each.
func racks(n int) (out []provider.Offering) {
	for i := range n {
		out = append(out, virtual.Slots(fmt.Sprint("rack-", i), "a", 1))
	}
	return out
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

package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// session is the operator's side of one session, as far as roll-ups, their acknowledgements and boot data go.
type session struct {
	cluster string
	stream  *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	acks    chan *pb.RollupResult

	sending sync.Mutex
}

func (x *session) send(m *pb.OperatorMessage) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	return x.stream.Send(m)
}

func (s *stage) session(cluster string, features ...string) *session {
	s.t.Helper()
	return s.sessionOf(&pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: features})
}

func (s *stage) sessionOf(hello *pb.Hello) *session {
	s.t.Helper()
	cluster := hello.GetClusterId()
	c := s.caller(identity.ID{Kind: identity.Cluster, Name: cluster})
	x := &session{cluster: cluster, acks: make(chan *pb.RollupResult, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	x.stream = api.NewShardClient(c.http, "https://"+s.addrs["shard"]).Session(ctx)
	ended := make(chan struct{})
	s.t.Cleanup(func() {
		cancel()
		_ = x.stream.CloseRequest() // the transport looks at ctx only once it is done with what is sent
		<-ended
	})
	if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: hello}}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for {
			m, err := x.stream.Receive()
			if err != nil {
				return
			}
			if ask := m.GetBootstrapRequest(); ask != nil {
				if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: ask.GetRequestId(), UserData: []byte("boot"), TtlSeconds: 3600}}}); err != nil {
					return
				}
			}
			if ack := m.GetAck().GetRollup(); ack != nil {
				select {
				case x.acks <- ack:
				default:
				}
			}
		}
	}()
	return x
}

// rollup sends demand and returns its acknowledgement and how long that took.
func (x *session) rollup(ctx context.Context, needs []*pb.CapacityNeed) (*pb.RollupResult, time.Duration, error) {
	return x.rollupOf(ctx, &pb.ClusterCapacityNeeds{Needs: needs})
}

func (x *session) rollupOf(ctx context.Context, m *pb.ClusterCapacityNeeds) (*pb.RollupResult, time.Duration, error) {
	began := time.Now()
	m.ClusterId, m.TimestampUnixNanos = x.cluster, began.UnixNano()
	if err := x.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: m}}); err != nil {
		return nil, 0, err
	}
	for {
		select {
		case ack := <-x.acks:
			if ack.GetTimestampUnixNanos() == began.UnixNano() {
				return ack, time.Since(began), nil
			}
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func accepts(r *pb.RollupResult) bool {
	return r.GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED || r.GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_UNCHANGED
}

// What the shard accepts of one roll-up (docs/security.md).
const (
	rowsMax, namesMax, rowNamesMax = 50_000, 1_024, 2_000_000
	labelKeysMax, topologyKeysMax  = 1_024, 64
	rollupBytesMax                 = 16 << 20
)

// worstSlots are 50 machines. Their labels are as many as topology keys may be named, so that each key that is named finds machines, and they have as many
// resources as that many rows may name.
func worstSlots() string {
	labels, resources := "", ""
	for k := range topologyKeysMax {
		labels += fmt.Sprintf("example.com/t%d: v%d, ", k, k%3)
	}
	for k := range rowNamesMax/rowsMax - 1 {
		resources += fmt.Sprintf("%s%d: 1, ", held, k)
	}
	return strings.Replace(slots("0.1", 50), "resources: {", "labels: {"+labels+"}, resources: {"+resources, 1)
}

// The resources that rows name beside cpu, without their numbers: machines have some of them, and none of the others.
const held, unknown = "example.com/f", "example.com/r"

// keysOf names the label and topology keys of a roll-up: each time other label keys, and the topology keys of all machines and others in turn.
func keysOf(round int) (label, topology []string) {
	for k := range labelKeysMax - topologyKeysMax {
		label = append(label, fmt.Sprintf("example.com/k%d-%d", round, k))
	}
	for k := range topologyKeysMax {
		if round%4 < 2 {
			topology = append(topology, fmt.Sprintf("example.com/t%d", k))
		} else {
			topology = append(topology, fmt.Sprintf("example.com/t%d-%d", round, k))
		}
	}
	return label, topology
}

// plain has as many rows, resource names and bytes as one roll-up may have, no two rows alike, and of each of its few label keys about as many values as so
// many rows may name.
func plain(round int) *pb.ClusterCapacityNeeds {
	var keys []string
	for k := range 64 {
		keys = append(keys, fmt.Sprintf("example.com/k%d", k))
	}
	return long(round, keys, nil, unknown)
}

// corners are demand at all limits: each time one of two corners, because rows times resource names have a limit of their own.
func corners(round int) *pb.ClusterCapacityNeeds {
	label, topology := keysOf(round)
	if round%2 == 0 {
		return long(round, label, topology, unknown)
	}
	return wide(round, label, topology)
}

// fitting is demand at all limits that each machine can hold a row of, in all domains. Gangs are of many sizes, and the cluster has learnt much of its Nodes.
func fitting(round int) *pb.ClusterCapacityNeeds {
	label, _ := keysOf(round)
	_, topology := keysOf(0)
	m := long(round, label, topology, held)
	for i, n := range m.Needs {
		n.AggregateResources["cpu"] = fmt.Sprintf("%dm", 1000+i%3000) // of which n.MinUnit is the same map
	}
	m.NodeRooms = learnt(round)
	return m
}

// racked is demand at all limits for racks that differ in their machines: of rows with a hard spread over racks, and of gangs that keep to one, no two have a
// unit or requirements in common, and gangs are of thousands of sizes, most of them too large for a rack.
func racked(round int) *pb.ClusterCapacityNeeds {
	label, _ := keysOf(round)
	m := long(round, label, []string{rackKey}, held)
	for i, n := range m.Needs {
		unit, size := 1000+i/3, 1
		switch i % 3 {
		case 0:
			size = 1 + i%7
		case 1:
			size = 1 + i/3%3000
		}
		n.MinUnit["cpu"] = fmt.Sprintf("%dm", unit)
		n.AggregateResources = map[string]string{}
		for name := range n.MinUnit {
			n.AggregateResources[name] = fmt.Sprint(size)
		}
		n.AggregateResources["cpu"] = fmt.Sprintf("%dm", unit*size)
	}
	m.NodeRooms = learnt(round)
	return m
}

// rackKey is the label of racks.
const rackKey = "example.com/rack"

// rackSlots are racks of three to five machines of other types each, so that nearly no two are alike.
func rackSlots(racks int) string {
	const types = 24
	r := rand.New(rand.NewPCG(uint64(racks), 1))
	resources := ""
	for k := range rowNamesMax/rowsMax - 1 {
		resources += fmt.Sprintf("%s%d: 64, ", held, k)
	}
	var out strings.Builder
	out.WriteString("offerings:\n")
	for rack := range racks {
		for _, x := range r.Perm(types)[:3+r.IntN(3)] {
			fmt.Fprintf(&out, "- {name: r%d-m%d, instance_type: m%d, zone: a, capacity_type: on_demand, count: 1, price_per_hour: %.1f, labels: {%s: r%d}, resources: {%scpu: \"%d\", memory: %dGi}}\n",
				rack, x, x, 0.1*float64(4+x), rackKey, rack, resources, 16+2*x, 32+4*x)
		}
	}
	return out.String()
}

// learnt is as much as a cluster may say that it has learnt of its Nodes, each time something else.
func learnt(round int) (rooms []*pb.NodeRoom) {
	for i := range 512 {
		room := &pb.NodeRoom{InstanceType: fmt.Sprint("type", round, "-", i), Resources: map[string]string{}}
		for k := range 64 {
			room.Resources[fmt.Sprintf("example.com/n%d", i*64+k)] = fmt.Sprint(1 + round)
		}
		rooms = append(rooms, room)
	}
	return rooms
}

// long has as many rows as one roll-up may have, as many distinct resource names as that many rows may have, no two rows alike, these label and
// topology keys, and as many bytes as it may have.
func long(round int, label, topology []string, resource string) *pb.ClusterCapacityNeeds {
	const names = rowNamesMax / rowsMax
	padding := (rollupBytesMax - 1<<20) / rowsMax // what is left is for what a cluster has learnt of its Nodes
	out := make([]*pb.CapacityNeed, rowsMax)
	for i := range out {
		q := map[string]string{"cpu": "1", fmt.Sprint(resource, i%(names-1)): "1"}
		out[i] = &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(round, "-", i), Priority: int32(i),
			Requirements: []*pb.NodeSelectorRequirement{{Key: label[i%len(label)], Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN, Values: []string{fmt.Sprint(i)}}}}
		switch { // the others compete for machines without a domain
		case len(topology) == 0:
			out[i].Requirements[0].Operator = pb.NodeSelectorRequirement_OPERATOR_IN
		case i%3 == 0:
			out[i].Spread = []*pb.TopologySpread{{TopologyKey: topology[i/3%len(topology)], MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}}
		case i%3 == 1:
			out[i].Requirements = append(out[i].Requirements, &pb.NodeSelectorRequirement{Key: topology[i/3%len(topology)], Operator: pb.NodeSelectorRequirement_OPERATOR_SAME})
		}
		if room := padding - proto.Size(out[i]) - 4; room > 10 {
			out[i].Requirements[0].Values = append(out[i].Requirements[0].Values, strings.Repeat("v", min(room-4, 60)))
		}
	}
	return &pb.ClusterCapacityNeeds{Needs: out}
}

// wide has as many resource names as a roll-up may have, and in each of as many rows as that allows the most requirements and spreads; besides as many
// machines out of service and learnt Nodes as a roll-up may name, each with resources of its own.
func wide(round int, label, topology []string) *pb.ClusterCapacityNeeds {
	const rows, requirements, spreads, values, tolerations = rowNamesMax / namesMax, 63, 16, 7, 40
	m := &pb.ClusterCapacityNeeds{}
	for i := range rows {
		q := map[string]string{"cpu": "1", fmt.Sprint(unknown, i%(namesMax-1)): "1"}
		n := &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(round, "-", i), Priority: int32(i), TolerationsStated: true}
		for k := range requirements {
			r := &pb.NodeSelectorRequirement{Key: label[(i*requirements+k)%len(label)], Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN}
			for v := range values {
				r.Values = append(r.Values, fmt.Sprint(i, "-", v))
			}
			n.Requirements = append(n.Requirements, r)
		}
		for k := range spreads {
			n.Spread = append(n.Spread, &pb.TopologySpread{TopologyKey: topology[(i+k)%len(topology)], MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE})
		}
		for k := range tolerations {
			n.Tolerations = append(n.Tolerations, &pb.Toleration{Key: fmt.Sprint("taint", i, "-", k), Operator: "Exists"})
		}
		m.Needs = append(m.Needs, n)
	}
	for i := range 50_000 {
		m.OutOfService = append(m.OutOfService, &pb.MachineOutOfService{MachineId: fmt.Sprint("m", i), Reason: pb.MachineOutOfService_REASON_CORDONED})
	}
	m.NodeRooms = learnt(round)
	return m
}

// steady makes the honest cluster state a changed demand every 50 ms for a while, and until it is enough, and returns how long the acknowledgements took,
// ascending.
func (x *session) steady(t *testing.T, length time.Duration, enough func() bool) []time.Duration {
	t.Helper()
	var took []time.Duration
	for n, end := 0, time.Now().Add(length); time.Now().Before(end) || !enough() && time.Since(end) < 3*time.Minute; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		ack, d, err := x.rollup(ctx, []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": fmt.Sprint(1 + n%7)}, MinUnit: map[string]string{"cpu": "1"}, RowId: "row"}})
		cancel()
		if err != nil || !accepts(ack) {
			t.Fatalf("an honest roll-up: %v, %v", ack, err)
		}
		took = append(took, d)
		time.Sleep(50 * time.Millisecond)
	}
	slices.Sort(took)
	return took
}

func always() bool { return true }

// percent is the duration that so many of a hundred stay below.
func percent(took []time.Duration, n int) time.Duration { return took[len(took)*n/100] }

// late is the part of the time that was spent in waits, beyond so much of each. A sender that waits sends nothing meanwhile, so that a few long
// waits are few of all and much of the time.
func late(took []time.Duration, bound, of time.Duration) float64 {
	sum := time.Duration(0)
	for _, d := range took {
		sum += max(0, d-bound)
	}
	return float64(sum) / float64(of)
}

// beside makes the worst cluster state demand again and again while the honest one states its own, and returns how long the acknowledgements of each took,
// ascending, and how long it went on: until two of the largest are acknowledged, however busy the machine is.
func (x *session) beside(t *testing.T, worst *session, demand func(round int) *pb.ClusterCapacityNeeds, length time.Duration) (took, whole []time.Duration, lasted time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, accepted := make(chan error, 1), atomic.Int64{}
	rounds := make([]*pb.ClusterCapacityNeeds, 4) // made before: the worst cluster has a machine of its own for it
	for i := range rounds {
		rounds[i] = demand(i)
	}
	go func() {
		for round := 0; ; round++ {
			ack, d, err := worst.rollupOf(ctx, rounds[round%len(rounds)])
			if ctx.Err() != nil {
				ended <- nil
				return
			}
			if err != nil || !accepts(ack) {
				ended <- fmt.Errorf("the largest roll-up: %v, %w", ack, err)
				return
			}
			whole = append(whole, d)
			accepted.Add(1)
			t.Logf("the largest roll-up is acknowledged in %s", d.Round(time.Millisecond))
		}
	}()
	began := time.Now()
	took = x.steady(t, length, func() bool { return accepted.Load() >= 2 || len(ended) > 0 })
	lasted = time.Since(began)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(whole) == 0 {
		t.Fatal("no roll-up of the worst cluster was accepted")
	}
	slices.Sort(whole)
	return took, whole, lasted
}

// SHARD-8.9, SHARD-10.9, SHARD-32: a cluster that receives its verdicts states the most that limits together allow, again and again. The shard stays
// below its chart's memory limit. Another cluster's acknowledgement waits for a part of such a roll-up and never for all of it: how long all
// of it takes, and how long an acknowledgement takes while the others are quiet, is measured in the same run. A shard that takes such a
// roll-up in one step spends about a fifth of the time in waits that this test calls late; docs/benchmarks/B15.md has figures. Demand in the corners of all
// limits takes several times as long to check, so that a share of it says little; half of the acknowledgements are not late. All of this holds beside
// hundreds of racks, too, thousands with make worst.
func TestWorstTenant(t *testing.T) {
	const length, most = 20 * time.Second, 0.15
	corner := time.Duration(environment(t, "BIGFLEET_WORST_SECONDS", 5)) * time.Second // for each corner of all limits
	t.Run("machines", func(t *testing.T) {
		besideWorst(t, worstSlots(), []form{{"rows, names and bytes", plain, length, most}, {"all limits", corners, corner, 1}, {"all limits, with machines for it", fitting, corner, 1}})
	})
	t.Run("racks", func(t *testing.T) {
		racks := int(environment(t, "BIGFLEET_WORST_RACKS", 500))
		besideWorst(t, rackSlots(racks), []form{{fmt.Sprintf("all limits beside %d racks", racks), racked, corner, 1}})
	})
}

// lags is how many roll-ups had waited how long for the end of the plan that used them, by the buckets of the metric.
func (s *stage) lags() (counts []float64) {
	s.t.Helper()
	for _, bound := range telemetry.SecondsBuckets() {
		n, err := fixture.Metric(s.t.Context(), s.addrs["shard-ops"], "bigfleet_shard_cycle_lag_seconds_bucket", fmt.Sprintf("le=%q", strconv.FormatFloat(bound, 'g', -1, 64)))
		if err != nil {
			s.t.Fatal(err)
		}
		counts = append(counts, n)
	}
	return counts
}

// lagsBetween are the upper bounds of the buckets with half and with 99 of 100 of what was counted between.
func lagsBetween(before, after []float64) (half, most time.Duration) {
	bounds := telemetry.SecondsBuckets()
	all := after[len(after)-1] - before[len(before)-1]
	for i := len(after) - 1; i >= 0; i-- {
		bound := time.Duration(bounds[i] * float64(time.Second)).Round(time.Millisecond)
		if n := after[i] - before[i]; n >= all*0.99 {
			half, most = bound, bound
		} else if n >= all*0.5 {
			half = bound
		}
	}
	return half, most
}

// form is demand that the worst cluster states for so long, and the part of the time that another cluster's acknowledgements may be late.
type form struct {
	name   string
	demand func(round int) *pb.ClusterCapacityNeeds
	length time.Duration
	most   float64
}

// besideWorst measures the acknowledgements of one cluster beside another that states these forms of demand in turn, in a fleet with these offerings.
func besideWorst(t *testing.T, offerings string, forms []form) {
	t.Helper()
	s := newStageOf(t, nil, offerings)
	honest := s.session("red")
	alone := honest.steady(t, 3*time.Second, always)
	worst := s.session("worst", "need-status", "unplaced-pods", "node-report")
	for _, x := range forms {
		before := s.lags()
		beside, whole, lasted := honest.beside(t, worst, x.demand, x.length)
		half, most := lagsBetween(before, s.lags())
		t.Logf("%s: half of the demand is in a plan that has ended within %s, 99 %% within %s", x.name, half, most)
		bound := max(percent(whole, 50)/4, 5*percent(alone, 90), 100*time.Millisecond)
		share := late(beside, bound, lasted)
		t.Logf("%s: acknowledgements alone: half within %s, 99 %% within %s; beside %d of the largest roll-ups: half within %s, 90 %% within %s, 99 %% within %s, the last %s",
			x.name, percent(alone, 50), percent(alone, 99), len(whole), percent(beside, 50), percent(beside, 90), percent(beside, 99), beside[len(beside)-1])
		t.Logf("%s: late is beyond %s, as half of the largest roll-ups take %s: %.1f %% of the time", x.name, bound, percent(whole, 50), 100*share)
		if share > x.most {
			t.Errorf("%s: %.0f %% of the time another cluster waited longer than %s, a quarter of what a largest roll-up takes; at most %.0f %% is its share",
				x.name, 100*share, bound, 100*x.most)
		}
		if half := percent(beside, 50); half > bound {
			t.Errorf("%s: half of another cluster's acknowledgements take longer than %s, a quarter of what a largest roll-up takes: %s", x.name, bound, half)
		}
	}
	s.unharmed()
	s.replays()
}

// replays ends the shard and takes the steps of its decision log again, in which parts of plans were made beside the loop while roll-ups were answered (SHARD-4.9, SHARD-6.11).
func (s *stage) replays() {
	s.t.Helper()
	if err := s.procs["shard"].Stop(); err != nil {
		s.t.Fatal(err)
	}
	text, err := exec.CommandContext(s.t.Context(), proc.BuildT(s.t, "services/bigfleet"), "replay", s.dir+"/shard").CombinedOutput()
	if said := string(text); err != nil || !strings.Contains(said, "are as they were") {
		s.t.Errorf("bigfleet replay: %v, %.2000s", err, said)
	} else {
		s.t.Log(said)
	}
}

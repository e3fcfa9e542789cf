package shard_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// Every scenario of docs/spec/shard.md, section 35, is cited by the doc comment of a test of this module. (Those of
// engine.md have numbers of their own and their tests are in internal/engine.)
func TestEveryScenarioHasATest(t *testing.T) {
	spec, err := os.ReadFile(filepath.Join("..", "..", "docs", "spec", "shard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(spec), "\n## 35. Scenarios\n")
	if !found {
		t.Fatal("the spec has no section 35 with scenarios any more")
	}
	wanted := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. (.+)$`).FindAllStringSubmatch(list, -1) {
		n, _ := strconv.Atoi(m[1])
		wanted[n] = m[2]
	}
	if len(wanted) < 73 {
		t.Fatalf("only %d scenarios were read", len(wanted))
	}
	comment := regexp.MustCompile(`(?m)((?:^//.*\n)+)^func (?:Test|Fuzz)`)
	citation := regexp.MustCompile(`(?i)\bscenarios? (\d+(?:(?:, | and )\d+)*)`)
	err = filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/engine/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, c := range comment.FindAllStringSubmatch(string(text), -1) {
			for _, m := range citation.FindAllStringSubmatch(strings.ReplaceAll(c[1], "\n// ", " "), -1) {
				for _, n := range regexp.MustCompile(`\d+`).FindAllString(m[1], -1) {
					id, _ := strconv.Atoi(n)
					if _, known := wanted[id]; !known {
						continue // tests of one idea cite other lists too
					}
					wanted[id] = ""
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= len(wanted); id++ {
		if text := wanted[id]; text != "" {
			t.Errorf("no test cites scenario %d: %s", id, text)
		}
	}
}

// Scenario 73, SHARD-2.3, COORD-1.8: nothing that this module builds or tests reaches the coordinator.
func TestNothingReachesTheCoordinator(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; n++ {
		var p struct{ ImportPath string }
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.ImportPath, "services/coordinator") {
			t.Errorf("%s is reached: what cannot be imported cannot be waited for", p.ImportPath)
		}
	}
	if n < 100 {
		t.Errorf("only %d packages were listed", n)
	}
}

// Scenario 42, SHARD-10.7: an ack of another machine, or one that breaks the machine rules, is not proof of anything: Get
// decides, no machine is Failed and nothing is bought twice.
func TestBadAcksAreUnknownOutcomes(t *testing.T) {
	p := NewProvider(slots(2)...)
	var n atomic.Int32
	p.Ack = func(c Call, a *pb.TransitionAck) {
		a.Machine = proto.Clone(a.Machine).(*pb.Machine)
		if n.Add(1)%2 == 1 {
			a.Machine.Id = "somebody-else"
		} else {
			a.Machine.PricePerHour = -1
		}
	}
	s := start(t, p.Serve(t))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 0))
	Eventually(t, "the machine serves", func() bool {
		_, rows := s.needs(t, &pb.InspectNeedsRequest{})
		return len(rows) == 1 && rows[0].Status == pb.NeedState_NEED_STATE_MET
	})
	if got := p.Calls("Create"); len(got) != 1 {
		t.Errorf("created %v", got)
	}
	if st := s.status(t); st.MachinesByState["MACHINE_STATE_FAILED"] != 0 {
		t.Errorf("machines are Failed: %v", st.MachinesByState)
	}
}

// Scenario 46, SHARD-13.2: what a cursor provider leaves out of a delta is repaired by the next full List.
func TestLostDeltaIsRepairedByAFullList(t *testing.T) {
	p := NewProvider(slots(2)...)
	var lose atomic.Bool
	p.OnList = func(l *pb.MachineList) error {
		if lose.Load() && !l.Complete {
			l.Machines = nil
		}
		return nil
	}
	s := start(t, p.Serve(t), func(c *shard.Config) { c.FullReconcileInterval = 2 * time.Second })
	price := func() float64 {
		l, err := s.Read.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Msg.Machines {
			if m.Machine.GetId() == "m1" {
				return m.Machine.PricePerHour
			}
		}
		return -1
	}
	Eventually(t, "the machine is known", func() bool { return price() == 1 })
	lose.Store(true)
	p.Edit("m1", func(m *pb.Machine) { m.PricePerHour = 7 })
	Eventually(t, "the full List brought the price", func() bool { return price() == 7 })
}

// Scenario 63, SHARD-2.2, 2.5, 21.3: a coordinator that accepts connections and never answers, and one that is not there,
// change nothing: the shard is ready, decides and acts. (What it answers is judged in internal/core, ownership_test.go.)
func TestCoordinatorThatHangsOrIsAbsent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	absent := func() string {
		gone, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer gone.Close()
		return gone.Addr().String()
	}()
	for name, addr := range map[string]string{"hangs": ln.Addr().String(), "absent": absent} {
		t.Run(name, func(t *testing.T) {
			p := NewProvider(Host("serves", pb.MachineState_MACHINE_STATE_CONFIGURED, "red"), slots(1)[0]).Serve(t)
			first := start(t, p) // a first start without a coordinator gives this shard its view (COORD-9.10)
			Eventually(t, "ready", func() bool { return first.status(t).Ready })
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s := start(t, p, func(c *shard.Config) {
				c.CoordinatorAddr, c.CoordinatorHeartbeat, c.DataDir = addr, 100*time.Millisecond, first.Dir
			})
			o := Connect(t, s.Addr, "red", AllFeatures...)
			o.Rollup(Need("4", 0))
			Eventually(t, "it is ready, cycles run and the need is met", func() bool {
				st := s.status(t)
				_, rows := s.needs(t, &pb.InspectNeedsRequest{})
				return st.Ready && len(rows) == 1 && rows[0].Status == pb.NeedState_NEED_STATE_MET
			})
			cycles, _ := s.needs(t, &pb.InspectNeedsRequest{})
			Eventually(t, "cycles go on", func() bool {
				h, _ := s.needs(t, &pb.InspectNeedsRequest{})
				return h.Cycle > cycles.Cycle
			})
			t.Logf("met %s after the start", time.Since(began).Round(time.Millisecond))
		})
	}
}

// Scenario 68, SHARD-23.2, 6.1: a reader that takes its rows one by one, and one that takes none, cost cycles nothing; a read
// before the first cycle is a header with cycle 0.
func TestSlowReaderOfManyRows(t *testing.T) {
	p := NewProvider(slots(2)...)
	late := make(chan struct{})
	var listed atomic.Bool
	p.OnList = func(*pb.MachineList) error {
		if !listed.Load() {
			<-late
		}
		return nil
	}
	s := start(t, p.Serve(t))
	if h, rows := s.needs(t, &pb.InspectNeedsRequest{}); h.GetCycle() != 0 || len(rows) != 0 {
		t.Errorf("before the first cycle: %v, %d rows", h, len(rows))
	}
	listed.Store(true)
	close(late)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	var needs []*pb.CapacityNeed
	for i := range 5_000 {
		n := Need("1", int32(i))
		n.AggregateResources["memory"] = strconv.Itoa(i+1) + "Mi"
		needs = append(needs, n)
	}
	o.Rollup(needs...)
	Eventually(t, "the rows are planned", func() bool {
		h, _ := s.needs(t, &pb.InspectNeedsRequest{Limit: 1})
		return h.GetTotalNeeds() == 5_000
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&pb.InspectNeedsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	before := stream.Msg().GetHeader().GetCycle() // and then nothing is read
	other := Connect(t, s.Addr, "blue", AllFeatures...)
	other.Rollup(Need("4", 1_000_000))
	Eventually(t, "another cluster is served while the reader sleeps", func() bool {
		_, rows := s.needs(t, &pb.InspectNeedsRequest{ClusterId: "blue"})
		return len(rows) == 1 && rows[0].GetClaimedMachineCount() >= 1 && p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) >= 1
	})
	n := 0
	for stream.Receive() {
		if stream.Msg().GetNeed() != nil {
			n++
		}
	}
	if stream.Err() != nil || n != 5_000 {
		t.Errorf("%d rows of the cycle the read began in, %v", n, stream.Err())
	}
	if h, _ := s.needs(t, &pb.InspectNeedsRequest{Limit: 1}); h.GetCycle() <= before {
		t.Errorf("cycle %d, the read began in %d", h.GetCycle(), before)
	}
}

// sized is a need of so many MiB, at most 64.
func sized(mib, priority int) *pb.CapacityNeed {
	n := Need("4", int32(priority))
	value := strings.Repeat("v", 249)
	for len(n.Requirements) < mib {
		r := &pb.NodeSelectorRequirement{Key: "k" + strconv.Itoa(len(n.Requirements)), Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN}
		for i := range 4090 {
			r.Values = append(r.Values, value[:245]+strconv.Itoa(1000+i))
		}
		n.Requirements = append(n.Requirements, r)
	}
	return n
}

// WIRE-4.4, SHARD-32: where the shard's limit is higher, it states that limit, and a roll-up of more than a frame has by default is demand like any other.
func TestRollupsAbove64MiBWhereTheShardTakesThem(t *testing.T) {
	const limit = 80 << 20
	p := NewProvider(slots(3)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.RollupBytesMax = limit })
	o := Connect(t, s.Addr, "red", AllFeatures...)
	if got := Await(t, o, "the hello ack", func(m *pb.ShardMessage) (int64, bool) {
		return m.GetAck().GetMaxRollupBytes(), m.GetAck().GetEcho() == "hello"
	}); got != limit {
		t.Errorf("the shard states %d", got)
	}
	o.Rollup(sized(34, 1), sized(34, 2))
	Await(t, o, "68 MiB are accepted", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "rollup" })
	Eventually(t, "a machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) > 0 })
}

// Scenarios 9 and 18, SHARD-7.9, 8.1, 10.4: roll-ups of 5 and 15 MiB are accepted, one of 17 MiB is rejected and its stream
// lives, one of 70 MiB ends its stream and is counted; and bootstrap answers that come behind a roll-up that takes long to
// decode do not wait for it.
func TestSizesOfRollups(t *testing.T) {
	p := NewProvider(slots(3)...).Serve(t)
	s := start(t, p)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	answer := func(want string, after int) *pb.Acknowledgement {
		t.Helper()
		return Await(t, o, want, func(m *pb.ShardMessage) (*pb.Acknowledgement, bool) {
			n := 0
			for _, f := range o.Frames() {
				if strings.HasPrefix(f.GetAck().GetEcho(), "rollup") {
					if n++; n > after {
						return f.GetAck(), true
					}
				}
			}
			return nil, false
		})
	}
	o.Rollup(sized(5, 1))
	if a := answer("5 MiB", 0); a.Echo != "rollup" {
		t.Errorf("5 MiB: %v", a.Echo)
	}
	o.Rollup(sized(15, 2)) // the answers to the pulls of the first come behind this one
	if a := answer("15 MiB", 1); a.Echo != "rollup" {
		t.Errorf("15 MiB: %v", a.Echo)
	}
	o.Rollup(sized(17, 3))
	if a := answer("17 MiB", 2); a.Echo != "rollup-rejected:too_large" || o.Err() != nil {
		t.Errorf("17 MiB: %v, %v", a.Echo, o.Err())
	}
	Eventually(t, "a machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) > 0 })
	if n := s.metric(t, `bigfleet_shard_action_execute_outcomes_total{kind="bootstrap",outcome="blob_timeout"}`); n != 0 {
		t.Errorf("%v pulls missed their deadline behind a large roll-up", n)
	}
	o.Rollup(sized(70, 4))
	if err := o.Ended(t); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("70 MiB: %v", err)
	}
	Eventually(t, "the oversize frame is counted", func() bool { return s.metric(t, "bigfleet_shard_frames_oversize_total") == 1 })
	again := Connect(t, s.Addr, "red", AllFeatures...)
	Await(t, again, "the hello ack of the redial", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
}

package crash

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// Scenario 65, SHARD-3.2, 3.6, 3.1: a metrics port that is taken is a start error with exit code 1 that names it, before an
// epoch is taken.
func TestMetricsPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := NewProvider(Slot("m1", 1, "4", "16Gi")).Serve(t)
	dir := dataDir(t)
	s := run(t, program(t, false), dir, p.Addr, func(c *exec.Cmd) {
		c.Args = append(c.Args, "--metrics-addr", ln.Addr().String())
	})
	if code := s.ended(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(s.Log(), ln.Addr().String()) {
		t.Errorf("the error does not name the address:\n%s", s.Log())
	}
	if s.epoch() != 0 {
		t.Error("an epoch was taken by a process that could not start")
	}
}

// Scenario 66, SHARD-3.9: SIGTERM with 200 sessions and 50 commands in flight ends with code 0 within 25 s, every session gets
// a word, and after a restart every machine comes to its end: none is stranded.
func TestStopUnderLoad(t *testing.T) {
	const clusters, machines = 200, 50
	var list []*pb.Machine
	for i := range machines {
		list = append(list, Slot(fmt.Sprintf("m%02d", i), 1, "4", "16Gi"))
	}
	p := NewProvider(list...)
	p.Dwell = 2 * time.Second
	var inFlight atomic.Int32
	var slow atomic.Bool
	slow.Store(true)
	p.Before = func(Call) error {
		inFlight.Add(1)
		if slow.Load() {
			time.Sleep(3 * time.Second)
		}
		return nil
	}
	p.Serve(t)
	dir := dataDir(t)
	bin := program(t, false)
	s := run(t, bin, dir, p.Addr, nil, "--execute-concurrency", "256")
	addr := s.serving(t)
	var all []*Operator
	for i := range clusters {
		o := Connect(t, addr, fmt.Sprintf("c%03d", i), AllFeatures...)
		if i < machines {
			o.Rollup(Need("4", 0))
		}
		all = append(all, o)
	}
	Eventually(t, "50 commands are in flight", func() bool { return inFlight.Load() >= machines })
	began := time.Now()
	s.stop()
	if code := s.ended(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the stop took %s", took)
	}
	for _, o := range all {
		if err := o.Ended(t); err == nil {
			t.Error("a session ended without a word")
		}
	}
	slow.Store(false)
	next := run(t, bin, dir, p.Addr, nil)
	addr = next.serving(t)
	for i := range machines {
		o := Connect(t, addr, fmt.Sprintf("c%03d", i), AllFeatures...)
		o.Rollup(Need("4", 0))
	}
	Eventually(t, "every machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == machines })
}

// Scenario 14, SHARD-3.7, 3.8: a roll-up on which Step panics ends the process with exit code 1; after the restart the same
// content is refused as poison, and all other tenants are served.
func TestPoisonedRollup(t *testing.T) {
	bin, err := buildWith(map[string][][2]string{"../core/demand_rollup.go": {{"\tfor _, w := range e.Warnings {\n\t\tc.sample(MetricRollupWarnings",
		"\tif e.Reject == nil && len(e.Rows) > 0 && e.Rows[0].Profile.Priority == 666 {\n\t\tpanic(\"planted\")\n\t}\n\tfor _, w := range e.Warnings {\n\t\tc.sample(MetricRollupWarnings"}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	p := NewProvider(Slot("m1", 1, "4", "16Gi")).Serve(t)
	dir := dataDir(t)
	s := run(t, bin, dir, p.Addr, nil)
	o := Connect(t, s.serving(t), "red", AllFeatures...)
	o.Rollup(Need("4", 666))
	if code := s.ended(t); code != 1 {
		t.Errorf("exit code %d after a panic of the core", code)
	}
	next := run(t, bin, dir, p.Addr, nil)
	addr := next.serving(t)
	again := Connect(t, addr, "red", AllFeatures...)
	again.Rollup(Need("4", 666))
	a := Await(t, again, "the refusal", func(m *pb.ShardMessage) (*pb.Acknowledgement, bool) {
		return m.GetAck(), strings.HasPrefix(m.GetAck().GetEcho(), "rollup")
	})
	if a.Echo != "rollup-rejected:poison" {
		t.Errorf("answered %v", a)
	}
	other := Connect(t, addr, "blue", AllFeatures...)
	other.Rollup(Need("4", 1))
	Eventually(t, "the other tenant is served", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
}

// SHARD-3.8: a large roll-up that ends the process without a panic that could be recovered, as the kernel does for memory, is
// refused once two processes have ended with it.
func TestRollupThatKillsIsRefused(t *testing.T) {
	bin, err := buildWith(map[string][][2]string{"../core/demand_rollup.go": {{"\tfor _, w := range e.Warnings {\n\t\tc.sample(MetricRollupWarnings",
		"\tif e.Reject == nil && len(e.Rows) > 0 && e.Rows[0].Profile.Priority == 666 {\n\t\tvar f func(int) int\n\t\tf = func(n int) int { return f(n+1) + 1 }\n\t\tf(0)\n\t}\n\tfor _, w := range e.Warnings {\n\t\tc.sample(MetricRollupWarnings"}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]*pb.CapacityNeed, 600)
	for i := range rows {
		rows[i] = Need("4", 666)
		rows[i].RowId, rows[i].Group = fmt.Sprintf("row-%d", i), fmt.Sprintf("g%d", i)
	}
	p := NewProvider(Slot("m1", 1, "4", "16Gi")).Serve(t)
	dir := dataDir(t)
	for range 2 {
		s := run(t, bin, dir, p.Addr, nil)
		Connect(t, s.serving(t), "red", AllFeatures...).Rollup(rows...)
		if code := s.ended(t); code == 0 {
			t.Fatal("the planted defect does not end the process")
		}
	}
	next := run(t, bin, dir, p.Addr, nil)
	addr := next.serving(t)
	again := Connect(t, addr, "red", AllFeatures...)
	again.Rollup(rows...)
	a := Await(t, again, "the refusal", func(m *pb.ShardMessage) (*pb.Acknowledgement, bool) {
		return m.GetAck(), strings.HasPrefix(m.GetAck().GetEcho(), "rollup")
	})
	if a.Echo != "rollup-rejected:poison" {
		t.Errorf("answered %v", a)
	}
	other := Connect(t, addr, "blue", AllFeatures...)
	other.Rollup(Need("4", 1))
	Eventually(t, "the other tenant is served", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
}

package shard_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/meter"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/sim"
)

// specMetrics reads the names of the metric tables of SHARD-29 and ENG-22, without prefix.
func specMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	word := regexp.MustCompile("`([a-z0-9_]+)(?:\\{[^`]*\\})?`")
	for file, heading := range map[string]string{"shard.md": "## 29.", "engine.md": "## 22."} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "spec", file))
		if err != nil {
			t.Fatal(err)
		}
		_, section, ok := strings.Cut(string(raw), heading)
		if !ok {
			t.Fatalf("%s has no section %s", file, heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.SplitSeq(section, "\n") {
			cell, ok := strings.CutPrefix(line, "| ")
			if !ok || strings.HasPrefix(cell, "Name") {
				continue
			}
			cell, rest, _ := strings.Cut(cell, " |")
			for _, m := range word.FindAllStringSubmatch(cell, -1) {
				name := m[1]
				if strings.HasSuffix(name, "_") { // "a_, b_ + seconds"
					name += "seconds"
				}
				if name != "seconds" {
					names = append(names, name)
				}
			}
			_ = rest
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// seen is what a registry shows: every family, and whether any series of it is not zero.
func seen(t testing.TB, reg prometheus.Gatherer, into map[string]bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "bigfleet_shard_")
		if !ours {
			continue
		}
		moved := into[name]
		for _, m := range f.GetMetric() {
			moved = moved || m.GetCounter().GetValue() != 0 || m.GetGauge().GetValue() != 0 || m.GetHistogram().GetSampleCount() != 0
		}
		into[name] = moved
	}
}

// never are the metrics that must stay at zero in a shard without defects.
var never = []string{"plan_mismatch_total", "engine_reclaim_matches_unmet"}

// SHARD-29.1, 29.3, ENG-22: every metric of the tables is exposed by a running shard, and each one moves in a run that
// should move it: those that the core reports in simulated fleets with faults, the others in a real shard that is treated
// badly.
func TestEveryMetricOfTheTablesExistsAndMoves(t *testing.T) {
	names := specMetrics(t)
	if len(names) < 90 {
		t.Fatalf("only %d names were found in the tables: %v", len(names), names)
	}
	live := liveMetrics(t)
	moved := maps.Clone(live)
	simulatedMetrics(t, names, moved)
	for _, name := range names {
		_, exposed := live[name]
		switch {
		case !exposed && !moved[name]:
			t.Errorf("%s is not exposed", name)
		case slices.Contains(never, name):
			if moved[name] {
				t.Errorf("%s moved", name)
			}
		case !moved[name]:
			t.Errorf("%s never moved", name)
		}
	}
}

// simulatedMetrics runs simulated fleets and feeds what their cores say to a Meter. It looks at the registry when
// something rare begins, because some gauges show it for a moment only.
func simulatedMetrics(t *testing.T, names []string, moved map[string]bool) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	var rare string
	published := 0
	watch := func(c *core.Core, effects []core.Effect) {
		var last *core.Publish
		for _, e := range effects {
			switch e := e.(type) {
			case core.Sample:
				if e.Metric != core.MetricShortfallLog {
					m.Sample(e)
				}
			case *core.Publish:
				last = e
			}
		}
		if last == nil {
			return
		}
		s := &last.Status
		now := fmt.Sprint(s.Superseded != "", s.DryRun, s.Paused, s.Silent > 0, s.Unplaced > 0, s.Parked > 0, s.Counters.JoinOverdue > 0,
			s.Counters.JoinGuarded > 0, s.Counters.ExchangeSaved > 0, len(s.Pools) > 0, s.Held > 0)
		for _, p := range s.Providers {
			now += fmt.Sprint(p.Breaker, p.Held > 0)
		}
		if published++; published%20 == 0 {
			var census core.Census
			for next := 0; next >= 0; {
				next = c.Count(&census, next, 16)
			}
			m.Census(&census)
			now += fmt.Sprint(census.Stuck, census.Unjoined > 0)
		}
		if now != rare {
			rare = now
			m.Publish(last)
			m.Planned(&s.Counters)
			seen(t, reg, moved)
		}
	}
	for _, seed := range []uint64{20, 5, 2, 4, 0, 1, 3, 13, 21, 18} { // those first that meet rare things
		for _, profile := range []string{"mixed", "provider", "operator", "process"} {
			if _, err := sim.Run(sim.Options{Seed: seed + 1, Profile: profile, Watch: watch}); err != nil {
				t.Fatal(err)
			}
		}
		seen(t, reg, moved)
		if missing := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return moved[n] || slices.Contains(never, n) }); len(missing) == 0 {
			return
		}
	}
}

// liveMetrics treats real shards badly and returns what they showed.
func liveMetrics(t *testing.T) map[string]bool {
	out := map[string]bool{}
	p := NewProvider(slots(300)...).Serve(t)
	c := NewCoordinator().Serve(t)
	s := start(t, p, func(cfg *shard.Config) {
		cfg.SilentAfter, cfg.CreatingStuckAfter = 300*time.Millisecond, 100*time.Millisecond
		cfg.CoordinatorAddr, cfg.CoordinatorHeartbeat = c.Addr, 50*time.Millisecond
		cfg.ReclaimCapSet = true
		if err := os.WriteFile(filepath.Join(cfg.DataDir, "decisions"), []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Ops = []*telemetry.OpsPort{lostPort(t, cfg.Telemetry)}
	})
	wait := func(names ...string) {
		t.Helper()
		for _, name := range names {
			Eventually(t, name+" moves", func() bool { seen(t, s.tel.Registry, out); return out[name] })
		}
	}
	wait("component_restarts_total", "coordinator_term", "coordinator_last_report_seconds")
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "view-1", Payload: &pb.CoordinatorInstruction_SetView{SetView: &pb.ShardView{
		Version: &pb.ViewVersion{Term: 1, Index: 1}, OnlyShard: true}}})

	o := Connect(t, s.Addr, "red", AllFeatures...)
	soft := Need("10", 5)
	soft.Requirements = []*pb.NodeSelectorRequirement{{Key: "zone", Operator: pb.NodeSelectorRequirement_OPERATOR_EXISTS, Values: []string{"odd"}}}
	o.Rollup(soft)
	wait("rollup_warnings_total")
	o.Rollup(Need("10", 5))
	Eventually(t, "three machines are configured", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	wait("inventory_machines", "spend_dollars_per_hour", "cluster_spend_dollars_per_hour", "demand_machines", "engine_sharing_level", "cycle_phase_duration_seconds", "event_queue_depth",
		"engine_actions_per_net_change", "decision_log_errors_total")
	o.Rollup(Need("6", 5))
	Eventually(t, "a machine is given back", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_IDLE) == 1 })

	p.Edit("m1", func(m *pb.Machine) { m.Cluster = "blue" })
	wait("binding_conflicts_total")
	p.Edit("m10", func(m *pb.Machine) { m.InterruptionProbability = 1 })
	wait("interruptions_total")
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: strings.Repeat("x", 65<<20)}}})
	wait("frames_oversize_total")
	if err := o.Ended(t); err == nil {
		t.Error("a frame of 65 MiB did not end its session")
	}
	wait("clusters_silent")

	// Machines that stay in a transition, a provider that fails, Lists that show nothing.
	o = Connect(t, s.Addr, "red", AllFeatures...)
	if _, err := s.Admin.SetDryRun(t.Context(), connect.NewRequest(&pb.SetDryRunRequest{DryRun: true, Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	o.Rollup(Need("20", 5))
	wait("dry_run", "actions_dryrun_total")
	if _, err := s.Admin.SetDryRun(t.Context(), connect.NewRequest(&pb.SetDryRunRequest{Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	early, err := s.Admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "test"}))
	if err != nil {
		t.Fatal(err)
	}
	o.Rollup(Need("60", 5))
	wait("actions_suppressed_total")
	p.Set(func(p *Provider) { p.Dwell = time.Minute }) // what is bought after the pause stays on its way
	if _, err := s.Admin.ResumeActuation(t.Context(), connect.NewRequest(&pb.ResumeActuationRequest{PauseId: early.Msg.GetPause().GetPauseId(), Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	o.Rollup(Need("21", 5))
	wait("machines_stuck")
	p.Set(func(p *Provider) {
		p.Before = func(Call) error { return connect.NewError(connect.CodeUnavailable, errors.New("down")) }
	})
	o.Rollup(Need("120", 5))
	wait("provider_breaker")
	p.Set(func(p *Provider) {
		p.NoCursor, p.OnList = true, func(l *pb.MachineList) error { l.Machines = nil; return nil }
	})
	if _, err := s.Admin.ReconcileNow(t.Context(), connect.NewRequest(&pb.ReconcileNowRequest{Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	wait("removals_held")
	o.Rollup(Need("160", 5))
	if _, err := s.Admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "test"})); err != nil {
		t.Fatal(err)
	}
	o.Rollup(Need("200", 5))
	wait("actuation_paused")

	// What a coordinator says.
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "view-2", Payload: &pb.CoordinatorInstruction_SetView{SetView: &pb.ShardView{
		Version: &pb.ViewVersion{Term: 1, Index: 2}}}})
	wait("machines_foreign")
	c.Set(func(c *Coordinator) {
		c.Answer = func(*pb.ShardReport) (*pb.ReportAck, error) {
			return nil, connect.NewError(connect.CodeAborted, errors.New("epoch 9 was seen, this is 8"))
		}
	})
	wait("epoch_disputed")
	strangers(t, out)
	return out
}

// lostPort is a metrics port that is lost as soon as it is served.
func lostPort(t *testing.T, tel *telemetry.Telemetry) *telemetry.OpsPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ops, err := telemetry.NewOps(telemetry.OpsConfig{Gatherer: tel.Registry, Health: tel.Health, Log: tel.Log})
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	return &telemetry.OpsPort{Ops: ops, Listener: ln}
}

// strangers makes a session under a name that is not the certificate's, a process that another one supersedes, and an
// outbox that no writer empties.
func strangers(t *testing.T, out map[string]bool) {
	t.Helper()
	ca, err := devca.New("metrics")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := func(id identity.ID) identity.Files {
		f, err := ca.Write(dir, id.Name, devca.For(id))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p := NewProvider(slots(4)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.MaxActionsPerCycle, c.CycleMinSpacing = 1, 10*time.Millisecond })
	wait := func(name string) {
		t.Helper()
		Eventually(t, name+" moves", func() bool { seen(t, s.tel.Registry, out); return out[name] })
	}
	red := Connect(t, s.Addr, "red", AllFeatures...)
	red.Rollup(Need("4", 0))
	Eventually(t, "red has a machine", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 1 })
	red.Close()
	blue := Connect(t, s.Addr, "blue", AllFeatures...)
	blue.Rollup(Need("16", 100)) // all there is, that of red included, which has no session
	wait("actions_deferred_total")
	wait("evictions_skipped_total")
	p.Set(func(p *Provider) {
		p.Before = func(c Call) error {
			return rpc.NewError(connect.CodeFailedPrecondition, "a newer token was seen", &pb.FenceDetail{ShardId: c.Shard, MachineId: c.Machine,
				OfferedEpoch: c.Epoch, OfferedSequence: c.Sequence, MarkEpoch: c.Epoch + 1, MarkSequence: 1})
		}
	})
	p.Add(Slot("m9", 1, "4", "16Gi"))
	blue.Rollup(Need("20", 100))
	wait("fenced")

	server := files(identity.ID{Kind: identity.Shard, Name: "shard-0"})
	s = start(t, NewProvider().Serve(t), func(c *shard.Config) { c.TLS = server })
	source, err := identity.Load(files(identity.ID{Kind: identity.Cluster, Name: "red"}), identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: s.Addr, Identity: source, Log: slog.New(slog.DiscardHandler), Limits: rpc.ReadClientLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	stream := rpc.Stub(client, bigfleetv1alpha1connect.NewShardClient).Session(t.Context())
	_ = stream.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "blue"}}})
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a session under another name ended with %v", err)
	}
	wait("session_identity_rejected_total")
	_, _ = stream.CloseRequest(), stream.CloseResponse()

	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	box := session.NewOutbox(session.OutboxLimits{EssentialFrames: 1, Bytes: 100})
	box.Put(session.Frame{Class: session.Hint, Key: "h", Bytes: 50})
	box.Put(session.Frame{Class: session.Hint, Key: "h", Bytes: 60})
	box.Put(session.Frame{Class: session.Keyed, Key: "k", Bytes: 60})
	box.Put(session.Frame{Class: session.Essential})
	if _, ok := box.Put(session.Frame{Class: session.Essential}); ok {
		t.Error("an outbox over its limit takes more")
	}
	var observer session.Observer = m
	observer.SlowClosed()
	m.Outboxes(map[string]int{session.Keyed.String(): box.Stats().Depth[session.Keyed]})
	observer.OutboxEnded(box.Stats())
	// Three things happen too seldom for a short run; when they do is tested with the engine (ENG-17.4, ENG-12.5) and the
	// core (SHARD-20.6).
	m.Publish(&core.Publish{Status: core.Status{Cycle: 1, Counters: engine.Counters{JoinGuarded: 1}}})
	m.Planned(&engine.Counters{Displaced: 1})
	m.Sample(core.Sample{Metric: core.MetricFenceReordered, Value: 1})
	seen(t, reg, out)
}

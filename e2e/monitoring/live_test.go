package monitoring_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/e2e/monitoring"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// live is a provider as a program, most often the simulated cloud, which serves the metrics of every provider.
type live struct {
	bigfleetv1alpha1connect.CapacityProviderClient
	control bigfleetv1alpha1connect.SubstrateControlClient
	metrics string
	sent    int64
}

func startSim(t *testing.T, args ...string) *live {
	t.Helper()
	return startProvider(t, "sim", args...)
}

func startProvider(t *testing.T, name string, args ...string) *live {
	t.Helper()
	ports, err := loopback.ReserveN(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		t.Cleanup(p.Release)
	}
	dir := t.TempDir()
	l := &live{
		CapacityProviderClient: bigfleetv1alpha1connect.NewCapacityProviderClient(http.DefaultClient, "http://"+ports[0].Addr()),
		control:                bigfleetv1alpha1connect.NewSubstrateControlClient(http.DefaultClient, "http://"+ports[2].Addr()),
		metrics:                "http://" + ports[1].Addr(),
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	proc.StartT(t, proc.Config{
		Name: name, Path: proc.BuildT(t, "services/providers/"+name+"/cmd/bigfleet-provider-"+name), LogFile: filepath.Join(dir, "log"),
		Args:  append([]string{"--addr", ports[0].Addr(), "--metrics-addr", ports[1].Addr(), "--control-addr", ports[2].Addr(), "--data-dir", dir}, args...),
		Ready: proc.HTTP(l.metrics+"/readyz", nil),
	})
	return l
}

func (l *live) scrape(t *testing.T) []byte {
	t.Helper()
	answer, err := http.Get(l.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (l *live) next() *int64 { l.sent++; return &l.sent }

// settle waits for a machine's state.
func (l *live) settle(t *testing.T, id string, want bigfleetv1alpha1.MachineState) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		m, err := l.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
		if err != nil {
			t.Fatal(err)
		}
		if m.Msg.GetState() == want {
			return
		}
	}
	t.Fatalf("%s does not become %s", id, want)
}

// live once through everything that a provider counts: a whole life, a repeat, a stale token, a conflict, a failure, lists.
func (l *live) exercise(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	all, err := l.List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil {
		t.Fatal(err)
	}
	var ids, spot []string
	for _, m := range all.Msg.GetMachines() {
		switch {
		case m.GetState() != bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE:
		case m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT:
			spot = append(spot, m.GetId())
		case m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_ON_DEMAND:
			ids = append(ids, m.GetId())
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(code connect.Code, err error) {
		t.Helper()
		if connect.CodeOf(err) != code {
			t.Fatalf("%v, want %v", err, code)
		}
	}
	create := func(id string) error {
		_, err := l.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: *l.next()}))
		return err
	}
	configure := func(id, cluster string, n int64) error {
		_, err := l.Configure(ctx, connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{MachineId: id, ClusterId: cluster, BootstrapBlob: []byte("x"), ShardId: "s", ShardEpoch: 1, SequenceNumber: n}))
		return err
	}
	a, b := ids[0], ids[1]
	must(create(a))
	l.settle(t, a, bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	must(create(a)) // a repeat
	must(configure(a, "red", *l.next()))
	l.settle(t, a, bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED)
	refused(connect.CodeFailedPrecondition, configure(a, "red", 1))
	refused(connect.CodeAlreadyExists, configure(a, "blue", *l.next()))
	_, err = l.Drain(ctx, connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: a, ShardId: "s", ShardEpoch: 1, SequenceNumber: *l.next()}))
	must(err)
	l.settle(t, a, bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	_, err = l.Delete(ctx, connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{MachineId: a, ShardId: "s", ShardEpoch: 1, SequenceNumber: *l.next()}))
	must(err)
	l.settle(t, a, bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE)
	must(create(spot[0]))
	l.settle(t, spot[0], bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
	_, err = l.control.Interrupt(ctx, connect.NewRequest(&bigfleetv1alpha1.InterruptRequest{Max: 1, NoticeMillis: 600_000}))
	must(err)
	_, err = l.control.SetBehaviour(ctx, connect.NewRequest(&bigfleetv1alpha1.SetBehaviourRequest{Behaviour: &bigfleetv1alpha1.Behaviour{
		Call: "Create", Fault: bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR, ErrorClass: "quota",
	}}))
	must(err)
	must(create(b))
	l.settle(t, b, bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED)
	for _, since := range [][]byte{all.Msg.GetRevision(), []byte("no cursor of ours")} {
		_, err = l.List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{SinceRevision: since}))
		must(err)
	}
}

// seen is what Prometheus has after two scrapes of a provider that did everything once, and of one under mTLS.
func seen(t *testing.T) *monitoring.Series {
	t.Helper()
	var s monitoring.Series
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("seed_count: 600\nprices: {interval: 1s}\nreconcile_interval: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := startSim(t, "--config", config, "--preset", "calm")
	if err := s.Scrape(bytes.NewReader(l.scrape(t)), monitoring.Start); err != nil {
		t.Fatal(err)
	}
	l.exercise(t)
	// Notices and prices travel by themselves; a scrape that has them all is the second.
	want := []string{"bigfleet_provider_interruptions_total", "bigfleet_provider_price_usd_per_hour", "bigfleet_provider_price_age_seconds"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text := l.scrape(t)
	for ; slices.ContainsFunc(want, func(name string) bool { return !bytes.Contains(text, []byte("\n"+name+"{")) }); text = l.scrape(t) {
		select {
		case <-ctx.Done():
			t.Fatalf("the provider never showed all of %v:\n%s", want, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, at := range []time.Duration{time.Minute, 2 * time.Minute} { // twice: a counter that is new needs a second sample to have a rate
		if err := s.Scrape(bytes.NewReader(text), monitoring.Start.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := devca.New("monitoring")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Write(t.TempDir(), "provider", devca.Request{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	secure := startSim(t, "--state", "memory", "--provider", "secure", "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
	if err := s.Scrape(bytes.NewReader(secure.scrape(t)), monitoring.Start.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &s
}

// PROV-21.5, OPS-9.4: every panel of the dashboard has data from a real program, every metric and label that panels and
// alerts name is exposed, and every panel has a sentence and a link to the runbook.
func TestProviderDashboardHasData(t *testing.T) {
	series, engine := seen(t), monitoring.Engine()
	board, err := monitoring.ReadDashboard(deployed(t, "deploy", "monitoring", "provider-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if !strings.HasSuffix(p.Description, ".") || len(p.Links) == 0 || len(p.Targets) == 0 {
			t.Errorf("%s: a panel needs a sentence, a link and a query", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$provider", ".*")
			exposed(t, p.Title, expr, series)
			found, err := monitoring.Ask(t.Context(), engine, series, expr, monitoring.Start.Add(2*time.Minute))
			if err != nil || len(found) == 0 {
				t.Errorf("%s has no data: %s: %v", p.Title, expr, err)
			}
		}
	}
	rules, err := monitoring.Rules(deployed(t, "deploy", "monitoring", "provider-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Some alerts are of one provider.
	for name, args := range map[string][]string{"hosts": {"--agent-addr", "127.0.0.1:0"}, "aws": {"--seed-count", "10"}} {
		own := startProvider(t, name, append(args, "--use-fake-backend")...)
		if err := series.Scrape(bytes.NewReader(own.scrape(t)), monitoring.Start.Add(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rules {
		exposed(t, r.Alert, r.Expr, series)
	}
}

// exposed checks that what an expression names is there.
func exposed(t *testing.T, what, expr string, s *monitoring.Series) {
	t.Helper()
	named, err := monitoring.Selectors(expr)
	if err != nil {
		t.Error(err)
	}
	for _, metric := range slices.Sorted(maps.Keys(named)) {
		there := s.Labels(metric)
		for _, label := range named[metric] {
			if !there[label] {
				t.Error(fmt.Errorf("%s names %s{%s}, which no provider exposes", what, metric, label))
			}
		}
	}
}

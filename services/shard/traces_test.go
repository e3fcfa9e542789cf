package shard_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-30.2, OPS-9.3: one trace leads from a roll-up over the cycle and the operation to the pull and the provider's call,
// and each of them carries the operation id.
func TestOneTraceFromRollupToProvider(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	p := NewProvider(slots(2)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.Telemetry.Tracer = provider })
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 1))
	Eventually(t, "a machine is configured", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 1 })
	o.Rollup()
	Eventually(t, "it was drained", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_IDLE"] == 1 })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	byID := map[string]sdktrace.ReadOnlySpan{}
	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, x := range recorder.Ended() {
		byID[x.SpanContext().SpanID().String()] = x
		byName[x.Name()] = x
	}
	parents := func(name string) (names []string) {
		for x := byName[name]; x != nil; x = byID[x.Parent().SpanID().String()] {
			names = append(names, x.Name())
		}
		return names
	}
	for name, want := range map[string][]string{
		"provider create":     {"provider create", "operation provision", "cycle", "roll-up"},
		"reclaim instruction": {"reclaim instruction", "operation reclaim"},
		"bootstrap pull":      {"bootstrap pull", "operation bootstrap"},
		"provider configure":  {"provider configure", "operation bootstrap"},
		"provider drain":      {"provider drain", "operation reclaim"},
	} {
		got := parents(name)
		if len(got) < len(want) {
			t.Errorf("%s hangs on %v, want %v", name, got, want)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s hangs on %v, want %v", name, got, want)
			}
		}
		if x := byName[name]; x != nil {
			has := false
			for _, a := range x.Attributes() {
				has = has || a.Key == "operation" && a.Value.AsString() != ""
			}
			if !has {
				t.Errorf("%s does not name its operation", name)
			}
		}
	}
	if n := len(recorder.Started()) - len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans never ended", n)
	}
}

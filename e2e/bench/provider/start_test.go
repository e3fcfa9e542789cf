package provider_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// PROV-25.8: from the start of the program to its first answer, with 500,000 machines in the state file; and once with an
// empty one, which it fills. The floor reads the bytes of the state file.
func BenchmarkStart(b *testing.B) {
	machines := scaled(500_000)
	begin := time.Now()
	f := start(b, machines, 0)
	seeding := time.Since(begin)
	b.Run("rounds", func(b *testing.B) {
		file := filepath.Join(f.process.Dir, "provider.db")
		id := f.take(b, 1)[0]
		stop := func() {
			if err := f.process.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		stop()
		var failed error
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.8", Size: map[string]any{"machines": machines}, WorkloadSum: "start",
			Floor: measure.Floor{Probe: "read the file", Parts: []measure.Part{{Run: func() {
				r, err := os.Open(file)
				if err == nil {
					_, err = io.Copy(io.Discard, r)
					_ = r.Close()
				}
				if err != nil {
					failed = err
				}
			}}}},
			Subject: func() {
				if _, err := f.process.Start(b.Context()); err != nil {
					failed = err
				}
			},
			Check: func() error {
				f.dial()
				if _, err := f.Get(b.Context(), connect.NewRequest(&pb.MachineRef{Id: id})); err != nil {
					return err
				}
				stop()
				return failed
			},
			Oracle: "a Get of a stored machine",
			Bounds: func(median float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("start with 500,000 stored machines", "ns", median, float64(5*time.Second)),
					measure.AtMost("first seeding of 500,000", "ns", float64(seeding), float64(15*time.Second)),
				}
			},
		})
	})
}

// PROV-25.10: one round over 500,000 hosts that did not change, in the processor time of the whole program. The floor finds
// each host in a map and compares a string.
func BenchmarkReconcile(b *testing.B) {
	hosts := scaled(500_000)
	port, err := loopback.Reserve()
	if err != nil {
		b.Fatal(err)
	}
	defer port.Release()
	f := start(b, 0, hosts, "--metrics-addr", port.Addr(), "--reconcile-interval", "100ms")
	f.metrics = "http://" + port.Addr() + "/metrics"
	b.Run("rounds", func(b *testing.B) {
		known := make(map[string]string, hosts)
		for i := range hosts {
			known[fmt.Sprintf("bench://%09d", i)] = "same"
		}
		before := f.list(b, &pb.ListFilter{MaxResults: 1}).GetRevision()
		commits := f.value(b, "bigfleet_provider_store_commits_total")
		const cpuSeconds, rounds = "process_cpu_seconds_total", "bigfleet_provider_reconcile_total"
		cpu, done := f.value(b, cpuSeconds), f.value(b, rounds)
		var differ int
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.10", Size: map[string]any{"hosts": hosts}, WorkloadSum: "reconcile",
			Floor: measure.Floor{Probe: "map lookups", Parts: []measure.Part{{Run: func() {
				for ref := range known {
					if known[ref] != "same" {
						differ++
					}
				}
			}}}},
			Subject: func() {
				for at := f.value(b, rounds); f.value(b, rounds) == at; time.Sleep(20 * time.Millisecond) { // each look at the metrics costs the program time
				}
			},
			Check: func() error {
				if n := f.value(b, "bigfleet_provider_store_commits_total") - commits; n != 0 || differ != 0 {
					return fmt.Errorf("%v commits in rounds that changed nothing", n)
				}
				if after := f.list(b, &pb.ListFilter{MaxResults: 1}).GetRevision(); string(after) != string(before) {
					return fmt.Errorf("the revision went from %x to %x", before, after)
				}
				return nil
			},
			Oracle: "no commit, no revision",
			Bounds: func(float64) []measure.Bound {
				n := f.value(b, rounds) - done
				return []measure.Bound{
					measure.AtMost("processor time of a round", "ns", (f.value(b, cpuSeconds)-cpu)/n*1e9, float64(2*time.Second)),
					measure.Shown("rounds", "count", n),
				}
			},
		})
	})
}

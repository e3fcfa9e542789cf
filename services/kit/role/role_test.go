package role_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	heap "runtime/metrics"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shared(metrics string) config.Shared {
	return config.Shared{LogFormat: "text", LogLevel: "error", MetricsAddr: metrics}
}

// OPS-2.1: --metrics-addr and a health port of its own answer while the role works, and are free when it has ended.
func TestPortsAnswerWhileTheRoleWorks(t *testing.T) {
	var addrs []string
	err := role.Run(t.Context(), role.Config{Component: "shard", Instance: "shard-7", Shared: shared("127.0.0.1:0"), HealthAddr: "127.0.0.1:0"},
		func(ctx context.Context, o role.Opened) error {
			ctx, stop := context.WithCancel(ctx)
			g := process.New(process.Config{Log: o.Telemetry.Log})
			for _, p := range o.Ports {
				addrs = append(addrs, p.Listener.Addr().String())
				g.Add(process.Component{Name: addrs[len(addrs)-1], Kind: process.Restarts, Run: p.Run})
			}
			done := make(chan error, 1)
			go func() { done <- g.Run(ctx) }()
			for _, addr := range addrs {
				if page := get(t, "http://"+addr+"/metrics"); !strings.Contains(page, `bigfleet_build_info{`) {
					t.Errorf("%s: no build info in:\n%s", addr, page)
				}
			}
			stop()
			return <-done
		})
	if err != nil || len(addrs) != 2 {
		t.Fatalf("ports %v, err %v", addrs, err)
	}
	for _, addr := range addrs {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("%s is not free: %v", addr, err)
		}
		ln.Close()
	}
}

// A role without a port still has the handler, for a port of its own (COORD-17.1).
func TestOffMeansNoPort(t *testing.T) {
	failed := errors.New("the work failed")
	err := role.Run(t.Context(), role.Config{Component: "coordinator", Shared: shared("0")}, func(_ context.Context, o role.Opened) error {
		if len(o.Ports) != 0 || o.Ops == nil || o.Telemetry == nil {
			t.Errorf("ports %v, ops %v, telemetry %v", o.Ports, o.Ops, o.Telemetry)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want that of the work", err)
	}
}

// A port that is taken stops the start before any work, names the address and frees what was bound before.
func TestTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = role.Run(t.Context(), role.Config{Component: "shard", Shared: shared("127.0.0.1:0"), HealthAddr: taken.Addr().String()},
		func(context.Context, role.Opened) error {
			t.Error("the work began")
			return nil
		})
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("error %v, want one that names %s", err, taken.Addr())
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// ADR 0130 and 0237: a role whose memory lives for long collects at half growth when that is much, and after 32 MiB when
// little is alive, unless the environment says otherwise; it leaves the setting as it was.
func TestLivingHeap(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	during := func(living bool, work func()) {
		t.Helper()
		err := role.Run(t.Context(), role.Config{Component: "shard", Shared: shared("0"), LivingHeap: living}, func(context.Context, role.Opened) error {
			work()
			return nil
		})
		if after := growth(); err != nil || after != 100 {
			t.Fatalf("err %v; the growth afterwards is %d", err, after)
		}
		runtime.GC() // nothing of an ended role is left that would change it
		if after := growth(); after != 100 {
			t.Fatalf("the growth is %d after the collection that followed", after)
		}
	}
	is := func(what string, ok func(percent uint64) bool) func() {
		return func() {
			for deadline := time.Now().Add(time.Minute); !ok(growth()); runtime.GC() {
				if time.Now().After(deadline) {
					t.Errorf("%s: the growth stays %d", what, growth())
					return
				}
			}
		}
	}
	t.Setenv("GOGC", "")
	during(true, is("little is alive", func(p uint64) bool { return p > 100 }))
	during(true, func() {
		alive := make([]byte, 128<<20)
		is("much is alive", func(p uint64) bool { return p == 50 })()
		runtime.KeepAlive(alive)
		is("little is alive again", func(p uint64) bool { return p > 100 })()
	})
	during(false, is("no living heap", func(p uint64) bool { return p == 100 }))
	t.Setenv("GOGC", "100")
	during(true, is("GOGC is set", func(p uint64) bool { return p == 100 }))
}

// ADR 1002: while collections take more than a tenth of the processor time that is used, a heap that may grows by its room, and by twice what is alive at most; then it is
// as before.
func TestBusyHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	alive := make([]byte, 128<<20)
	until := func(what string, between func(), ok func(percent uint64) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(growth()); runtime.GC() {
			if between(); time.Now().After(deadline) {
				t.Fatalf("%s: the growth stays %d", what, growth())
			}
		}
	}
	busy := func() { time.Sleep(200 * time.Microsecond) }
	used := func() {
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		}
	}
	for _, x := range []struct {
		room, percent uint64
	}{{0, 50}, {100 << 20, 78}, {1 << 30, 200}} {
		err := role.Run(t.Context(), role.Config{Component: "shard", Shared: shared("0"), LivingHeap: true, BusyHeapRoom: x.room}, func(context.Context, role.Opened) error {
			until("collecting", busy, func(p uint64) bool { return p <= x.percent && p+5 >= x.percent })
			until("others use the processor", used, func(p uint64) bool { return p == 50 })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	runtime.KeepAlive(alive)
}

func growth() uint64 {
	s := []heap.Sample{{Name: "/gc/gogc:percent"}}
	heap.Read(s)
	return s[0].Value.Uint64()
}

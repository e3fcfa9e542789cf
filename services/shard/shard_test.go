package shard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is one shard under test, with its clients.
type running struct {
	Addr  string
	Dir   string
	Read  bigfleetv1alpha1connect.ShardReadClient
	Admin bigfleetv1alpha1connect.ShardAdminClient
	Log   *logBuffer
	tel   *telemetry.Telemetry
	stop  func() error
}

// logBuffer keeps what the shard logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a shard on loopback against a provider until the test ends or Stop is called.
func start(t testing.TB, p *Provider, edit ...func(*shard.Config)) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Addr: ln.Addr().String(), Log: &logBuffer{}}
	r.tel, err = telemetry.New(t.Context(), telemetry.Config{Component: "shard", LogWriter: r.Log, LogLevel: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	c := shard.Config{ID: "shard-0", DataDir: t.TempDir(), Listener: ln, Telemetry: r.tel, Ready: ready,
		Providers: []shard.Provider{{Name: "test", Addr: p.Addr}}, ReconcileInterval: 200 * time.Millisecond,
		ReleaseDelay: -1, ReleaseDelayEmpty: -1, SessionHandoverWait: -1, InflightPoll: 10 * time.Millisecond, CycleInterval: time.Second, CycleMinSpacing: 10 * time.Millisecond}
	for _, f := range edit {
		f(&c)
	}
	r.Dir = c.DataDir
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- shard.Run(ctx, c) }()
	var once sync.Once
	var result error
	r.stop = func() error {
		once.Do(func() {
			cancel()
			result = <-done
			_ = r.tel.Close(context.Background())
		})
		return result
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the shard ended with %v", err)
		}
		if t.Failed() {
			t.Log(r.Log.String())
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("the shard did not start: %v\n%s", err, r.Log)
	}
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: r.Addr, Log: slog.New(slog.DiscardHandler), Limits: rpc.ReadClientLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	r.Read = rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)
	r.Admin = rpc.Stub(client, bigfleetv1alpha1connect.NewShardAdminClient)
	return r
}

func (r *running) status(t testing.TB) *pb.GetStatusResponse {
	t.Helper()
	s, err := r.Read.GetStatus(t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return s.Msg
}

func (r *running) needs(t testing.TB, q *pb.InspectNeedsRequest) (*pb.InspectNeedsHeader, []*pb.NeedView) {
	t.Helper()
	s, err := r.Read.InspectNeeds(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var h *pb.InspectNeedsHeader
	var rows []*pb.NeedView
	for s.Receive() {
		if x := s.Msg().GetHeader(); x != nil {
			h = x
		} else {
			rows = append(rows, s.Msg().GetNeed())
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return h, rows
}

func slots(n int) (out []*pb.Machine) {
	for i := range n {
		out = append(out, Slot(fmt.Sprintf("m%d", i+1), 1, "4", "16Gi"))
	}
	return out
}

// The whole line: demand comes, slots become hosts, hosts join; demand goes, nodes are cordoned, drained and kept idle.
func TestDemandBecomesMachinesAndGoesBack(t *testing.T) {
	p := NewProvider(slots(6)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.ReclaimCapSet = true })
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("10", 0))
	Eventually(t, "three machines are configured", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	for _, c := range p.Calls("Configure") {
		if c.Cluster != "red" || c.Blob != "blob for "+c.Machine || c.Metadata["bigfleet.lucy.sh/owner-shard"] != "shard-0" {
			t.Errorf("configured with %+v", c)
		}
	}
	if n := len(p.Calls("Create")); n != 3 {
		t.Errorf("%d machines were bought for three", n)
	}
	Eventually(t, "the operator has node states", func() bool {
		n := map[string]bool{}
		for _, f := range o.Frames() {
			if u := f.GetNodeStateUpdate(); u.GetState() == pb.MachineState_MACHINE_STATE_CONFIGURED {
				n[u.MachineId] = true
			}
		}
		return len(n) == 3
	})
	Eventually(t, "the need is met", func() bool {
		_, rows := s.needs(t, &pb.InspectNeedsRequest{})
		return len(rows) == 1 && rows[0].Status == pb.NeedState_NEED_STATE_MET && rows[0].ClaimedMachineCount == 3
	})

	o.Rollup(Need("3", 0))
	Eventually(t, "two machines went back to idle", func() bool {
		return p.Count(pb.MachineState_MACHINE_STATE_IDLE) == 2 && p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1
	})
	released := map[string]bool{}
	Eventually(t, "the operator got the reclaims", func() bool {
		for _, f := range o.Frames() {
			if u := f.GetNodeStateUpdate(); u.GetReleased() {
				released[u.MachineId] = true
			}
		}
		return len(released) == 2
	})
	instructed := map[string]int{}
	for _, f := range o.Frames() {
		if r := f.GetReclaimInstruction(); r != nil {
			instructed[r.MachineIds[0]]++
			if r.GracePeriodSeconds != 600 || r.Cause != pb.ReclaimInstruction_CAUSE_VOLUNTARY {
				t.Errorf("instruction %v", r)
			}
		}
	}
	if len(instructed) != 2 {
		t.Errorf("drained %v", instructed)
	}
	if n := len(p.Calls("Create")); n != 3 {
		t.Errorf("%d machines were bought for three", n)
	}
	st := s.status(t)
	if !st.Ready || st.MachinesByState["MACHINE_STATE_CONFIGURED"] != 1 || st.Sessions != 1 {
		t.Errorf("status %v", st)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// metric reads one series; 0 when it does not exist.
func (r *running) metric(t testing.TB, series string) float64 {
	t.Helper()
	families, err := r.tel.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name, rest, _ := strings.Cut(series, "{")
	want := map[string]string{}
	for _, pair := range strings.Split(strings.TrimSuffix(rest, "}"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			want[k] = strings.Trim(v, `"`)
		}
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			got := map[string]string{}
			for _, l := range m.Label {
				got[l.GetName()] = l.GetValue()
			}
			if !maps.Equal(got, want) {
				continue
			}
			switch {
			case m.Counter != nil:
				return m.Counter.GetValue()
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return 0
}

// readOver is a client of the reads with the given options.
func readOver(t testing.TB, addr string, opts ...connect.ClientOption) bigfleetv1alpha1connect.ShardReadClient {
	t.Helper()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return bigfleetv1alpha1connect.NewShardReadClient(&http.Client{Transport: tr}, "http://"+addr, opts...)
}

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// parts is a fleet of processes: a provider, three replicas of the coordinator, two shards and a console.
type parts struct {
	t        *testing.T
	binary   string
	replicas []string // addresses
	procs    map[string]*proc.Process
}

func newParts(t *testing.T) (p *parts, console, shard string) {
	t.Helper()
	p = &parts{t: t, binary: proc.BuildT(t, program), procs: map[string]*proc.Process{}}
	at, dir := addresses(t, 18), t.TempDir()
	p.replicas = at[:3]
	p.run("provider", at[9], "provider", "sim", "--addr", at[8], "--data-dir", dir+"/provider", "--sim-control-addr", "0")
	for i := range 3 {
		args := []string{"coordinator", "--id", node(i), "--data-dir", filepath.Join(dir, node(i)), "--listen", at[i], "--advertise-addr", at[i], "--raft-bind", at[3+i], "--raft-advertise", at[3+i], "--bootstrap", "--bootstrap-expect", "3"}
		for k := range 3 {
			args = append(args, "--peers", node(k)+"="+at[k])
		}
		p.start(node(i), at[10+i], "/healthz", args...)
	}
	for i, listen := range []string{at[6], at[7]} {
		id := fmt.Sprintf("shard-%d", i)
		p.run(id, at[13+i], "shard", "--id", id, "--listen", listen, "--advertise-addr", listen, "--provider-addr", at[8], "--coordinator-addr", strings.Join(p.replicas, ","), "--data-dir", filepath.Join(dir, id))
	}
	p.run("console", at[16], "console", "--listen", at[15], "--coordinator", strings.Join(p.replicas, ","))
	return p, at[15], at[6]
}

func node(i int) string { return fmt.Sprintf("node-%d", i) }

func (p *parts) run(name, ops string, args ...string) { p.start(name, ops, "/readyz", args...) }

func (p *parts) start(name, ops, ready string, args ...string) {
	p.t.Helper()
	p.procs[name] = proc.StartT(p.t, proc.Config{Name: name, Path: p.binary, Args: append(args, "--metrics-addr", ops, "--log-level", "warn"), Ready: proc.HTTP("http://"+ops+ready, nil)})
}

// leader waits for a replica that leads.
func (p *parts) leader(ctx context.Context) (string, error) {
	for {
		if name, err := p.leads(ctx); name != "" || err != nil {
			return name, err
		}
		select {
		case <-ctx.Done():
			return "", errors.New("no replica leads")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// leads is the replica that says so; "" if none does.
func (p *parts) leads(ctx context.Context) (string, error) {
	for i, addr := range p.replicas {
		if !p.procs[node(i)].Running() {
			continue
		}
		client, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits()})
		if err != nil {
			return "", err
		}
		got, err := rpc.Stub(client, api.NewCoordinatorAdminClient).GetCoordinatorStatus(ctx, connect.NewRequest(&v1.GetCoordinatorStatusRequest{}))
		client.CloseIdle()
		if err == nil && got.Msg.GetRole() == "leader" {
			return node(i), nil
		}
	}
	return "", nil
}

// demand opens a session as a cluster's operator does, and states one need, so that pages have rows.
func (p *parts) demand(cluster, shard string) {
	p.t.Helper()
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: shard, Limits: rpc.ReadClientLimits()})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream := rpc.Stub(client, api.NewShardClient).Session(ctx)
	ended := make(chan struct{})
	p.t.Cleanup(func() { cancel(); p.procs["shard-0"].Kill(); <-ended; client.CloseIdle() }) // a stream ends for certain when its server is gone
	for _, m := range []*v1.OperatorMessage{
		{Payload: &v1.OperatorMessage_Hello{Hello: &v1.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1"}}},
		{Payload: &v1.OperatorMessage_Rollup{Rollup: &v1.ClusterCapacityNeeds{ClusterId: cluster, TimestampUnixNanos: time.Now().UnixNano(), Needs: []*v1.CapacityNeed{
			{RowId: "huge", AggregateResources: map[string]string{"cpu": "9000"}, MinUnit: map[string]string{"cpu": "9000"}}}}}},
	} {
		if err := stream.Send(m); err != nil {
			p.t.Fatal(err)
		}
	}
	go func() { // until the test ends; what the shard says is not asked
		defer close(ended)
		for {
			if _, err := stream.Receive(); err != nil {
				return
			}
		}
	}()
}

// orders takes what the browser's side wants done to the fleet.
func (p *parts) orders() string {
	killed := ""
	do := map[string]func(context.Context) error{
		"kill-shard":    func(context.Context) error { p.procs["shard-1"].Kill(); return nil },
		"start-shard":   func(ctx context.Context) error { return p.procs["shard-1"].Start(ctx) },
		"kill-console":  func(context.Context) error { p.procs["console"].Kill(); return nil },
		"hang-console":  func(context.Context) error { return p.procs["console"].Pause() },
		"wake-console":  func(context.Context) error { return p.procs["console"].Resume() },
		"start-console": func(ctx context.Context) error { return p.procs["console"].Start(ctx) },
		"kill-leader": func(ctx context.Context) error {
			name, err := p.leader(ctx)
			if killed = name; err == nil {
				p.procs[name].Kill()
			}
			return err
		},
		"new-leader": func(ctx context.Context) error {
			name, err := p.leader(ctx)
			if err == nil && name == killed {
				return fmt.Errorf("%s leads and was killed", name)
			}
			return err
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if err := do[strings.Trim(r.URL.Path, "/")](ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	p.t.Cleanup(server.Close)
	return server.URL
}

// OPS-6.5: a shard is killed and starts again, the coordinator changes its leader, and the console itself dies or hangs, while pages are open: each
// page says so, keeps what it showed, and heals without a reload.
func TestHeals(t *testing.T) {
	web(t)
	p, addr, shard := newParts(t)
	p.demand("red", shard)
	browse(t, "heal.mjs", []string{"CONTROL=" + p.orders()}, "http://"+addr)
}

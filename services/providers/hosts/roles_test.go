package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/providers/hosts/agent"

	"connectrpc.com/connect"
)

// Environment of a test binary that is one of the programs of the kill matrix.
const (
	asRole      = "BIGFLEET_HOSTS_TEST_ROLE"
	atWarden    = "BIGFLEET_HOSTS_TEST_WARDEN"     // URL of the test, which hears of each point and may kill there
	atProvider  = "BIGFLEET_HOSTS_TEST_PROVIDER"   // URL of the RPC port
	atAgentPort = "BIGFLEET_HOSTS_TEST_AGENT_PORT" // host:port of the agents' port
	inDir       = "BIGFLEET_HOSTS_TEST_DIR"        // of agent and machine
)

var roles = map[string]func(){"provider": runProvider, "agent": runAgent, "shard": runShard}

// oneCall makes a connection for each call, so that nothing waits on one of a process that was killed.
var oneCall = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// passed tells the test that this process is at a point. It returns when the test lets it go on.
func passed(point string) {
	answer, err := oneCall.Post(os.Getenv(atWarden)+"/point?at="+url.QueryEscape(os.Getenv(asRole)+": "+point), "", nil)
	if err == nil {
		_ = answer.Body.Close()
	}
}

// pointed is the real backend with a point before and after each of its calls. No cluster is asked: a node is Ready when the agent says that
// kubelet and runtime run.
type pointed struct{ *backend }

func around(point string, do func() error) error {
	passed("before " + point)
	defer passed("after " + point)
	return do()
}

func (p pointed) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return around("configure", func() error { return p.backend.Configure(ctx, op) })
}

func (p pointed) Drain(ctx context.Context, op provider.DrainOp) error {
	return around("drain", func() error { return p.backend.Drain(ctx, op) })
}

func (p pointed) Reset(ctx context.Context, op provider.ResetOp) error {
	return around("reset", func() error { return p.backend.Reset(ctx, op) })
}

func (p pointed) Describe(ctx context.Context, found func(provider.Host) error) error {
	return around("health", func() error { return p.backend.Describe(ctx, found) })
}

func (p pointed) Ready(ctx context.Context, m provider.Machine) error {
	return around("ready", func() error {
		for {
			h, err := p.entry(m)
			if err != nil {
				return err
			}
			if r, _ := p.hostAgents.last(h.Name); r.GetKubeletRuns() && r.GetRuntimeRuns() && r.GetPhase() == pb.HostPhase_HOST_PHASE_CONFIGURED {
				return nil
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
}

func runProvider() {
	p := program()
	p.Build = func(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
		b, err := newBackend(Config{
			Name: s.Common.Provider, Inventory: s.Config.Inventory, AgentAddr: os.Getenv(atAgentPort), Silence: s.Config.Silence, Log: s.Log, wakeEvery: time.Nanosecond,
		})
		if err != nil {
			return nil, nil, err
		}
		return pointed{b}, []provider.Option{provider.WithReadiness(provider.SubstrateReadiness())}, nil
	}
	provider.Main(p)
}

func runAgent() {
	m := agent.NewPretended(os.Getenv(inDir))
	task := "configure"
	m.At = func(point string) {
		if point == "before stop kubelet" {
			task = "reset"
		}
		passed(task + ", " + point)
		if point == "after forget" {
			task = "configure"
		}
	}
	a, err := agent.New(agent.Config{
		Name: "one", URL: "http://" + os.Getenv(atAgentPort), StateDir: os.Getenv(inDir), Host: m, Client: oneCall, Wait: 100 * time.Millisecond, Tend: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err == nil {
		err = a.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runShard does for one machine what a shard does: it knows what is wanted, looks at what is, and asks for the next step. After a restart it has
// a higher epoch and begins by looking.
func runShard() {
	ctx := context.Background()
	client := bigfleetv1alpha1connect.NewCapacityProviderClient(oneCall, os.Getenv(atProvider))
	var epoch int64
	if err := ask("epoch", &epoch); err != nil {
		panic(err)
	}
	for sequence := int64(1); ; sequence++ {
		time.Sleep(5 * time.Millisecond)
		var want pb.MachineState
		if err := ask("want", &want); err != nil {
			return // the test ended
		}
		list, err := client.List(ctx, connect.NewRequest(&pb.ListFilter{}))
		if err != nil {
			continue
		}
		m := usable(list.Msg.GetMachines())
		switch now := m.GetState(); {
		case now == pb.MachineState_MACHINE_STATE_IDLE && want == pb.MachineState_MACHINE_STATE_CONFIGURED:
			_ = around("configure", func() error {
				_, err := client.Configure(ctx, connect.NewRequest(&pb.ConfigureRequest{
					MachineId: m.GetId(), ClusterId: "red", BootstrapBlob: fmt.Appendf(nil, fakeBootData, "dG9rZW4="), ShardId: "s", ShardEpoch: epoch, SequenceNumber: sequence,
				}))
				return err // it looks again
			})
		case now == pb.MachineState_MACHINE_STATE_CONFIGURED && want == pb.MachineState_MACHINE_STATE_IDLE:
			_ = around("drain", func() error {
				_, err := client.Drain(ctx, connect.NewRequest(&pb.DrainRequest{MachineId: m.GetId(), ShardId: "s", ShardEpoch: epoch, SequenceNumber: sequence}))
				return err
			})
		}
	}
}

// usable is the machine that did not fail. A host whose Configure was cut off by the end of its provider is reset and offered again.
func usable(all []*pb.Machine) *pb.Machine {
	for _, m := range all {
		if m.GetState() != pb.MachineState_MACHINE_STATE_FAILED {
			return m
		}
	}
	return nil
}

// ask reads a value from the test.
func ask(what string, into any) error {
	answer, err := oneCall.Get(os.Getenv(atWarden) + "/" + what)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

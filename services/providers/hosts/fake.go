package hosts

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/providers/hosts/agent"
)

// pretendedHosts is how many hosts --use-fake-backend has without an inventory.
const pretendedHosts = 60

// pretendedWait is how long a report of a pretended host waits for a task. Thousands of agents share one process with the
// provider, so they report seldom.
const pretendedWait = 50 * time.Second

// fake is the real backend with pretended hosts: its agent server, its inventory and real agents, each on a machine whose facts are a file. In
// front of it stands the simulated cloud of the SDK, so that every fault can be injected. No cluster is asked.
type fake struct {
	substrate.Undeletable
	served *substrate.Served
	b      *backend
	stop   context.CancelFunc
	agents *sync.WaitGroup
}

func buildFake(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	dir := filepath.Join(s.Common.DataDir, "pretended")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	inventory := s.Config.Inventory
	if inventory == "" {
		inventory = filepath.Join(dir, "inventory.yaml")
		if err := os.WriteFile(inventory, pretendedInventory(), 0o600); err != nil {
			return nil, nil, err
		}
	}
	b, err := newBackend(Config{
		Name: s.Common.Provider, Inventory: inventory, AgentAddr: "127.0.0.1:0", Silence: s.Config.Silence, Log: s.Log, Registerer: s.Registerer,
	})
	if err != nil {
		return nil, nil, err
	}
	f := &fake{b: b, agents: &sync.WaitGroup{}, stop: func() {}}
	if err := f.start(s, dir); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, []provider.Option{provider.WithReadiness(provider.SubstrateReadiness())}, nil
}

func pretendedInventory() []byte {
	var list strings.Builder
	list.WriteString("defaults: {type: rack.64x, zone: pretended-1a, price_per_hour: 1, resources: {cpu: \"64\", memory: 256Gi, pods: \"110\"}}\nhosts:\n")
	for i := range pretendedHosts {
		fmt.Fprintf(&list, "- {name: pretended-%d, rack: r%d}\n", i, i/10)
	}
	return []byte(list.String())
}

func (f *fake) start(s provider.Setup[settings], dir string) error {
	cloud, err := substrate.New(substrate.Config{Name: s.Common.Provider})
	if err != nil {
		return err
	}
	for _, h := range f.b.inventory.all() {
		cloud.Owned(h.attributes(), h.ProviderID)
	}
	if f.served, err = cloud.Serve(s.Common.ControlAddr, s.Common.Files()); err != nil {
		return err
	}
	f.Undeletable = f.served.WithoutDelete()
	ctx, stop := context.WithCancel(context.Background())
	// All agents share connections, so that thousands of them need few files.
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	f.stop = func() { stop(); transport.CloseIdleConnections() }
	for _, h := range f.b.inventory.all() {
		home := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(home, 0o700); err != nil {
			return err
		}
		a, err := agent.New(agent.Config{
			Name: h.Name, URL: "http://" + f.b.agents.String(), StateDir: home, Host: agent.NewPretended(home), Log: slog.New(slog.DiscardHandler),
			Client: &http.Client{Transport: transport}, Wait: pretendedWait,
		})
		if err != nil {
			return err
		}
		f.agents.Go(func() {
			if err := a.Run(ctx); err != nil {
				s.Log.Error("the agent of a simulated host ended", "host", h.Name, "err", err)
			}
		})
	}
	return f.awaitAgents(ctx)
}

// How long pretended hosts may take to call; the inventory is whole then from the first look.
const (
	agentsTime = 30 * time.Second
	agentTime  = 20 * time.Millisecond // more for each of them
)

func (f *fake) awaitAgents(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentsTime+agentTime*time.Duration(len(f.b.inventory.all())))
	defer cancel()
	for _, h := range f.b.inventory.all() {
		for r, _ := f.b.hostAgents.last(h.Name); r == nil; r, _ = f.b.hostAgents.last(h.Name) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("the agent of simulated host %s does not report", h.Name)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

// Close ends agents, ports and the simulated cloud.
func (f *fake) Close() error {
	f.stop()
	f.agents.Wait()
	err := f.b.Close()
	if f.served != nil {
		err = errors.Join(err, f.served.Close())
	}
	return err
}

// Attach gives both the books.
func (f *fake) Attach(fleet provider.Fleet) {
	f.Undeletable.Attach(fleet)
	f.b.Attach(fleet)
}

// Describe shows the hosts that the simulated cloud has and the real backend would show.
func (f *fake) Describe(ctx context.Context, found func(provider.Host) error) error {
	usable := map[string]bool{}
	if err := f.b.Describe(ctx, func(h provider.Host) error { usable[h.Ref] = true; return nil }); err != nil {
		return err
	}
	return f.Undeletable.Describe(ctx, func(h provider.Host) error {
		if !usable[h.Ref] {
			return nil
		}
		return found(h)
	})
}

// Notify passes on the news of both.
func (f *fake) Notify(ctx context.Context, send func(provider.Notice)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- f.b.Notify(ctx, send) }()
	go func() { ended <- f.Undeletable.Notify(ctx, send) }()
	err := <-ended
	stop()
	return errors.Join(err, <-ended)
}

// Configure lets the simulated cloud fail first. What it is given as boot data becomes a file of real boot data.
func (f *fake) Configure(ctx context.Context, op provider.ConfigureOp) error {
	if err := f.Undeletable.Configure(ctx, op); err != nil {
		return err
	}
	op.Blob = fmt.Appendf(nil, fakeBootData, base64.StdEncoding.EncodeToString(op.Blob))
	return f.b.Configure(ctx, op)
}

const fakeBootData = `#cloud-config
write_files:
- {path: /etc/kubernetes/given, encoding: b64, content: "%s"}
- path: /etc/systemd/system/kubelet.service.d/90-bigfleet.conf
  content: |
    [Service]
    ExecStart=
    ExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf
`

// Drain lets the simulated cloud fail first.
func (f *fake) Drain(ctx context.Context, op provider.DrainOp) error {
	if err := f.Undeletable.Drain(ctx, op); err != nil {
		return err
	}
	return f.b.Drain(ctx, op)
}

// Reset implements provider.Resetter.
func (f *fake) Reset(ctx context.Context, op provider.ResetOp) error { return f.b.Reset(ctx, op) }

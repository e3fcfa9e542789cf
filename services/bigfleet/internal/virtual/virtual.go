// Package virtual is a shard and a simulated cloud in the virtual time of a synctest bubble, for tests of verbs: real RPC over
// connections in memory, so that the quarter of an hour after which a Node counts as lost takes no time. The command asks it as it
// asks any other shard; a scripted operator plays each cluster's end of a session. No product code imports it.
//
// Start at Run, then operator.go.
package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// Fleet is a shard, its cloud, and what a test does to them.
type Fleet struct {
	T       *testing.T
	Cloud   *substrate.Cloud
	shard   *rpc.MemListener
	Control bigfleetv1alpha1connect.SubstrateControlClient
	ends    []func()

	Machines     bigfleetv1alpha1connect.CapacityProviderClient // the provider, asked past the shard
	Coordinator  *Coordinator                                   // nil unless Run's edit says Coordinated
	Stdin        string                                         // of every command line
	StopProvider func()                                         // ends the provider; the shard meets closed connections
	Restart      func()                                         // ends the shard's process and starts another one on its data
}

// Coordinated is the address of a coordinator that says what a test makes it say, for shard.Config.CoordinatorAddr.
const Coordinated = "127.0.0.1:1" // no name: nothing is looked up

// Run runs f in a bubble.
func Run(t *testing.T, offerings []provider.Offering, edit func(*shard.Config), f func(*Fleet)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := &Fleet{T: t, shard: rpc.NewMemListener("shard")}
		quiet := slog.New(slog.DiscardHandler)
		machines := rpc.NewMemListener("provider")
		p, cloud, err := sim.New(sim.Config{Name: "cloud", Offerings: offerings, Log: quiet, World: sim.World{Preset: "calm", Seed: 1, TimeScale: 1,
			Latency: map[string]substrate.Latency{substrate.CallCreate: {Min: time.Second, Max: time.Second}, substrate.CallConfigure: {Min: time.Second, Max: time.Second}}},
			Options: []provider.Option{provider.WithListener(machines), provider.WithStateFile(filepath.Join(dir, "provider.db"))}})
		if err != nil {
			t.Fatal(err)
		}
		v.Cloud = cloud
		ctx, cancel := context.WithCancel(context.Background())
		parts, ended := 2, make(chan error, 3)
		providing, stop := context.WithCancel(ctx)
		v.StopProvider = stop
		go func() { ended <- p.Run(providing) }()
		controls := rpc.NewMemListener("control")
		go func() { ended <- cloud.Control(ctx, here{controls}, nil) }()
		controlClient := v.client(controls)
		v.Control = rpc.Stub(controlClient, bigfleetv1alpha1connect.NewSubstrateControlClient)
		providerClient := v.client(machines)
		v.Machines = rpc.Stub(providerClient, bigfleetv1alpha1connect.NewCapacityProviderClient)

		c := shard.Config{ID: "shard-0", DataDir: filepath.Join(dir, "shard"),
			ReleaseDelay: -1, ReleaseDelayEmpty: -1, SessionHandoverWait: -1,
			Providers: []shard.Provider{{Name: "cloud", Addr: "provider:1", Dial: machines.DialContext}}}
		if edit != nil {
			edit(&c)
		}
		if c.CoordinatorAddr == Coordinated {
			ln := rpc.NewMemListener("coordinator")
			v.Coordinator = newCoordinator()
			server, err := v.Coordinator.server(quiet)
			if err != nil {
				t.Fatal(err)
			}
			c.DialCoordinator = ln.DialContext
			parts++
			go func() { ended <- server.Run(ctx, ln) }()
		}
		stopShard := v.run(c)
		v.Restart = func() {
			t.Helper()
			stopShard()
			v.shard = rpc.NewMemListener("shard")
			stopShard = v.run(c)
			v.knowsMachines()
		}
		defer func() {
			slices.Reverse(v.ends)
			for _, end := range v.ends {
				end()
			}
			stopShard()
			controlClient.CloseIdle()
			providerClient.CloseIdle()
			cancel()
			for range parts {
				if err := <-ended; err != nil {
					t.Errorf("a part ended with %v", err)
				}
			}
		}()
		v.knowsMachines()
		f(v)
	})
}

// run starts a process of the shard, and returns how it is ended.
func (v *Fleet) run(c shard.Config) (stop func()) {
	v.T.Helper()
	tel, err := telemetry.New(context.Background(), telemetry.Config{Component: "shard", LogWriter: io.Discard})
	if err != nil {
		v.T.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	c.Listener, c.Telemetry, c.Ready = v.shard, tel, ready
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- shard.Run(ctx, c) }()
	<-ready
	return func() {
		cancel()
		if err := <-ended; err != nil {
			v.T.Errorf("the shard ended with %v", err)
		}
		_ = tel.Close(context.Background())
	}
}

func (v *Fleet) knowsMachines() {
	v.T.Helper()
	v.Until("the machines are known", func() bool {
		_, out := v.Bigfleet("status")
		return strings.Contains(out, "speculative") || strings.Contains(out, "configured") || strings.Contains(out, "more belong to other shards")
	})
}

// here makes connections in memory look like those of this machine, to which alone SubstrateControl listens.
type here struct{ *rpc.MemListener }

type hereConn struct{ net.Conn }

func (l here) Accept() (net.Conn, error) {
	c, err := l.MemListener.Accept()
	return hereConn{c}, err
}

func (hereConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (v *Fleet) client(l *rpc.MemListener) *rpc.Client {
	v.T.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: "peer:1", Dial: l.DialContext, Limits: rpc.Limits{ReadMaxBytes: 16 << 20, SendMaxBytes: 16 << 20}})
	if err != nil {
		v.T.Fatal(err)
	}
	return c
}

// Bigfleet runs one command line in this process.
func (v *Fleet) Bigfleet(args ...string) (exit.Code, string) {
	var out bytes.Buffer
	code := cli.Main(context.Background(), env.Env{
		In: strings.NewReader(v.Stdin), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: time.Now, Dial: v.shard.DialContext,
	}, append(args, "--shard", "shard:1"))
	return code, out.String()
}

// Does runs a command line that must end well.
func (v *Fleet) Does(args ...string) string {
	v.T.Helper()
	code, out := v.Bigfleet(args...)
	if code != exit.OK {
		v.T.Fatalf("bigfleet %v ends with %d:\n%s", args, code, out)
	}
	return out
}

// Patience is virtual.
const Patience = 2 * time.Hour

// Explains waits until the need of a cluster's row has the detail, and returns what the command says about it.
func (v *Fleet) Explains(cluster, row string, detail pb.NeedDetail) string {
	v.T.Helper()
	subject, out := "need/"+cluster+"/"+row, ""
	pause := 250 * time.Millisecond
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(pause) {
		var seen struct {
			Need struct{ Detail, DetailText string }
		}
		var code exit.Code
		if code, out = v.Bigfleet("explain", subject, "-o", "jsonl"); code == exit.OK && json.Unmarshal([]byte(out), &seen) == nil && seen.Need.Detail == detail.String() {
			if out = v.Does("explain", subject); strings.Contains(out, seen.Need.DetailText) { // else a cycle came between the two
				return out
			}
		}
		pause = min(pause+pause/8, 10*time.Second)
	}
	_, out = v.Bigfleet("explain", subject)
	v.T.Fatalf("%s is never %s; last:\n%s", subject, detail, out)
	return ""
}

// Kept waits until a machine is kept for the reason and the command's answer holds a text, and returns that answer.
func (v *Fleet) Kept(reason pb.KeepReason, says string) string {
	v.T.Helper()
	last := ""
	pause := 250 * time.Millisecond
	for deadline := time.Now().Add(Patience / 4); time.Now().Before(deadline); time.Sleep(pause) {
		last = ""
		_, names := v.Bigfleet("get", "machines", "--all", "-o", "name")
		for _, name := range strings.Fields(names) {
			var seen struct{ Machine struct{ KeepReason string } }
			code, out := v.Bigfleet("explain", name, "-o", "jsonl")
			if code != exit.OK || json.Unmarshal([]byte(out), &seen) != nil || seen.Machine.KeepReason != reason.String() {
				last += out
				continue
			}
			if code, out = v.Bigfleet("explain", name); code == exit.OK && strings.Contains(out, says) {
				return out
			}
			last += out
		}
		pause = min(pause+pause/4, 15*time.Second)
	}
	v.T.Fatalf("no machine is ever kept for %s with %q; last:\n%s", reason, says, last)
	return ""
}

// Until waits in virtual time.
func (v *Fleet) Until(what string, seen func() bool) {
	v.T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if seen() {
			return
		}
	}
	v.T.Fatalf("never: %s", what)
}

// Configured waits until the cluster has this many machines in use, and returns their names.
func (v *Fleet) Configured(cluster string, n int) (names []string) {
	v.T.Helper()
	v.Until(fmt.Sprintf("%d machines serve %s", n, cluster), func() bool {
		_, out := v.Bigfleet("get", "machines", "--state", "configured", "--cluster", cluster, "-o", "name")
		names = names[:0]
		for _, word := range strings.Fields(out) {
			if name, is := strings.CutPrefix(word, "machine/"); is { // and no word of a sentence that says that there is none
				names = append(names, name)
			}
		}
		return len(names) == n
	})
	return names
}

// Behaves sets how calls of the cloud behave.
func (v *Fleet) Behaves(b *pb.Behaviour) {
	v.T.Helper()
	if _, err := v.Control.SetBehaviour(context.Background(), connect.NewRequest(&pb.SetBehaviourRequest{Behaviour: b})); err != nil {
		v.T.Fatal(err)
	}
}

// Stock sets how many hosts of a pool can still be had.
func (v *Fleet) Stock(s *pb.MachineSelector, n int32) {
	v.T.Helper()
	if _, err := v.Control.SetStock(context.Background(), connect.NewRequest(&pb.SetStockRequest{Selector: s, Stock: n})); err != nil {
		v.T.Fatal(err)
	}
}

// Screen runs one command line on a terminal of this size and returns what is sent to it. Each of the keys is pressed a while after
// the one before.
func (v *Fleet) Screen(columns, lines int, environment map[string]string, keys []string, args ...string) string {
	v.T.Helper()
	var out bytes.Buffer
	code := cli.Main(context.Background(), env.Env{
		In: &typist{keys}, Out: &out, Err: &out, Getenv: func(key string) string { return environment[key] }, Now: time.Now, Dial: v.shard.DialContext,
		Terminal: true, Asks: len(keys) > 0, Screen: func() (int, int) { return columns, lines }, Typing: func() (func(), error) { return func() {}, nil },
	}, append(args, "--shard", "shard:1"))
	if code != exit.OK {
		v.T.Fatalf("bigfleet %v ends with %d:\n%s", args, code, &out)
	}
	return out.String()
}

// typist presses keys slowly enough that each one meets a picture.
type typist struct{ keys []string }

func (t *typist) Read(p []byte) (int, error) {
	if len(t.keys) == 0 {
		return 0, io.EOF
	}
	time.Sleep(3 * time.Second)
	n := copy(p, t.keys[0])
	t.keys = t.keys[1:]
	return n, nil
}

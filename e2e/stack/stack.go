// Package stack runs BigFleet's own programs against real control planes: one shard, one kwok provider, and an operator and a
// pod controller for each cluster, each a process of its own as in production.
//
// Start gives a whole one, StartT one that ends with a test. Its processes may be stopped, killed and started again; they keep
// their ports and their data directories. Nothing here knows what a test wants to see: scenario packages and the demo do.
// Start at Start, then programs.go for the exact command lines.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/loopback"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// Config describes a stack.
type Config struct {
	// Clusters are the cluster ids, which are DNS labels here; one control plane each. Empty means one, "red".
	Clusters []string
	// Offerings is the catalogue of the kwok provider, in the YAML of its --offerings file. Required.
	Offerings string
	// Dir receives data, configuration and logs and is kept. "" means a temporary directory that Stop removes.
	Dir string
	// ShardArgs, OperatorArgs, PodControllerArgs and ProviderArgs are appended to the command lines.
	ShardArgs, OperatorArgs, PodControllerArgs, ProviderArgs []string
	// Progress receives one line for each thing that takes time. nil means none.
	Progress io.Writer
}

// Cluster is one managed cluster and what BigFleet runs in it.
type Cluster struct {
	*controlplane.ControlPlane
	ID            string
	Operator      *proc.Process
	PodController *proc.Process
	Dynamic       dynamic.Interface // the administrator's
}

// Stack is a running BigFleet. Start makes one.
type Stack struct {
	Clusters []*Cluster
	Shard    *proc.Process
	Provider *proc.Process

	// Addresses, host:port. The metrics ones serve /metrics, /healthz and /readyz.
	ShardAddr, ShardMetrics       string
	ProviderAddr, ProviderMetrics string

	dir    string
	remove bool // dir goes with Stop
	ports  []*loopback.Port
	cfg    Config
}

// Start builds what is missing, starts the control planes and then BigFleet, and returns when every part says it is ready.
// On failure nothing is left behind.
func Start(ctx context.Context, c Config) (_ *Stack, err error) {
	if c.Offerings == "" {
		return nil, errors.New("stack.Config.Offerings is required")
	}
	if len(c.Clusters) == 0 {
		c.Clusters = []string{"red"}
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	s := &Stack{cfg: c, dir: c.Dir}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "bigfleet-stack-"); err != nil {
			return nil, err
		}
		s.remove = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	binaries, err := buildPrograms(ctx, c.Progress)
	if err != nil {
		return nil, err
	}
	if err := s.startClusters(ctx); err != nil {
		return nil, err
	}
	if err := s.startPrograms(ctx, binaries); err != nil {
		return nil, err
	}
	return s, nil
}

// rollupSpacing is the least time between two roll-ups of an operator (OP-5.1).
const rollupSpacing = time.Second

// Settled waits until the shard has heard every cluster, and until the operators may send again at once: what is measured from
// then on is what a cluster that has been there for a while sees.
func (s *Stack) Settled(ctx context.Context) error {
	for {
		got, err := s.ShardRead().ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{}))
		if err != nil {
			return err
		}
		heard := 0
		for _, c := range got.Msg.GetClusters() {
			if c.GetGateOpen() {
				heard++
			}
		}
		pause := 50 * time.Millisecond
		if heard == len(s.Clusters) {
			pause = rollupSpacing
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		if heard == len(s.Clusters) {
			return nil
		}
	}
}

// StartT is Start for tests: it fails t when something does not start, stops all when t ends, and shows the logs if t failed.
func StartT(t testing.TB, c Config) *Stack {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(60))
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

func (s *Stack) startClusters(ctx context.Context) error {
	_, _ = fmt.Fprintf(s.cfg.Progress, "starting %d control plane(s): etcd, kube-apiserver, scheduler, controller manager, kwok\n", len(s.cfg.Clusters))
	var configs []controlplane.Config
	for _, id := range s.cfg.Clusters {
		configs = append(configs, controlplane.Config{Name: id, Dir: filepath.Join(s.dir, "clusters", id), Progress: s.cfg.Progress})
	}
	planes, err := controlplane.StartAll(ctx, configs...)
	if err != nil {
		return err
	}
	for i, cp := range planes {
		d, err := dynamic.NewForConfig(cp.RESTConfig())
		if err != nil {
			return err
		}
		s.Clusters = append(s.Clusters, &Cluster{ControlPlane: cp, ID: s.cfg.Clusters[i], Dynamic: d})
	}
	root, err := proc.Root()
	if err != nil {
		return err
	}
	for _, c := range s.Clusters {
		if err := c.ApplyDir(ctx, filepath.Join(root, "deploy", "crds")); err != nil {
			return fmt.Errorf("cluster %s: %w", c.ID, err)
		}
	}
	return nil
}

// Cluster returns the cluster with this id, which must exist.
func (s *Stack) Cluster(id string) *Cluster {
	for _, c := range s.Clusters {
		if c.ID == id {
			return c
		}
	}
	panic("stack: no cluster " + id)
}

// Dir is where data, configuration and logs are.
func (s *Stack) Dir() string { return s.dir }

// Processes are BigFleet's own, in the order in which they start.
func (s *Stack) Processes() []*proc.Process {
	all := []*proc.Process{s.Provider, s.Shard}
	for _, c := range s.Clusters {
		all = append(all, c.Operator, c.PodController)
	}
	var started []*proc.Process
	for _, p := range all {
		if p != nil {
			started = append(started, p)
		}
	}
	return started
}

// Logs returns the last lines of each process.
func (s *Stack) Logs(lines int) string {
	out := ""
	for _, p := range s.Processes() {
		state := "running"
		if !p.Running() {
			state = fmt.Sprintf("exited with %d", p.ExitCode())
		}
		out += fmt.Sprintf("=== %s (%s)\n%s\n", p.Name(), state, p.Tail(lines))
	}
	return out
}

// Stop ends BigFleet, then the control planes, and leaves no process, port or temporary file.
func (s *Stack) Stop() error {
	var errs []error
	processes := s.Processes()
	for i := len(processes) - 1; i >= 0; i-- {
		if processes[i].Running() {
			errs = append(errs, processes[i].Stop())
		}
	}
	for _, c := range s.Clusters {
		errs = append(errs, c.Stop())
	}
	for _, p := range s.ports {
		p.Release()
	}
	if s.remove {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// client speaks Connect over HTTP/2 cleartext, as any user of the ports may.
func client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: 30 * time.Second}
}

// ProviderClient calls the provider over gRPC.
func (s *Stack) ProviderClient() bigfleetv1alpha1connect.CapacityProviderClient {
	return bigfleetv1alpha1connect.NewCapacityProviderClient(client(), "http://"+s.ProviderAddr, connect.WithGRPC())
}

// ShardRead reads the shard over gRPC.
func (s *Stack) ShardRead() bigfleetv1alpha1connect.ShardReadClient {
	return bigfleetv1alpha1connect.NewShardReadClient(client(), "http://"+s.ShardAddr, connect.WithGRPC())
}

// Session opens a session as an operator does. The first frame is the caller's to send.
func (s *Stack) Session(ctx context.Context) *connect.BidiStreamForClient[bigfleetv1alpha1.OperatorMessage, bigfleetv1alpha1.ShardMessage] {
	c := client()
	c.Timeout = 0 // a session has no end of its own
	return bigfleetv1alpha1connect.NewShardClient(c, "http://"+s.ShardAddr, connect.WithGRPC()).Session(ctx)
}

// Needs reads the rows of one cluster from the shard.
func (s *Stack) Needs(ctx context.Context, cluster string) ([]*bigfleetv1alpha1.NeedView, error) {
	stream, err := s.ShardRead().InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{ClusterId: cluster}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var out []*bigfleetv1alpha1.NeedView
	for stream.Receive() {
		if n := stream.Msg().GetNeed(); n != nil {
			out = append(out, n)
		}
	}
	return out, stream.Err()
}

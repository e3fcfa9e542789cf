package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bigfleet-dev/bigfleet/e2e/loopback"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// The main packages of the programs.
const (
	shardMain         = "services/shard/cmd/bigfleet-shard"
	providerMain      = "services/providers/kwok/cmd/bigfleet-provider-kwok"
	operatorMain      = "services/operator/cmd/bigfleet-operator"
	podControllerMain = "services/podcontroller/cmd/bigfleet-podcontroller"
)

func buildPrograms(ctx context.Context, progress io.Writer) (map[string]string, error) {
	_, _ = fmt.Fprintln(progress, "building the shard, the provider, the operator and the pod controller")
	out := map[string]string{}
	for _, dir := range []string{shardMain, providerMain, operatorMain, podControllerMain} {
		binary, err := proc.Build(ctx, dir)
		if err != nil {
			return nil, err
		}
		out[dir] = binary
	}
	return out, nil
}

// address reserves a port for the life of the stack.
func (s *Stack) address() (string, error) {
	p, err := loopback.Reserve()
	if err != nil {
		return "", err
	}
	s.ports = append(s.ports, p)
	return p.Addr(), nil
}

// start runs one program and waits until its ops port says ready.
func (s *Stack) start(ctx context.Context, name, binary, metrics string, args []string) (*proc.Process, error) {
	return proc.Start(ctx, proc.Config{
		Name: name, Path: binary, Args: append(args, "--metrics-addr", metrics),
		LogFile: filepath.Join(s.dir, "logs", name+".log"),
		Ready:   proc.HTTP("http://"+metrics+"/readyz", nil),
	})
}

func (s *Stack) startPrograms(ctx context.Context, binaries map[string]string) error {
	addresses := make([]string, 4+2*len(s.Clusters))
	for i := range addresses {
		a, err := s.address()
		if err != nil {
			return err
		}
		addresses[i] = a
	}
	s.ProviderAddr, s.ProviderMetrics, s.ShardAddr, s.ShardMetrics = addresses[0], addresses[1], addresses[2], addresses[3]
	_, _ = fmt.Fprintln(s.cfg.Progress, "starting the provider, the shard, and an operator and a pod controller in each cluster")

	var err error
	providerArgs, err := s.providerArgs()
	if err != nil {
		return err
	}
	if s.Provider, err = s.start(ctx, "provider", binaries[providerMain], s.ProviderMetrics, providerArgs); err != nil {
		return err
	}
	shardArgs := append([]string{
		"--listen", s.ShardAddr, "--provider-addr", s.ProviderAddr, "--data-dir", filepath.Join(s.dir, "shard"),
	}, s.cfg.ShardArgs...)
	if s.Shard, err = s.start(ctx, "shard", binaries[shardMain], s.ShardMetrics, shardArgs); err != nil {
		return err
	}
	for i, c := range s.Clusters {
		args := append([]string{
			"--cluster-id", c.ID, "--shard-addr", s.ShardAddr, "--kubeconfig", c.Kubeconfig(), "--bootstrap-renderer", "stub",
		}, s.cfg.OperatorArgs...)
		if c.Operator, err = s.start(ctx, "operator-"+c.ID, binaries[operatorMain], addresses[4+2*i], args); err != nil {
			return err
		}
		args = append([]string{"--kubeconfig", c.Kubeconfig()}, s.cfg.PodControllerArgs...)
		if c.PodController, err = s.start(ctx, "podcontroller-"+c.ID, binaries[podControllerMain], addresses[5+2*i], args); err != nil {
			return err
		}
	}
	return nil
}

// providerArgs writes the provider's configuration: its catalogue and the kubeconfig of each cluster.
func (s *Stack) providerArgs() ([]string, error) {
	var clusters strings.Builder
	for _, c := range s.Clusters {
		fmt.Fprintf(&clusters, "  %s: {kubeconfig: %q}\n", c.ID, c.Kubeconfig())
	}
	config := filepath.Join(s.dir, "provider.yaml")
	offerings := filepath.Join(s.dir, "offerings.yaml")
	files := map[string]string{config: "clusters:\n" + clusters.String(), offerings: s.cfg.Offerings}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return append([]string{
		"--config", config, "--offerings", offerings, "--addr", s.ProviderAddr, "--data-dir", filepath.Join(s.dir, "provider"),
	}, s.cfg.ProviderArgs...), nil
}

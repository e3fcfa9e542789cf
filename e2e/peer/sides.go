package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// side is one of the two that buy.
type side interface {
	name() string
	start(ctx context.Context) error
	stop() error
	processes() []*proc.Process
	clear(ctx context.Context) error // what it leaves in the cluster beside Nodes
}

// giveBackAfter is how long a machine may be unneeded before it is returned, on both sides. BigFleet counts it in two halves: for how long the
// demand of a Pod that ended is held for its replacement, and for how long a machine has to be in excess.
const giveBackAfter = 20 * time.Second

type bigfleet struct{ *fixture.Fixture }

func (b *bigfleet) name() string               { return "BigFleet" }
func (b *bigfleet) processes() []*proc.Process { return b.Processes() }

func (b *bigfleet) start(ctx context.Context) error {
	for _, data := range []string{"shard", "provider"} { // no machine is left idle from the turn before
		if err := os.RemoveAll(filepath.Join(b.Dir(), data)); err != nil {
			return err
		}
	}
	for _, p := range b.Processes() {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return b.Settled(ctx)
}

func (b *bigfleet) stop() error {
	var errs []error
	for _, p := range slices.Backward(b.Processes()) {
		if p.Running() {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}

// clear deletes the requests as well: those of Pods that are gone would be demand until the garbage collector has seen them.
func (b *bigfleet) clear(ctx context.Context) error {
	d := b.Clusters[0].Dynamic
	return errors.Join(d.Resource(fixture.UpcomingNodes).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		d.Resource(fixture.CapacityRequests).Namespace("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

const module = "sigs.k8s.io/karpenter"

// inModule runs the go command where Karpenter's version is pinned.
func inModule(ctx context.Context, args ...string) (string, error) {
	root, err := proc.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(root, "e2e", "peer", "karpenter"), append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if bad := (*exec.ExitError)(nil); errors.As(err, &bad) {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bad.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

func buildKarpenter(ctx context.Context) (string, error) {
	fmt.Fprintln(os.Stderr, "building Karpenter's main for kwok")
	cacheDir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cacheDir, "bigfleet", "bin", "peer", "karpenter")
	_, err = inModule(ctx, "build", "-o", binary, module+"/kwok")
	return binary, err
}

// peer is Karpenter.
type peer struct {
	c *fixture.Cluster
	p *proc.Process
}

var (
	nodeClaims  = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	nodePools   = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	nodeClasses = schema.GroupVersionResource{Group: "karpenter.kwok.sh", Version: "v1alpha1", Resource: "kwoknodeclasses"}
)

// newPeer installs Karpenter's definitions and a pool with its defaults, but for the delay before machines are given back.
func newPeer(ctx context.Context, f *fixture.Fixture, binary string, types []machineType) (*peer, error) {
	c := f.Clusters[0]
	dir, err := inModule(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, err
	}
	for _, crds := range []string{"kwok/apis/crds", "kwok/charts/crds"} {
		if err := c.ApplyDir(ctx, filepath.Join(dir, crds)); err != nil {
			return nil, err
		}
	}
	class := object("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", nil)
	if _, err := c.Dynamic.Resource(nodeClasses).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	pool := object("karpenter.sh/v1", "NodePool", map[string]any{
		"template": map[string]any{"spec": map[string]any{
			"requirements": []any{map[string]any{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []any{"on-demand"}}},
			"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
		}},
		"disruption": map[string]any{"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": giveBackAfter.String()},
	})
	if _, err := c.Dynamic.Resource(nodePools).Create(ctx, pool, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	text, err := json.Marshal(karpenterTypes(types))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(f.Dir(), "karpenter-types.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	ports, err := loopback.ReserveN(2)
	if err != nil {
		return nil, err
	}
	p, err := proc.New(proc.Config{
		Name: "karpenter", Path: binary, LogFile: filepath.Join(f.Dir(), "logs", "karpenter.log"),
		Env: []string{"KUBECONFIG=" + c.Kubeconfig(), "SYSTEM_NAMESPACE=kube-system", "DISABLE_LEADER_ELECTION=true",
			"INSTANCE_TYPES_FILE_PATH=" + file, "METRICS_PORT=" + ports[0].String(), "HEALTH_PROBE_PORT=" + ports[1].String()},
		Ready: proc.HTTP("http://"+ports[1].Addr()+"/readyz", nil),
	})
	return &peer{c, p}, err
}

func object(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "default"}}
	if spec != nil {
		o["spec"] = spec
	}
	return &unstructured.Unstructured{Object: o}
}

func (k *peer) name() string                    { return "Karpenter" }
func (k *peer) processes() []*proc.Process      { return []*proc.Process{k.p} }
func (k *peer) start(ctx context.Context) error { return k.p.Start(ctx) }

func (k *peer) stop() error {
	if !k.p.Running() {
		return nil
	}
	return k.p.Stop()
}

// clear takes the finalizers off what Karpenter would end itself, and deletes it.
func (k *peer) clear(ctx context.Context) error {
	claims, err := k.c.Dynamic.Resource(nodeClaims).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range claims.Items {
		_, err := k.c.Dynamic.Resource(nodeClaims).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return k.c.Dynamic.Resource(nodeClaims).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

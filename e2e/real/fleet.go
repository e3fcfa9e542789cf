package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/controlplane/build"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// Config describes a fleet.
type Config struct {
	Clusters []string // ids; one control plane each
	Hosts    int
	Dir      string // receives everything and is kept; it must not lie on an overlay
	Progress io.Writer
	// ShardArgs are appended to the shard's command line.
	ShardArgs []string
}

// Cluster is one cluster and what BigFleet runs in it.
type Cluster struct {
	*controlplane.ControlPlane
	ID                      string
	Operator, PodController *proc.Process
}

// Fleet is a running BigFleet whose machines run containers. Start makes one.
type Fleet struct {
	Clusters        []*Cluster
	Hosts           []*Host
	Shard, Provider *proc.Process
	ProviderAddr    string

	config  Config
	ports   []*loopback.Port
	kernel  map[string]string // settings that kubelets change for the whole machine
	started []*proc.Process
}

// Start starts everything and waits until it is ready. The hosts are idle then, or soon after.
func Start(ctx context.Context, c Config) (f *Fleet, err error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	f = &Fleet{config: c, kernel: kernelSettings()}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
			f = nil
		}
	}()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(c.Progress, format+"\n", args...) }
	say("building the programs and a kubelet")
	kubelet, err := build.EnsureKubelet(ctx, build.Config{Progress: c.Progress})
	if err != nil {
		return f, err
	}
	programs, err := buildAll(ctx)
	if err != nil {
		return f, err
	}
	images := filepath.Join(c.Dir, "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return f, err
	}
	if err := writeImages(ctx, images); err != nil {
		return f, err
	}
	if err := makeBridge(ctx); err != nil {
		return f, err
	}
	say("starting %d control planes", len(c.Clusters))
	if err := f.startClusters(ctx); err != nil {
		return f, err
	}
	say("starting %d hosts, each in namespaces of its own", c.Hosts)
	for n := range c.Hosts {
		h, err := startHost(ctx, programs["nodehost"], filepath.Join(c.Dir, "hosts"), n+1)
		if h != nil {
			f.Hosts = append(f.Hosts, h)
		}
		if err != nil {
			return f, err
		}
	}
	say("starting the provider, an agent on each host, the shard, and an operator and a pod controller in each cluster")
	if err := f.startProvider(ctx, programs, kubelet, images); err != nil {
		return f, err
	}
	return f, f.startBigFleet(ctx, programs)
}

func buildAll(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for name, dir := range map[string]string{
		"nodehost": "e2e/cmd/nodehost", "agent": "services/providers/hosts/cmd/bigfleet-hostagent",
		"provider": "services/providers/hosts/cmd/bigfleet-provider-hosts", "shard": "services/shard/cmd/bigfleet-shard",
		"operator": "services/operator/cmd/bigfleet-operator", "podcontroller": "services/podcontroller/cmd/bigfleet-podcontroller",
	} {
		binary, err := proc.Build(ctx, dir)
		if err != nil {
			return nil, err
		}
		out[name] = binary
	}
	return out, nil
}

func (f *Fleet) startClusters(ctx context.Context) error {
	var configs []controlplane.Config
	for _, id := range f.config.Clusters {
		configs = append(configs, controlplane.Config{
			Name: id, Dir: filepath.Join(f.config.Dir, "clusters", id), Address: bridgeAddress, Omit: []controlplane.Component{controlplane.Kwok},
			Progress: f.config.Progress,
		})
	}
	planes, err := controlplane.StartAll(ctx, configs...)
	if err != nil {
		return err
	}
	root, err := proc.Root()
	if err != nil {
		return err
	}
	for _, cp := range planes {
		c := &Cluster{ControlPlane: cp, ID: cp.Name()}
		f.Clusters = append(f.Clusters, c)
		if err := cp.ApplyDir(ctx, filepath.Join(root, "deploy", "crds")); err != nil {
			return err
		}
		if err := c.prepare(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", c.ID, err)
		}
	}
	return nil
}

// prepare grants what the operator's chart grants to machines that hold a token, and adds the Node that every control plane has.
func (c *Cluster) prepare(ctx context.Context) error {
	for role, group := range map[string]string{
		"system:node-bootstrapper": "system:bootstrappers:bigfleet",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     "system:bootstrappers:bigfleet",
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
	} {
		_, err := c.Client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "bigfleet-" + strings.NewReplacer(":", "-", ".", "-").Replace(role)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	const role = "node-role.kubernetes.io/control-plane"
	_, err := c.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "control-plane-0", Labels: map[string]string{role: ""}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	return err
}

// hostMillis is what Pods may use of a host, in thousandths of a core: one Pod of Hello, and not two.
const hostMillis = 1500

func (f *Fleet) startProvider(ctx context.Context, programs map[string]string, kubelet, images string) error {
	certs, kubeconfigs := filepath.Join(f.config.Dir, "certs"), filepath.Join(f.config.Dir, "kubeconfigs")
	for _, dir := range []string{certs, kubeconfigs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for _, c := range f.Clusters {
		text, err := os.ReadFile(c.Kubeconfig())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(kubeconfigs, c.ID+".kubeconfig"), text, 0o600); err != nil {
			return err
		}
	}
	ca, err := devca.New("real nodes")
	if err != nil {
		return err
	}
	own, err := ca.Write(certs, "provider", devca.Request{Hosts: []string{bridgeAddress}})
	if err != nil {
		return err
	}
	inventory := "defaults: {type: rack.small, zone: lab-1a, price_per_hour: 0.1, resources: {cpu: \"2\", memory: 2Gi, pods: \"110\"}, allocatable: {cpu: " +
		strconv.Itoa(hostMillis) + "m, memory: 1Gi, pods: \"110\"}}\nhosts:\n"
	for _, h := range f.Hosts {
		inventory += fmt.Sprintf("- {name: %s, rack: r%d}\n", h.Name, (h.n+1)/2)
	}
	agents, err := f.port()
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(agents, ":")
	agents = bridgeAddress + ":" + port
	if f.ProviderAddr, err = f.port(); err != nil {
		return err
	}
	config := fmt.Sprintf("inventory: %s\nagent_addr: %q\nagent_tls: {cert: %s, key: %s, ca: %s}\nkubeconfig_dir: %s\nretention: {failed: 2s, lost: 2s, stockout: 2s}\nreconcile_interval: 2s\nrecovery: resume\n",
		filepath.Join(f.config.Dir, "inventory.yaml"), agents, own.Cert, own.Key, own.CA, kubeconfigs)
	for name, text := range map[string]string{"inventory.yaml": inventory, "provider.yaml": config} {
		if err := os.WriteFile(filepath.Join(f.config.Dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if f.Provider, err = f.program(ctx, "provider", programs["provider"], "--config", filepath.Join(f.config.Dir, "provider.yaml"),
		"--addr", f.ProviderAddr, "--data-dir", filepath.Join(f.config.Dir, "provider")); err != nil {
		return err
	}
	for _, h := range f.Hosts {
		files, err := ca.Write(certs, h.Name, devca.For(identity.ID{Kind: identity.Host, Name: h.Name}))
		if err != nil {
			return err
		}
		if err := h.startAgent(ctx, programs["agent"], kubelet, images, "https://"+agents, [3]string{files.Cert, files.Key, files.CA}); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) startBigFleet(ctx context.Context, programs map[string]string) error {
	shard, err := f.port()
	if err != nil {
		return err
	}
	if f.Shard, err = f.program(ctx, "shard", programs["shard"], append([]string{
		"--listen", shard, "--provider-addr", f.ProviderAddr, "--data-dir", filepath.Join(f.config.Dir, "shard"),
		"--release-delay", "3s", "--release-delay-empty", "1s", "--session-handover-wait", "2s",
	}, f.config.ShardArgs...)...); err != nil {
		return err
	}
	for _, c := range f.Clusters {
		if c.Operator, err = f.program(ctx, "operator-"+c.ID, programs["operator"], "--cluster-id", c.ID, "--shard-addr", shard, "--kubeconfig", c.Kubeconfig(),
			"--bootstrap-renderer", "builtin", "--apiserver-url", c.EndpointAt(), "--demand-hold", "2s"); err != nil {
			return err
		}
		if c.PodController, err = f.program(ctx, "podcontroller-"+c.ID, programs["podcontroller"], "--kubeconfig", c.Kubeconfig()); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) port() (string, error) {
	p, err := loopback.Reserve()
	if err != nil {
		return "", err
	}
	f.ports = append(f.ports, p)
	return p.Addr(), nil
}

func (f *Fleet) program(ctx context.Context, name, binary string, args ...string) (*proc.Process, error) {
	metrics, err := f.port()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(f.config.Dir, name), 0o700); err != nil {
		return nil, err
	}
	p, err := proc.Start(ctx, proc.Config{
		Name: name, Path: binary, Args: append(args, "--metrics-addr", metrics), LogFile: filepath.Join(f.config.Dir, "logs", name+".log"),
		Ready: proc.HTTP("http://"+metrics+"/readyz", nil),
	})
	if err == nil {
		f.started = append(f.started, p)
	}
	return p, err
}

// Cluster returns the cluster with this id, which must exist.
func (f *Fleet) Cluster(id string) *Cluster {
	for _, c := range f.Clusters {
		if c.ID == id {
			return c
		}
	}
	panic("real: no cluster " + id)
}

// Machines calls the provider.
func (f *Fleet) Machines() bigfleetv1alpha1connect.CapacityProviderClient {
	return bigfleetv1alpha1connect.NewCapacityProviderClient(http.DefaultClient, "http://"+f.ProviderAddr)
}

// Logs is the end of what each process said.
func (f *Fleet) Logs(lines int) string {
	out := ""
	for _, p := range f.started {
		out += fmt.Sprintf("=== %s\n%s\n", p.Name(), p.Tail(lines))
	}
	for _, h := range f.Hosts {
		if h.Agent != nil {
			out += fmt.Sprintf("=== agent of %s\n%s\n", h.Name, h.Agent.Tail(lines))
		}
	}
	return out
}

// Stop ends everything and leaves no process, link, mount or cgroup.
func (f *Fleet) Stop() error {
	var errs []error
	for i := len(f.started) - 1; i >= 0; i-- {
		f.started[i].Kill()
	}
	for _, h := range f.Hosts {
		errs = append(errs, h.stop())
	}
	for _, c := range f.Clusters {
		errs = append(errs, c.Stop())
	}
	for _, p := range f.ports {
		p.Release()
	}
	removeBridge()
	for name, value := range f.kernel {
		errs = append(errs, os.WriteFile(name, []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// kernelSettings are those that a kubelet sets for the whole kernel; Stop puts them back.
func kernelSettings() map[string]string {
	out := map[string]string{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		if text, err := os.ReadFile("/proc/sys/" + name); err == nil {
			out["/proc/sys/"+name] = string(text)
		}
	}
	return out
}

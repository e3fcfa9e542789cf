package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Linux is a real machine. The zero value of a field means what its comment says.
type Linux struct {
	StateDir    string   // what Remember notes; required
	Services    Services // required
	Kubelet     []string // flags of the host's own, after those of the boot data
	CNI         string   // directory whose files become /etc/cni/net.d of each node; empty: none
	Images      string   // directory of image archives that each node begins with; empty: none
	Ctr         string   // program that imports them; empty: ctr
	CgroupRoot  string   // the kubelet's cgroupRoot; empty: /
	PluginDir   string   // CNI plugins; what a cluster adds there is removed; empty: /opt/cni/bin
	HealthzURL  string   // of the kubelet; empty: http://127.0.0.1:10248/healthz
	RuntimeSock string   // of containerd; empty: /run/containerd/containerd.sock
	Root        string   // where the machine's files are; empty: /
	Log         *slog.Logger
}

// at is where a file of the machine is.
func (l *Linux) at(name string) string { return filepath.Join("/", l.Root, name) }

// logDir takes what kubelet and runtime say. It goes with the cluster.
const logDir = "/var/log/bigfleet-node"

// tenant is every directory that a cluster writes into: a reset empties them. What is mounted there on the clean host stays
// mounted.
var tenant = []string{
	kubernetesDir, kubeletState, "/var/lib/containerd", "/run/containerd", "/var/lib/cni", "/etc/cni/net.d", "/var/log/pods",
	"/var/log/containers", "/var/lib/kube-proxy", "/run/flannel", "/var/lib/calico", "/run/calico", "/run/cilium", dropInDir, logDir,
}

// Write writes the boot data's files and the host's CNI configuration.
func (l *Linux) Write(_ context.Context, files []File) error {
	for _, f := range files {
		if err := replaceFile(l.at(f.Path), f.Content, f.Mode); err != nil {
			return err
		}
	}
	if l.CNI == "" {
		return nil
	}
	entries, err := os.ReadDir(l.CNI)
	if err != nil {
		return fmt.Errorf("the host's CNI configuration: %w", err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(l.CNI, e.Name()))
		if err != nil {
			return err
		}
		if err := replaceFile(l.at(filepath.Join("/etc/cni/net.d", e.Name())), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func replaceFile(name string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	next := name + ".bigfleet-new"
	if err := os.WriteFile(next, content, mode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(next, mode), os.Rename(next, name)) // a file of an earlier try keeps its mode
}

// StartRuntime starts containerd, waits until it answers, and imports the images that the host has. A containerd that is killed
// meanwhile is started again.
func (l *Linux) StartRuntime(ctx context.Context) error {
	for {
		err := l.startRuntime(ctx)
		if err == nil || ctx.Err() != nil || l.Services.Runs(Runtime) {
			return err
		}
		l.Log.Warn("the container runtime ended during its start; it is restarted", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (l *Linux) startRuntime(ctx context.Context) error {
	if err := l.dropEmptyID(); err != nil {
		return err
	}
	if err := l.Services.Start(ctx, Runtime, nil); err != nil {
		return err
	}
	ctr := cmp.Or(l.Ctr, "ctr")
	socket := cmp.Or(l.RuntimeSock, "/run/containerd/containerd.sock")
	for {
		err := run(ctx, ctr, "--address", socket, "version")
		if err == nil {
			break
		}
		err = fmt.Errorf("the container runtime does not answer: %w", err)
		if !l.Services.Runs(Runtime) {
			return fmt.Errorf("%w; its last output: %s", err, l.Services.LastWords(Runtime))
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	if l.Images == "" {
		return nil
	}
	archives, err := filepath.Glob(filepath.Join(l.Images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := run(ctx, ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", archive); err != nil {
			return fmt.Errorf("import %s: %w", archive, err)
		}
	}
	return nil
}

// dropEmptyID removes the file of containerd's own id if it is empty. A containerd that is killed while it writes the file leaves it so,
// and from then on answers no question about itself.
func (l *Linux) dropEmptyID() error {
	if l.Services.Runs(Runtime) {
		return nil
	}
	files, err := filepath.Glob(l.at("/var/lib/containerd/*/uuid"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && info.Size() == 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// StartKubelet starts the kubelet with the flags of the boot data and the host's own.
func (l *Linux) StartKubelet(ctx context.Context, flags []string) error {
	return l.Services.Start(ctx, Kubelet, slices.Concat(flags, l.Kubelet))
}

// Joined waits for the kubelet's certificate and for its health.
func (l *Linux) Joined(ctx context.Context) error {
	const certificate = kubeletState + "/pki/kubelet-client-current.pem"
	url := l.HealthzURL
	if url == "" {
		url = "http://127.0.0.1:10248/healthz"
	}
	err := until(ctx, 100*time.Millisecond, func() error {
		if _, err := os.Stat(l.at(certificate)); err != nil {
			return errors.New("the kubelet has no certificate of the cluster yet: does the cluster approve its request, and does the kubelet reach the API server?")
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return fmt.Errorf("the kubelet is not healthy: %w", err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the kubelet is not healthy: %s", answer.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; its last output: %s", err, l.Services.LastWords(Kubelet))
	}
	return nil
}

// StopKubelet implements Host.
func (l *Linux) StopKubelet(ctx context.Context) error { return l.Services.Stop(ctx, Kubelet) }

// StopRuntime ends containerd and the shims that outlive it.
func (l *Linux) StopRuntime(ctx context.Context) error {
	if err := l.Services.Stop(ctx, Runtime); err != nil {
		return err
	}
	return endProcesses(ctx, 0, shims)
}

// EndContainers ends every process of the kubelet's cgroups, then the cgroups.
func (l *Linux) EndContainers(ctx context.Context, grace time.Duration) error {
	if err := endProcesses(ctx, grace, l.podProcesses); err != nil {
		return err
	}
	for _, dir := range slices.Backward(l.podCgroups()) { // children first
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.Log.Debug("a cgroup cannot be removed yet", "cgroup", dir, "err", err)
		}
	}
	return nil
}

// Unmount takes away every mount below the tenant's directories and those of network namespaces, but what was there before.
func (l *Linux) Unmount(context.Context) error {
	left, err := l.tenantMounts()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(left) { // the last mounted first
		if err := unmount(point); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// Wipe empties the tenant's directories, and takes away plugins that the host did not have.
func (l *Linux) Wipe(context.Context) error {
	for _, dir := range tenant {
		if err := l.empty(l.at(dir)); err != nil {
			return err
		}
	}
	names, err := filepath.Glob(l.at("/run/netns/cni-*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	added, _, err := l.plugins()
	if err != nil {
		return err
	}
	for _, name := range added {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// empty removes what is in a directory, and leaves the host's own mount points below it.
func (l *Linux) empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own := l.remembered().Mounts
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if slices.ContainsFunc(own, func(m string) bool { return m == name || strings.HasPrefix(m, name+"/") }) {
			if err := l.empty(name); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// BoundLogs implements Host.
func (l *Linux) BoundLogs() error {
	return errors.Join(cutLog(logOf(l.Root, Kubelet), logBytesMax), cutLog(logOf(l.Root, Runtime), logBytesMax))
}

// Runs implements Host.
func (l *Linux) Runs() (kubelet, runtime bool) {
	return l.Services.Runs(Kubelet), l.Services.Runs(Runtime)
}

// until repeats do until it is nil, and returns its last error when the context ends.
func until(ctx context.Context, pause time.Duration, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// Addresses of the hosts' network, on a bridge of this machine.
const (
	bridgeName    = "bfreal0"
	bridgeAddress = "10.231.0.1"
)

// Host is one machine of the fleet, as far as what runs in it can tell.
type Host struct {
	Name  string
	Agent *proc.Process
	dir   string // of its configuration, shared with the machine
	init  *proc.Process
	pid   int // of its first process
	n     int
}

func (h *Host) address() string    { return fmt.Sprintf("10.231.0.%d", 10+h.n) }
func (h *Host) cgroupRoot() string { return "/bfreal-" + h.Name }
func (h *Host) link() string       { return fmt.Sprintf("bfr%d", h.n) }

// startHost makes the namespaces, the network and the cgroups of a host.
func startHost(ctx context.Context, program, dir string, n int) (*Host, error) {
	h := &Host{Name: fmt.Sprintf("host-%d", n), dir: filepath.Join(dir, fmt.Sprintf("host-%d", n)), n: n}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	pidFile := filepath.Join(h.dir, "pid")
	h.init, err = proc.Start(ctx, proc.Config{
		Name: h.Name, Path: program, Args: []string{h.dir, h.Name}, LogFile: filepath.Join(h.dir, "logs", "init.log"),
		Ready: func(context.Context, *proc.Process) error { _, err := os.Stat(pidFile); return err },
	})
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return h, err
	}
	if h.pid, err = strconv.Atoi(string(text)); err != nil {
		return h, err
	}
	if err := h.makeCgroups(); err != nil {
		return h, err
	}
	outside, pid := h.link(), strconv.Itoa(h.pid)
	removeLink(outside) // of a killed run
	for _, command := range []string{
		"ip link add " + outside + " type veth peer name eth0 netns " + pid,
		"ip link set " + outside + " master " + bridgeName + " up",
		"nsenter -t " + pid + " -n ip link set lo up",
		"nsenter -t " + pid + " -n ip addr add " + h.address() + "/24 dev eth0",
		"nsenter -t " + pid + " -n ip link set eth0 up",
		"nsenter -t " + pid + " -n ip route add default via " + bridgeAddress,
	} {
		if err := shell(ctx, command); err != nil {
			return h, err
		}
	}
	return h, nil
}

// makeBridge makes the network of the hosts, in the place of one that a killed run left.
func makeBridge(ctx context.Context) error {
	removeBridge()
	for _, command := range []string{"ip link add " + bridgeName + " type bridge", "ip addr add " + bridgeAddress + "/24 dev " + bridgeName, "ip link set " + bridgeName + " up"} {
		if err := shell(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

func removeBridge() { removeLink(bridgeName) }

func removeLink(name string) { _ = shell(context.Background(), "ip link delete "+name) } // may be missing

// inside is the command line of a program in the host's namespaces.
func (h *Host) inside(command ...string) []string {
	return append([]string{"-t", strconv.Itoa(h.pid), "-m", "-u", "-i", "-n", "-p", "--"}, command...)
}

// Run runs a program in the host and returns what it prints.
func (h *Host) Run(ctx context.Context, command ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nsenter", h.inside(command...)...).CombinedOutput()
	return string(out), err
}

// Kill ends the processes of a program in the host at once, as a crash does.
func (h *Host) Kill(ctx context.Context, program string) error {
	out, err := h.Run(ctx, "pkill", "-9", "-x", program)
	if err != nil {
		return fmt.Errorf("kill %s on %s: %w: %s", program, h.Name, err, out)
	}
	return nil
}

// stop ends the host with everything in it.
func (h *Host) stop() error {
	if h.Agent != nil {
		h.Agent.Kill()
	}
	if h.init != nil {
		h.init.Kill()
	}
	removeLink(h.link()) // a connection that was cut off keeps the namespace and its link for a while
	var failed error
	for _, dir := range h.cgroups() {
		failed = errors.Join(failed, removeCgroup(dir))
	}
	return failed
}

// cgroups are the directories of the host, one for each hierarchy.
func (h *Host) cgroups() (dirs []string) {
	entries, _ := os.ReadDir("/sys/fs/cgroup")
	for _, e := range entries {
		place := filepath.Join("/sys/fs/cgroup", e.Name())
		if _, err := os.Stat(filepath.Join(place, "cgroup.procs")); err == nil && e.Type()&fs.ModeSymlink == 0 && e.IsDir() {
			dirs = append(dirs, filepath.Join(place, h.cgroupRoot()))
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2 alone
		return []string{filepath.Join("/sys/fs/cgroup", h.cgroupRoot())}
	}
	return dirs
}

func (h *Host) makeCgroups() error {
	for _, dir := range h.cgroups() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a new cpuset is empty
			value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroup removes a cgroup whose processes were killed; the kernel needs a moment.
func removeCgroup(top string) error {
	var last error
	for range 100 {
		var dirs []string
		_ = filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, name)
			}
			return nil
		})
		if len(dirs) == 0 {
			return nil
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			last = os.Remove(dirs[i])
		}
		time.Sleep(50 * time.Millisecond)
	}
	return last
}

func shell(ctx context.Context, command string) error {
	words := strings.Fields(command)
	if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

// startAgent writes the host's configuration and starts its agent.
func (h *Host) startAgent(ctx context.Context, agent, kubelet, images, provider string, tls [3]string) error {
	etc := filepath.Join(h.dir, "etc")
	files := map[string]string{
		filepath.Join(etc, "kubelet.d", "10-host.conf"): fmt.Sprintf(kubeletConfig, h.cgroupRoot(), max(0, 1000*runtime.NumCPU()-hostMillis)),
		filepath.Join(etc, "cni", "10-bridge.conflist"): fmt.Sprintf(cniConfig, h.n),
		filepath.Join(etc, "containerd.toml"):           fmt.Sprintf(containerdConfig, pauseImage, pluginDir),
		filepath.Join(etc, "hostagent.yaml"): fmt.Sprintf(agentConfig, h.Name, provider, tls[0], tls[1], tls[2], kubelet,
			filepath.Join(etc, "kubelet.d"), h.address(), filepath.Join(etc, "containerd.toml"), filepath.Join(etc, "cni"), images, h.cgroupRoot()),
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	var err error
	h.Agent, err = proc.Start(ctx, proc.Config{
		Name: "agent-" + h.Name, Path: "/usr/bin/nsenter", Args: h.inside(agent, "--config", filepath.Join(etc, "hostagent.yaml")),
		LogFile: filepath.Join(h.dir, "logs", "agent.log"),
	})
	return err
}

const agentConfig = `host: %s
provider: %s
tls: {cert: %s, key: %s, ca: %s}
services: direct
kubelet: %s
kubelet_args: [--config-dir=%s, --node-ip=%s]
containerd_args: [--config, %s]
cni_dir: %s
cni_plugin_dir: /usr/lib/cni
images_dir: %s
cgroup_root: %s
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
cgroupRoot: %s
enforceNodeAllocatable: []
systemReserved: {cpu: %dm} # what is left is what the inventory says
resolvConf: ""
evictionHard: {memory.available: 10Mi, nodefs.available: "1%%", imagefs.available: "1%%", nodefs.inodesFree: "1%%"}
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "loopback"}]}
`

const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

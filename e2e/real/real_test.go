package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// world is the fleet that the parts of the test share, one after the other.
type world struct {
	*testing.T
	*Fleet
	ctx context.Context
}

// stall is how long a wait sees nothing new before it gives up.
const stall = 3 * time.Minute

func (w *world) until(what string, done func() (bool, string)) {
	w.Helper()
	last, moved := "", time.Now()
	for {
		ok, seen := done()
		switch {
		case ok:
			return
		case w.ctx.Err() != nil:
			w.Fatalf("%s: the test ended; last seen: %s", what, seen)
		case seen != last:
			last, moved = seen, time.Now()
		case time.Since(moved) > stall:
			w.Fatalf("%s: nothing new for %s; last seen: %s", what, stall, seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// answering waits until that many Pods of a Deployment answer, and returns what they say.
func (w *world) answering(c *Cluster, name string, n int) map[string]string {
	w.Helper()
	var said map[string]string
	w.until(fmt.Sprintf("%d containers of %s answer in %s", n, name, c.ID), func() (bool, string) {
		var err error
		said, err = w.Answers(w.ctx, c, name)
		return err == nil && len(said) == n, fmt.Sprint(said, err)
	})
	for pod, text := range said {
		if text != fmt.Sprintf("hello from %s in %s\n", pod, c.ID) {
			w.Errorf("pod %s says %q", pod, text)
		}
	}
	return said
}

func (w *world) machines() []*pb.Machine {
	w.Helper()
	list, err := w.Machines().List(w.ctx, connect.NewRequest(&pb.ListFilter{}))
	if err != nil {
		return nil // while the provider is away
	}
	return list.Msg.GetMachines()
}

// idle waits until that many machines are idle and the others bound.
func (w *world) idle(n int) {
	w.Helper()
	w.until(fmt.Sprintf("%d of %d machines are idle", n, len(w.Hosts)), func() (bool, string) {
		all, count := w.machines(), 0
		for _, m := range all {
			if m.GetState() == pb.MachineState_MACHINE_STATE_IDLE {
				count++
			}
		}
		return count == n && len(all) == len(w.Hosts), fmt.Sprint(all)
	})
}

// nodes are the Nodes that hosts are in a cluster.
func (w *world) nodes(c *Cluster) map[string]*corev1.Node {
	w.Helper()
	list, err := c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]*corev1.Node{}
	for i := range list.Items {
		if n := &list.Items[i]; n.Name != "control-plane-0" {
			out[n.Name] = n
		}
	}
	return out
}

func (w *world) host(name string) *Host {
	for _, h := range w.Hosts {
		if h.Name == name {
			return h
		}
	}
	w.Fatalf("no host %s", name)
	return nil
}

// clean looks at a host itself: no process, mount, link or file of a cluster is there.
func (w *world) clean(h *Host) {
	w.Helper()
	// The agent's own look is not asked: this one is the test's.
	const look = `
for d in /etc/kubernetes /var/lib/kubelet /var/lib/containerd /run/containerd /var/lib/cni /etc/cni/net.d /var/log/pods /var/log/containers /var/log/bigfleet-node /etc/systemd/system/kubelet.service.d; do
  [ -d $d ] && find $d -mindepth 1
done
ps -e -o args= | grep -E 'kubelet|containerd|/hello' | grep -v -e hostagent -e grep -e 'sh -c'
grep -E 'kubelet/|containerd/|netns' /proc/self/mountinfo
ip -o link | cut -d: -f2 | grep -v -E ' (lo|eth0@|tunl0|sit0|ip6tnl0|gre0|gretap0|erspan0)'
iptables-save 2>/dev/null | grep -E 'KUBE-|CNI-'
find /etc /opt /run /srv /var -xdev -name 'kubelet-client*' -o -xdev -name 'bootstrap-kubelet.conf' 2>/dev/null
true`
	out, err := h.Run(w.ctx, "sh", "-c", look)
	if err != nil || strings.TrimSpace(out) != "" {
		w.Errorf("%s is not clean: %v\n%s", h.Name, err, out)
	}
	for _, dir := range h.cgroups() {
		if _, err := os.Stat(dir + "/kubepods"); err == nil {
			w.Errorf("%s: the cgroup %s/kubepods is left", h.Name, dir)
		}
	}
}

// PROV-32, WIRE-2.5: containers run on nodes that BigFleet made of hosts, and nothing of a cluster stays on a host that left it.
func TestReal(t *testing.T) {
	if err := Missing(); err != nil {
		t.Skipf("no container can be run here: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "bigfleet-real-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	began := time.Now()
	f, err := Start(ctx, Config{Clusters: []string{"red", "blue"}, Hosts: 4, Dir: dir, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(60))
			for _, c := range f.Clusters {
				for _, kind := range []string{"pods", "pdb", "nodes", "events"} {
					out, _ := exec.Command(c.Kubectl(), "--kubeconfig", c.Kubeconfig(), "get", kind, "-A", "-o", "wide").CombinedOutput()
					t.Logf("%s of %s:\n%s", kind, c.ID, out)
				}
			}
		}
		if err := f.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		left(t, f)
	})
	t.Logf("everything started after %s", time.Since(began).Round(time.Second))
	w := &world{T: t, Fleet: f, ctx: ctx}
	w.idle(4)
	for _, part := range []struct {
		name string
		do   func(*world)
	}{
		{"containers answer", containersAnswer}, {"what a node is", whatANodeIs}, {"killed programs", killedPrograms},
		{"a budget blocks", aBudgetBlocks}, {"a host moves", aHostMoves}, {"killed on the way", killedOnTheWay},
	} {
		began := time.Now()
		if !t.Run(part.name, func(t *testing.T) {
			one := *w
			one.T = t
			part.do(&one)
		}) {
			return
		}
		t.Logf("%s: %s", part.name, time.Since(began).Round(100*time.Millisecond))
	}
}

// containersAnswer: two Pods in red ask for room, and answer over HTTP; the times of each hop are printed.
func containersAnswer(w *world) {
	red := w.Cluster("red")
	clock, err := w.WatchHops(w.ctx, red)
	if err != nil {
		w.Fatal(err)
	}
	defer clock.Stop()
	if err := red.Hello(w.ctx, "web", 2, ""); err != nil {
		w.Fatal(err)
	}
	w.answering(red, "web", 2)
	clock.Answered()
	w.Log("\n" + clock.String())
	w.idle(2)
}

// whatANodeIs: the Node carries what the boot data said, and its kubelet has a certificate of its own.
func whatANodeIs(w *world) {
	red := w.Cluster("red")
	nodes := w.nodes(red)
	if len(nodes) != 2 {
		w.Fatalf("%d nodes", len(nodes))
	}
	ids := map[string]bool{}
	for _, m := range w.machines() {
		ids[m.GetId()] = m.GetCluster() == "red"
	}
	for name, n := range nodes {
		h := w.host(name)
		if id := n.Labels["bigfleet.lucy.sh/machine-id"]; !ids[id] {
			w.Errorf("node %s has machine id %q, which is no machine of red", name, id)
		}
		if n.Spec.ProviderID != "hosts://hosts/"+name || n.Labels[corev1.LabelTopologyZone] != "lab-1a" || n.Labels["topology.bigfleet/rack"] == "" {
			w.Errorf("node %s: %s %v", name, n.Spec.ProviderID, n.Labels)
		}
		subject, err := h.Run(w.ctx, "openssl", "x509", "-noout", "-subject", "-in", "/var/lib/kubelet/pki/kubelet-client-current.pem")
		if err == nil && !strings.Contains(subject, "system:node:"+name) {
			w.Errorf("the kubelet's certificate is for %s", subject)
		}
		// The token of the boot data is spent: the operator has deleted it.
		w.until("the bootstrap tokens in use are gone", func() (bool, string) {
			secrets, err := red.Client().CoreV1().Secrets(metav1.NamespaceSystem).List(w.ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
			if err != nil {
				return false, err.Error()
			}
			used := slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool { return s.Labels["bigfleet.lucy.sh/machine-id"] != "" })
			return !used, fmt.Sprint(len(secrets.Items), " tokens")
		})
	}
}

// killedPrograms: agent, kubelet, runtime, provider and shard die, each alone. No container notices but by its own runtime, no
// node is lost, and nothing is configured twice.
func killedPrograms(w *world) {
	red := w.Cluster("red")
	before := w.nodes(red)
	uids := func() (out []string) {
		for name, n := range w.nodes(red) {
			out = append(out, name+" "+string(n.UID))
		}
		slices.Sort(out)
		return out
	}
	was := uids()
	var h *Host
	for name := range before {
		h = w.host(name)
	}
	w.Provider.Kill()
	w.Shard.Kill()
	h.Agent.Kill()
	for _, program := range []string{"kubelet", "containerd"} {
		if err := h.Kill(w.ctx, program); err != nil {
			w.Fatal(err)
		}
	}
	w.answering(red, "web", 2)                                                                            // with all of it dead
	for _, start := range []func(context.Context) error{w.Provider.Start, w.Shard.Start, h.Agent.Start} { // a shard waits for its provider
		if err := start(w.ctx); err != nil {
			w.Fatal(err)
		}
	}
	w.until("kubelet and containerd run again", func() (bool, string) {
		out, err := h.Run(w.ctx, "pgrep", "-x", "kubelet|containerd", "-l")
		return err == nil && strings.Contains(out, "kubelet") && strings.Contains(out, "containerd"), out
	})
	w.until("both nodes are Ready", func() (bool, string) {
		ready := 0
		for _, n := range w.nodes(red) {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready == 2, fmt.Sprint(ready)
	})
	w.answering(red, "web", 2)
	if now := uids(); !slices.Equal(was, now) {
		w.Errorf("nodes before %v, after %v", was, now)
	}
	w.idle(2)
}

// aBudgetBlocks: blue needs a host of red more, and red's disruption budget forbids the eviction: red keeps its host and gets the reason.
func aBudgetBlocks(w *world) {
	red, blue := w.Cluster("red"), w.Cluster("blue")
	two := intstr.FromInt32(2)
	_, err := red.Client().PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := blue.Client().SchedulingV1().PriorityClasses().Create(w.ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000,
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if err := blue.Hello(w.ctx, "app", 3, urgent); err != nil {
		w.Fatal(err)
	}
	w.answering(blue, "app", 2)
	w.until("red hears that the budget blocks the drain", func() (bool, string) {
		events, err := red.Client().CoreV1().Events("").List(w.ctx, metav1.ListOptions{FieldSelector: "reason=DrainBlocked"})
		if err != nil || len(events.Items) == 0 {
			return false, fmt.Sprint("no event ", err)
		}
		return strings.Contains(events.Items[0].Message, "default/guard"), events.Items[0].Message
	})
	w.answering(red, "web", 2)
	w.idle(0)
}

const urgent = "urgent"

// aHostMoves: the budget lets go, and the host serves blue with nothing of red on it.
func aHostMoves(w *world) {
	red, blue := w.Cluster("red"), w.Cluster("blue")
	before := w.nodes(red)
	if err := red.Client().PolicyV1().PodDisruptionBudgets("default").Delete(w.ctx, "guard", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	began := time.Now()
	w.answering(blue, "app", 3)
	w.answering(red, "web", 1)
	w.Logf("the host serves blue %s after the budget let go", time.Since(began).Round(100*time.Millisecond))
	var moved []string
	for name := range w.nodes(blue) {
		if before[name] != nil {
			moved = append(moved, name)
		}
	}
	if len(moved) != 1 {
		w.Fatalf("moved from red to blue: %v", moved)
	}
	if n := w.nodes(red)[moved[0]]; n != nil {
		w.Errorf("red still has node %s", n.Name)
	}
	h := w.host(moved[0])
	_, port, _ := strings.Cut(strings.TrimPrefix(red.EndpointAt(), "https://"), ":")
	out, _ := h.Run(w.ctx, "sh", "-c", "grep -rl -e ':"+port+"' /etc/kubernetes /var/lib/kubelet /var/log/pods /var/log/bigfleet-node 2>/dev/null; "+
		"for e in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $e 2>/dev/null | grep -x CLUSTER=red; done")
	if strings.TrimSpace(out) != "" {
		w.Errorf("%s serves blue and holds of red: %s", h.Name, out)
	}
	for c, name := range map[*Cluster]string{red: "web", blue: "app"} {
		if err := c.Scale(w.ctx, name, 0); err != nil {
			w.Fatal(err)
		}
	}
	began = time.Now()
	w.idle(4)
	w.Logf("all hosts are idle %s after the Deployments were scaled to 0", time.Since(began).Round(100*time.Millisecond))
	for _, h := range w.Hosts {
		w.clean(h)
	}
	if n := len(w.nodes(red)) + len(w.nodes(blue)); n > 0 {
		w.Errorf("%d nodes are left", n)
	}
}

// killedOnTheWay: each program dies while a host becomes a node, and while it is reset. The host serves in the end, once, and is clean in
// the end. Three lives of a host, because some deaths hide others. A host whose Configure the provider's death cut off may have joined and run the
// Pod: it is reset when that Pod is gone, and until then another host serves, too.
func killedOnTheWay(w *world) {
	red := w.Cluster("red")
	restart := func(name string, p interface {
		Kill()
		Start(context.Context) error
	}) {
		p.Kill()
		if err := p.Start(w.ctx); err != nil {
			w.Fatalf("%s: %v", name, err)
		}
	}
	crash := func(h *Host, program string, must bool) {
		w.until(program+" of "+h.Name+" is killed", func() (bool, string) {
			err := h.Kill(w.ctx, program)
			return err == nil || !must, fmt.Sprint(err)
		})
	}
	for _, life := range []struct {
		name                  string
		configuring, draining func(h *Host)
	}{
		{"agent and shard", func(h *Host) {
			restart("agent", h.Agent)
			restart("shard", w.Shard)
		}, func(h *Host) {
			restart("agent", h.Agent)
			restart("provider", w.Provider)
			restart("shard", w.Shard)
		}},
		{"kubelet and containerd", func(h *Host) { // each as soon as it runs; the agent starts them again
			crash(h, "containerd", true)
			crash(h, "kubelet", true)
		}, func(h *Host) { crash(h, "containerd", false) }}, // the reset may have ended it
		{"provider", func(*Host) { restart("provider", w.Provider) }, func(h *Host) { crash(h, "kubelet", false) }},
	} {
		began := time.Now()
		if err := red.Scale(w.ctx, "web", 1); err != nil {
			w.Fatal(err)
		}
		life.configuring(w.in(pb.MachineState_MACHINE_STATE_CONFIGURING))
		w.answering(red, "web", 1)
		if err := red.Scale(w.ctx, "web", 0); err != nil {
			w.Fatal(err)
		}
		life.draining(w.in(pb.MachineState_MACHINE_STATE_DRAINING))
		w.idle(4)
		for _, h := range w.Hosts {
			w.clean(h)
		}
		w.Logf("killed: %s, %s", life.name, time.Since(began).Round(100*time.Millisecond))
	}
}

// in waits until a machine is in a state and returns its host.
func (w *world) in(state pb.MachineState) (h *Host) {
	w.Helper()
	w.until("a machine is "+state.String(), func() (bool, string) {
		all := w.machines()
		for _, m := range all {
			if m.GetState() == state {
				_, name, _ := strings.Cut(strings.TrimPrefix(m.GetHost().GetRef(), "hosts://"), "/")
				h = w.host(name)
			}
		}
		return h != nil, fmt.Sprint(all)
	})
	return h
}

// left checks that the test leaves nothing on this machine.
func left(t *testing.T, f *Fleet) {
	for _, h := range f.Hosts {
		for _, dir := range h.cgroups() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("cgroup %s is left", dir)
			}
		}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(text), f.config.Dir) {
		t.Errorf("a mount below %s is left (%v)", f.config.Dir, err)
	}
	// The kernel takes a link out some time after the last process of its namespace has ended.
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command("ip", "-o", "link").Output()
		if err == nil && !strings.Contains(string(out), bridgeName) && !strings.Contains(string(out), "bfr1") {
			return
		}
		if err != nil || time.Since(began) > stall {
			t.Errorf("a link is left: %v %s", err, out)
			return
		}
	}
}

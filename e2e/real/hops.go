package real

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Hops measures the way from a Pod that asks for room to its container that answers, host by host.
type Hops struct {
	fleet *Fleet
	asked time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu       sync.Mutex
	hosts    map[string]*hop
	answered time.Time
}

// hop is when one host passed each point.
type hop struct{ configure, joined, ready time.Time }

// WatchHops begins now. Points are looked at every 25 ms, so that is how exact they are.
func (f *Fleet) WatchHops(ctx context.Context, c *Cluster) (*Hops, error) {
	ctx, stop := context.WithCancel(ctx)
	nodes, err := c.Client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, err
	}
	h := &Hops{fleet: f, asked: time.Now(), stop: stop, ended: make(chan struct{}), hosts: map[string]*hop{}}
	go func() {
		defer close(h.ended)
		defer nodes.Stop()
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-nodes.ResultChan():
				if n, ok := e.Object.(*corev1.Node); open && ok {
					h.node(n)
				}
			case <-tick.C:
				if list, err := f.Machines().List(ctx, connect.NewRequest(&pb.ListFilter{})); err == nil {
					h.machines(list.Msg.GetMachines(), c.ID)
				}
			}
		}
	}()
	return h, nil
}

func (h *Hops) of(name string) *hop {
	if h.hosts[name] == nil {
		h.hosts[name] = &hop{}
	}
	return h.hosts[name]
}

func (h *Hops) node(n *corev1.Node) {
	if n.Name == "control-plane-0" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(n.Name)
	if one.joined.IsZero() {
		one.joined = time.Now()
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && one.ready.IsZero() {
			one.ready = time.Now()
		}
	}
}

func (h *Hops) machines(all []*pb.Machine, cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range all {
		name := m.GetHost().GetRef()[strings.LastIndexByte(m.GetHost().GetRef(), '/')+1:]
		if one := h.of(name); m.GetCluster() == cluster && one.configure.IsZero() {
			one.configure = time.Now()
		}
	}
}

// Answered says that the containers answer.
func (h *Hops) Answered() { h.answered = time.Now() }

// Stop ends the watch.
func (h *Hops) Stop() {
	h.stop()
	<-h.ended
}

var kubeletStarted = regexp.MustCompile(`time=(\S+) .*step=kubelet `)

// String is a line for each host that joined.
func (h *Hops) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := func(at time.Time) string { return fmt.Sprintf("%.2f s", at.Sub(h.asked).Seconds()) }
	var out strings.Builder
	for _, host := range h.fleet.Hosts {
		one := h.hosts[host.Name]
		if one == nil || one.joined.IsZero() {
			continue
		}
		kubelet := "?"
		if text, err := os.ReadFile(host.Agent.LogFile()); err == nil {
			for _, m := range kubeletStarted.FindAllStringSubmatch(string(text), -1) {
				if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && at.After(h.asked) {
					kubelet = since(at)
					break
				}
			}
		}
		fmt.Fprintf(&out, "%s: asked 0 s, configured from %s, kubelet up %s, joined %s, Ready %s", host.Name, since(one.configure), kubelet, since(one.joined), since(one.ready))
		fmt.Fprintln(&out)
	}
	fmt.Fprintf(&out, "every container answers after %s", since(h.answered))
	return out.String()
}

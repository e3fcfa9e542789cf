package up_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
)

// start runs a world on free ports and stops it with the test.
func start(t *testing.T, c up.Config) (*up.World, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	c.Out, c.ProviderDelay = &out, -1
	const any = "127.0.0.1:0"
	c.ShardListen, c.ProviderListen, c.ControlListen, c.CoordinatorListen, c.RaftBind = any, any, any, any, any
	c.DataDir = t.TempDir()
	w, err := up.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if t.Failed() {
			t.Logf("the view:\n%s", out.String())
		}
	})
	return w, &out
}

// running counts Pods that run, by cluster.
func running(t *testing.T, w *up.World) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, c := range w.Clusters {
		pods, err := c.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			t.Fatal(err)
		}
		out[c.ID()] = len(pods.Items)
	}
	return out
}

func wantRunning(t *testing.T, w *up.World, want map[string]int) {
	t.Helper()
	var got map[string]int
	for range 600 {
		if got = running(t, w); maps.Equal(got, want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("Pods that run: %v, want %v", got, want)
}

// OPS-5.2, OP-3.8: the real operator, pod controller, shard and provider serve simulated clusters from nothing to running Pods.
func TestSteadyScenario(t *testing.T) {
	w, _ := start(t, up.Config{Clusters: 2, Scenario: "steady", Speed: 10})
	wantRunning(t, w, map[string]int{"red": 6, "blue": 6})
}

// OPS-5.6: with the shard away nothing is lost; when it is back it drains nothing.
func TestRestartScenarioHarmsNothing(t *testing.T) {
	w, _ := start(t, up.Config{Clusters: 1, Scenario: "steady", Speed: 10})
	wantRunning(t, w, map[string]int{"red": 6})
	nodes := func() string {
		list, _, err := w.Clusters[0].Store().List(kubesim.Nodes, kubesim.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, n := range list {
			spec, _ := n.Object["spec"].(map[string]any)
			out = append(out, fmt.Sprint(n.GetName(), n.GetUID(), spec["unschedulable"]))
		}
		return strings.Join(out, " ")
	}
	before := nodes()
	if err := w.StopShard(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if err := w.StartShard(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second) // List, redial, roll-up, cycles
	if after := nodes(); after != before {
		t.Errorf("the Nodes changed over a restart of the shard:\n%s\n%s", before, after)
	}
	wantRunning(t, w, map[string]int{"red": 6})
}

// A taken port and a wrong number are said plainly.
func TestStartErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = up.New(t.Context(), up.Config{ShardListen: l.Addr().String(), ProviderListen: loopback.Addr(t), ControlListen: loopback.Addr(t), CoordinatorListen: loopback.Addr(t), RaftBind: loopback.Addr(t), Clusters: 1})
	if err == nil || !strings.Contains(err.Error(), "--shard-listen chooses another address") {
		t.Errorf("a taken port: %v", err)
	}
	if _, err = up.New(t.Context(), up.Config{Clusters: -1}); err == nil || !strings.Contains(err.Error(), "--clusters") {
		t.Errorf("-1 clusters: %v", err)
	}
	if _, err = up.New(t.Context(), up.Config{Scenario: "dragons"}); err == nil || !strings.Contains(err.Error(), "use one of") {
		t.Errorf("an unknown scenario: %v", err)
	}
}

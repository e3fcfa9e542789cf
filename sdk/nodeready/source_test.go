package nodeready

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func source(t *testing.T, clusters Clusters, deleted func(string, Node)) *Source {
	t.Helper()
	s, err := NewSource(Config{Clusters: clusters, Log: slog.New(slog.DiscardHandler), Deleted: deleted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// waits runs do and says that it is still at it after a while; the result comes through the channel.
func waits(t *testing.T, what string, do func() error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		t.Fatalf("%s came back too early: %v", what, err)
	case <-time.After(150 * time.Millisecond):
	}
	return done
}

// PROV-14.1, 14.4: Ready waits for the condition of the node with that providerID, whatever its name, else of that name; a
// node that is being deleted is not Ready.
func TestReady(t *testing.T) {
	a := newAPIServer(t)
	s := source(t, RESTConfigs{"red": a.config()}, nil)
	byID := provider.Node{Cluster: "red", ProviderID: "x://1", Name: "machine-1"}
	done := waits(t, "Ready without a node", func() error { return s.Ready(soon(t), byID) })
	a.put("other-name", "x://1", corev1.ConditionFalse)
	select {
	case err := <-done:
		t.Fatalf("Ready while the condition is False: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	a.put("other-name", "x://1", corev1.ConditionTrue)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a.put("machine-2", "", corev1.ConditionTrue)
	if err := s.Ready(soon(t), provider.Node{Cluster: "red", ProviderID: "x://2", Name: "machine-2"}); err != nil {
		t.Errorf("by name: %v", err)
	}
	a.put("machine-3", "x://3", corev1.ConditionTrue, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	bounded, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Ready(bounded, provider.Node{Cluster: "red", ProviderID: "x://3", Name: "machine-3"}); err == nil {
		t.Error("a node that is being deleted is Ready")
	}
}

// Gone waits for the deletion; Deleted hears of it; Exists asks the cluster itself.
func TestGone(t *testing.T) {
	a := newAPIServer(t)
	heard := make(chan string, 4)
	s := source(t, RESTConfigs{"red": a.config()}, func(cluster string, n Node) { heard <- cluster + "/" + n.Name })
	a.put("m", "x://1", corev1.ConditionTrue)
	n := provider.Node{Cluster: "red", ProviderID: "x://1", Name: "m"}
	if there, err := s.Exists(soon(t), n); err != nil || !there {
		t.Errorf("Exists: %v %v", there, err)
	}
	done := waits(t, "Gone while it is there", func() error { return s.Gone(soon(t), n) })
	a.remove("m")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "red/m" {
		t.Errorf("heard of %s", got)
	}
	if there, err := s.Exists(soon(t), n); err != nil || there {
		t.Errorf("Exists after the deletion: %v %v", there, err)
	}
	// The cluster has no node of that name, but one of another name with the providerID.
	a.put("renamed", "x://1", corev1.ConditionTrue)
	if err := s.Ready(soon(t), n); err != nil {
		t.Fatal(err)
	}
	if there, err := s.Exists(soon(t), n); err != nil || !there {
		t.Errorf("Exists of a renamed node: %v %v", there, err)
	}
}

// PROV-14.6: a cluster that does not answer is "not yet": never Ready, never gone, and whether a node exists is unknown.
func TestAwayIsNotYet(t *testing.T) {
	a := newAPIServer(t)
	a.put("m", "x://1", corev1.ConditionTrue)
	a.leave(true)
	s := source(t, RESTConfigs{"red": a.config()}, nil)
	n := provider.Node{Cluster: "red", ProviderID: "x://1", Name: "m"}
	ready := waits(t, "Ready of a cluster that is away", func() error { return s.Ready(soon(t), n) })
	bounded, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Gone(bounded, n); err == nil {
		t.Error("gone, says a cluster that is away")
	}
	if _, err := s.Exists(bounded, n); err == nil {
		t.Error("a cluster that is away tells what exists")
	}
	if _, err := s.Nodes(bounded, "red"); err == nil {
		t.Error("a cluster that is away lists nodes")
	}
	a.leave(false)
	if err := <-ready; err != nil {
		t.Errorf("after it is back: %v", err)
	}
	nodes, err := s.Nodes(soon(t), "red")
	if err != nil || len(nodes) != 1 || !nodes[0].Ready || nodes[0].Labels["p"] != "x" {
		t.Errorf("Nodes: %v %v", nodes, err)
	}
}

func writeKubeconfig(t *testing.T, file, url string) {
	t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", url)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// PROV-27.2: a kubeconfig that changes is taken into use without a restart, also by those who wait already.
func TestAChangedKubeconfigMovesTheWatch(t *testing.T) {
	before, after := newAPIServer(t), newAPIServer(t)
	after.put("m", "x://1", corev1.ConditionTrue)
	dir := t.TempDir()
	file := filepath.Join(dir, "red.yaml")
	writeKubeconfig(t, file, before.URL)
	s := source(t, Kubeconfigs{Dir: dir}, nil)
	ready := waits(t, "Ready in the old cluster", func() error {
		return s.Ready(soon(t), provider.Node{Cluster: "red", ProviderID: "x://1", Name: "m"})
	})
	writeKubeconfig(t, file, after.URL)
	if err := os.Chtimes(file, time.Now().Add(time.Minute), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

// PROV-14.5, 27.2: by id, else by file, else the default; a cluster in none of these is an error that names it.
func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "yaml.yaml", "long.kubeconfig", FileName("odd/../id"), "named"} {
		writeKubeconfig(t, filepath.Join(dir, name), "https://"+name)
	}
	one := filepath.Join(t.TempDir(), "one")
	writeKubeconfig(t, one, "https://one")
	k := Kubeconfigs{Clusters: map[string]Kubeconfig{"named": {File: one}}, Dir: dir}
	for cluster, host := range map[string]string{
		"named": "https://one", "plain": "https://plain", "yaml": "https://yaml.yaml", "long": "https://long.kubeconfig",
		"odd/../id": "https://" + FileName("odd/../id"),
	} {
		config, err := k.Config(cluster)
		if err != nil || config.Host != host {
			t.Errorf("%s: %v %v, want %s", cluster, config, err, host)
		}
		if version, err := k.Find(cluster); err != nil || version == "" {
			t.Errorf("Find %s: %q %v", cluster, version, err)
		}
	}
	for _, cluster := range []string{"unknown", "../" + filepath.Base(one), ".hidden", "odd/../other"} {
		if _, err := k.Find(cluster); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", cluster)) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", cluster, err)
		}
	}
	if names := k.Names(); !slices.Equal(names, []string{"long", "named", "plain", "yaml"}) {
		t.Errorf("names %v", names)
	}
	k.Default = Kubeconfig{File: one}
	if config, err := k.Config("unknown"); err != nil || config.Host != "https://one" {
		t.Errorf("the default: %v %v", config, err)
	}
	k.Default.Context = "missing"
	if _, err := k.Config("unknown"); err == nil || !strings.Contains(err.Error(), one) {
		t.Errorf("a context that is not there: %v", err)
	}
}

// A Source that is closed watches nothing and says so.
func TestClosed(t *testing.T) {
	a := newAPIServer(t)
	s := source(t, RESTConfigs{"red": a.config()}, nil)
	ready := waits(t, "Ready", func() error { return s.Ready(soon(t), provider.Node{Cluster: "red", Name: "m"}) })
	s.Close()
	if err := <-ready; err == nil {
		t.Error("Ready after Close")
	}
	if err := s.Known("blue"); err == nil || !strings.Contains(err.Error(), "blue") {
		t.Errorf("Known: %v", err)
	}
	if _, err := NewSource(Config{}); err == nil {
		t.Error("a Source of nothing")
	}
}

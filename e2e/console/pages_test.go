package console

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"github.com/bigfleet-dev/bigfleet/e2e/monitoring"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// OPS-6.11, OPS-6.7: on `bigfleet up` every page is shown in both themes without a serious finding of axe or a violation of the policy, and
// each of the three questions is answered by keyboard alone: why a Pod waits, why a machine was taken away, where the money goes.
func TestPagesAndStories(t *testing.T) {
	web(t)
	at := addresses(t, 11)
	base, kubeconfig := "http://"+at[0], filepath.Join(t.TempDir(), "kubeconfig")
	proc.StartT(t, proc.Config{Name: "up", Path: proc.BuildT(t, program), Args: []string{"up", "--scenario", "testdata/story.txt", "--speed", "4", "--console", at[0],
		"--shard-listen", at[1], "--coordinator-listen", at[2], "--raft-bind", at[3], "--provider-listen", at[4], "--control-listen", at[5], "--demo-listen", at[6],
		"--write-kubeconfig", kubeconfig, "--shard-metrics-addr", at[7], "--coordinator-metrics-addr", at[8]}, Ready: proc.HTTP(base, nil)})
	f := newFleet(t, base)
	taken := f.machine("the cloud takes a machine back", func(r *v1.DecisionRecord) bool {
		return r.GetType() == v1.RecordType_RECORD_TYPE_INTERRUPTION
	})
	victim := f.machine("an urgent need takes a machine", func(r *v1.DecisionRecord) bool {
		return r.GetKind() == v1.ActionKind_ACTION_KIND_PREEMPT && r.GetClusterId() == "red"
	})
	eventually(t, "a Pod waits", func() (bool, bool) {
		got, err := f.read.GetStatus(t.Context(), connect.NewRequest(&v1.GetStatusRequest{}))
		return true, err == nil && got.Msg.GetUnsatisfiedNeeds() > 0
	})
	eventually(t, "what the cloud takes back is gone, and nothing is on its way", func() (bool, bool) {
		got, err := f.read.ListMachines(t.Context(), connect.NewRequest(&v1.ListMachinesRequest{PageSize: 1000}))
		if err != nil {
			return false, false
		}
		return true, !slices.ContainsFunc(got.Msg.GetMachines(), func(m *v1.MachineView) bool {
			switch m.GetMachine().GetState() {
			case v1.MachineState_MACHINE_STATE_SPECULATIVE, v1.MachineState_MACHINE_STATE_FAILED:
				return false
			case v1.MachineState_MACHINE_STATE_CONFIGURED:
				return m.GetMachine().GetId() == taken
			}
			return true
		})
	})
	commands := filepath.Join(t.TempDir(), "commands.jsonl")
	giant, ready := f.pod("giant"), path(t, f)
	browse(t, "pages.mjs", []string{"COMMANDS=" + commands, "MACHINE=" + taken, "VICTIM=" + victim, "POD=" + giant, "READY=" + ready}, base)
	sentences(t, f, at[2], taken, victim)
	readsClusters(t, at[9], at[10], at[2], kubeconfig, giant, ready)
	runQueries(t, commands, at[2], kubeconfig, at[7], at[8], at[10])
}

// OPS-6.4: a console of its own finds Pods in the clusters of a kubeconfig, and tells their paths as the one of `bigfleet up` does.
func readsClusters(t *testing.T, listen, ops, coordinator, kubeconfig, giant, ready string) {
	t.Helper()
	proc.StartT(t, proc.Config{Name: "console", Path: proc.BuildT(t, program), Args: []string{"console", "--listen", listen, "--coordinator", coordinator, "--kubeconfig", kubeconfig, "--contexts", "red,blue,green", "--metrics-addr", ops, "--log-level", "warn"},
		Ready: proc.HTTP("http://"+ops+"/readyz", nil)})
	f := newFleet(t, "http://"+listen)
	if got := f.pod("giant"); got != giant {
		t.Errorf("the search finds %q, want %q", got, giant)
	}
	for pod, want := range map[string]string{giant: "", ready: "ready on node"} {
		namespace, name, _ := strings.Cut(pod, "/")
		got := eventually(t, "the path of "+pod, func() (*v1.GetPodPathResponse, bool) {
			got, err := f.console.GetPodPath(t.Context(), connect.NewRequest(&v1.GetPodPathRequest{ClusterId: "green", Namespace: namespace, Pod: name}))
			if err != nil || got.Msg.GetRowId() == "" { // the console has just started: its first reading of the shard may be to come
				return nil, false
			}
			return got.Msg, true
		})
		if !strings.Contains(got.GetSentence(), want) || got.GetSentence() == "" || len(got.GetHops()) != 8 {
			t.Errorf("the path of %s: %v", pod, got)
		}
	}
}

// OPS-6.10: what the console says of a record is what the command says of it, word for word: in a machine's life, while it is
// followed, and in the records of Now.
func sentences(t *testing.T, f *fleet, coordinator string, machines ...string) {
	t.Helper()
	said := func(what string, records []*v1.DecisionRecord, args ...string) {
		out, err := exec.CommandContext(t.Context(), proc.BuildT(t, program), append([]string{"history", "--coordinator", coordinator, "-o", "wide"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		if len(records) == 0 {
			t.Errorf("%s: no records", what)
		}
		for _, r := range records {
			if r.GetDetail() == "" || !strings.Contains(string(out), r.GetDetail()) {
				t.Errorf("%s: the console says %q, and the command:\n%s", what, r.GetDetail(), out)
			}
		}
	}
	for _, m := range machines {
		got, err := f.read.GetMachineHistory(t.Context(), connect.NewRequest(&v1.GetMachineHistoryRequest{Subject: &v1.GetMachineHistoryRequest_MachineId{MachineId: m}, PageSize: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		said("the life of "+m, got.Msg.GetRecords(), "machine/"+m)
		live, err := f.console.WatchMachine(t.Context(), connect.NewRequest(&v1.WatchMachineRequest{MachineId: m}))
		if err != nil {
			t.Fatal(err)
		}
		if !live.Receive() {
			t.Fatal(live.Err())
		}
		said("the open page of "+m, live.Msg().GetRecords(), "machine/"+m)
		_ = live.Close()
	}
	overview, err := f.console.WatchOverview(t.Context(), connect.NewRequest(&v1.WatchOverviewRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if !overview.Receive() {
		t.Fatal(overview.Err())
	}
	said("Now", overview.Msg().GetRecent(), "--limit", "5000")
	_ = overview.Close()
}

// OPS-6.8: what stands behind "query" runs: each curl line brings JSON that is not an error, each command of ours succeeds, and each metric of a PromQL
// line is exposed with the labels it is asked for.
func runQueries(t *testing.T, file, coordinator, kubeconfig string, ops ...string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(proc.BuildT(t, program), filepath.Join(bin, "bigfleet")); err != nil {
		t.Fatal(err)
	}
	metrics := scraped(t, ops)
	done, ours, asked := map[string]bool{}, 0, 0
	for line := range strings.Lines(string(raw)) {
		var q struct{ Page, Command string }
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			t.Fatal(err)
		}
		if done[q.Command] {
			continue
		}
		done[q.Command] = true
		text := q.Command
		switch {
		case strings.HasPrefix(text, "bigfleet "):
			ours++
			text += " --coordinator " + coordinator
		case strings.HasPrefix(text, "curl "):
			text = strings.Replace(text, "curl -s", "curl -sS --fail-with-body", 1)
		default:
			asked++
			exposed(t, q.Page, text, metrics)
			continue
		}
		if strings.Contains(text, "--kube-context") {
			text += " --kubeconfig " + kubeconfig
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", text)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", q.Page, text, err, out)
		}
	}
	if ours < 15 || asked < 10 || len(done) < 40 {
		t.Errorf("only %d commands stand behind queries, %d of them ours, %d PromQL", len(done), ours, asked)
	}
}

// scraped reads what programs expose.
func scraped(t *testing.T, ops []string) *monitoring.Series {
	t.Helper()
	out := &monitoring.Series{}
	for _, addr := range ops {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		err = out.ScrapeTarget(got.Body, monitoring.Start, "bigfleet", addr)
		_ = got.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return out
}

func exposed(t *testing.T, page, expr string, s *monitoring.Series) {
	t.Helper()
	named, err := monitoring.Selectors(expr)
	if err != nil {
		t.Errorf("%s: %v", page, err)
	}
	for metric, labels := range named {
		for _, label := range labels {
			if !s.Labels(metric)[label] {
				t.Errorf("%s: %s names %s{%s}, which nothing exposes", page, expr, metric, label)
			}
		}
	}
}

// pod waits until a Pod can be found.
func (f *fleet) pod(part string) string {
	f.t.Helper()
	return eventually(f.t, "a Pod "+part, func() (string, bool) {
		got, err := f.console.Search(f.t.Context(), connect.NewRequest(&v1.SearchRequest{Query: part}))
		if err != nil {
			return "", false
		}
		for _, h := range got.Msg.GetHits() {
			if h.GetKind() == "pod" {
				return h.GetName(), true
			}
		}
		return "", false
	})
}

// OPS-6.9: the path of a Pod that is ready is complete: every hop has its time, in the order of the hops.
func path(t *testing.T, f *fleet) string {
	t.Helper()
	name := f.pod("urgent")
	namespace, pod, _ := strings.Cut(name, "/")
	got := eventually(t, "the Pod is ready", func() (*v1.GetPodPathResponse, bool) {
		got, err := f.console.GetPodPath(t.Context(), connect.NewRequest(&v1.GetPodPathRequest{ClusterId: "green", Namespace: namespace, Pod: pod}))
		if err != nil || got.Msg.GetNodeName() == "" || got.Msg.GetHops()[len(got.Msg.GetHops())-1].GetAtUnixNanos() == 0 {
			return nil, false
		}
		return got.Msg, true
	})
	const second = int64(time.Second) // clusters tell whole ones
	before := int64(0)
	for _, h := range got.GetHops() {
		at := h.GetAtUnixNanos()
		if h.GetHop() == "bought" { // it was another cluster's: nothing was bought
			continue
		}
		if at == 0 || at/second < before/second-1 {
			t.Errorf("hop %q at %d, after %d: %s", h.GetHop(), at, before, h.GetSentence())
		}
		before = at
	}
	if got.GetMachineId() == "" || got.GetRowId() == "" || got.GetShardId() == "" || !strings.Contains(got.GetSentence(), "ready on node") {
		t.Errorf("the path of a ready Pod: %v", got)
	}
	return name
}

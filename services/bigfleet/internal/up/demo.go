package up

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// Demo is a story that `bigfleet demo` drives in a world that runs (OPS-5.5). Its script is written for two clusters, A and B.
type Demo struct {
	Name, About, Watch, Script string
	Args                       []string // words that the caller may give, in order; A and B default to the first two clusters
}

// Demos are the stories of `bigfleet demo`.
func Demos() []Demo {
	return []Demo{
		{Name: "shift", Args: []string{"A", "B"}, About: "demand moves from one cluster to another, and machines follow",
			Watch:  "bigfleet top",
			Script: "deploy A shift 24\nwait A shift 24\nsay the same work moves to B\nscale A shift 0\ndeploy B shift 24\nwait B shift 24\nrest"},
		{Name: "critical", About: "batch work holds every GPU, then something urgent arrives elsewhere", Watch: "bigfleet top",
			Script: "deploy A batch 12 gpu=1 priority=-10\nwait A batch 12\nsay B urgently needs 2 GPUs: the batch makes room\ndeploy B urgent 2 gpu=1 priority=1000000\nwait B urgent 2"},
		{Name: "saturate", About: "more demand than the cloud can supply", Watch: "bigfleet get needs --unmet",
			Script: "deploy A flood 300 cpu=4\nrest"},
		{Name: "stockout", About: "the cheapest machines are sold out: the next best are bought at once", Watch: "bigfleet status",
			Script: "stock spot 0\ndeploy A more 40 type=m.8x\nwait A more 40\nsay spot machines are back: status says when each pool is tried again\nstock spot back"},
		{Name: "spot-storm", About: "the cloud interrupts the spot machines of a zone with a short notice", Watch: "bigfleet get machines --state configured",
			Script: "deploy A web 32 type=m.8x\nwait A web 32\nstorm 2s\n+3s wait A web 32\nrest"},
		{Name: "kill-coordinator", About: "the coordinator is down: shards continue to decide", Watch: "bigfleet status --shard SHARD",
			Script: "deploy A before 4\nwait A before 4\nstop coordinator\nsay a new need is met without a coordinator\ndeploy A without 8\nwait A without 8\nstart coordinator"},
		{Name: "kill-operator", Args: []string{"A"}, About: "an operator stops: its cluster keeps its Nodes and Pods", Watch: "bigfleet get clusters",
			Script: "deploy A web 8\nwait A web 8\nstop operator A\n+2s wait A web 8\nsay nothing was drained; it comes back\nstart operator A\nscale A web 12\nwait A web 12"},
		{Name: "reset", About: "delete all workloads, restore the stock, start everything", Watch: "bigfleet top", Script: "reset\nrest\nsay a shard may hold a roll-up that suddenly asks for nothing: bigfleet guards"},
	}
}

// DemoNames lists them.
func DemoNames() (out []string) {
	for _, d := range Demos() {
		out = append(out, d.Name)
	}
	return out
}

// progress is one line of a story that is under way, as JSON.
type progress struct {
	At      float64        `json:"at,omitempty"` // seconds since the story began
	Message string         `json:"say,omitempty"`
	Numbers map[string]any `json:"numbers,omitempty"` // at the end
	Error   string         `json:"error,omitempty"`
}

// DemoHeader must be in a request: a page in a browser cannot send it here without asking.
const DemoHeader = "Bigfleet-Demo"

// stage serves stories, one at a time.
type stage struct {
	w    *World
	busy sync.Mutex
}

// ServeHTTP plays a story and tells it line by line.
func (s *stage) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var ask struct {
		Story string
		Args  []string
	}
	if r.Method != http.MethodPost || r.Header.Get(DemoHeader) == "" {
		http.Error(out, "POST a demo, with the header "+DemoHeader, http.StatusBadRequest)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(out, r.Body, 1<<16)).Decode(&ask); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	script, about, watch, err := s.w.demo(ask.Story, ask.Args)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.busy.TryLock() {
		http.Error(out, "another demo is running: wait until it ends", http.StatusConflict)
		return
	}
	defer s.busy.Unlock()
	begun := time.Now()
	emit := func(t progress) {
		t.At = time.Since(begun).Seconds()
		raw, err := json.Marshal(t)
		if err == nil {
			_, _ = fmt.Fprintf(out, "%s\n", raw) // a reader that went ends the request's context
			_ = http.NewResponseController(out).Flush()
		}
	}
	emit(progress{Message: "Watch in another terminal: " + watch})
	before := s.w.look(r.Context())
	for _, step := range script.Steps {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(step.After):
		}
		emit(progress{Message: step.Message})
		s.w.view.log("demo %s: %s", ask.Story, step.Message)
		if err := step.Do(r.Context(), s.w); err != nil {
			emit(progress{Error: err.Error()})
			return
		}
	}
	emit(progress{Numbers: s.w.numbers(r.Context(), begun, before, about)})
}

// demo is a story for the clusters of this world, the clusters that it is about, and what to watch.
func (w *World) demo(name string, args []string) (s Scenario, about []string, watch string, err error) {
	i := slices.IndexFunc(Demos(), func(d Demo) bool { return d.Name == name })
	if i < 0 {
		return Scenario{}, nil, "", fmt.Errorf("there is no demo %q: use one of %s", name, strings.Join(DemoNames(), ", "))
	}
	d := Demos()[i]
	if len(w.cfg.Targets) > 0 || len(w.Clusters) == 0 {
		return Scenario{}, nil, "", errors.New("demos create workloads and need simulated clusters")
	}
	if w.Cloud == nil && (d.Name == "stockout" || d.Name == "spot-storm") {
		return Scenario{}, nil, "", fmt.Errorf("demo %s changes the simulated cloud, and `bigfleet up` uses another provider", name)
	}
	if len(args) > len(d.Args) {
		return Scenario{}, nil, "", fmt.Errorf("demo %s takes %d clusters", name, len(d.Args))
	}
	names := map[string]string{"A": w.Clusters[0].ID(), "B": w.Clusters[min(1, len(w.Clusters)-1)].ID()}
	for i, a := range args {
		if !slices.ContainsFunc(w.Clusters, func(c *Cluster) bool { return c.ID() == a }) {
			return Scenario{}, nil, "", fmt.Errorf("there is no cluster %q here", a)
		}
		names[d.Args[i]] = a
	}
	if names["A"] == names["B"] && strings.Contains(d.Script, " B ") {
		return Scenario{}, nil, "", fmt.Errorf("demo %s needs two clusters", name)
	}
	words := strings.NewReplacer(" A ", " "+names["A"]+" ", " B ", " "+names["B"]+" ", "operator A", "operator "+names["A"], "to B", "to "+names["B"], "say B", "say "+names["B"])
	text := words.Replace(d.Script)
	for _, c := range w.Clusters {
		if slices.Contains(strings.Fields(text), c.ID()) {
			about = append(about, c.ID())
		}
	}
	s, err = ParseScript(text)
	return s, about, strings.ReplaceAll(d.Watch, "SHARD", w.shards[0].listen), err
}

// numbers are what was done since then in the clusters that the story is about, or in all, and apart from that elsewhere: other things
// go on meanwhile. What is so after the story stands beside what was so before.
func (w *World) numbers(ctx context.Context, since time.Time, before frame, about []string) map[string]any {
	out := map[string]any{"seconds": float64(time.Since(since).Milliseconds()) / 1000}
	actions, elsewhere := map[string]int{}, map[string]int{}
	for _, s := range w.shards {
		for token := ""; ; {
			got, err := s.read.GetMachineHistory(ctx, connect.NewRequest(&pb.GetMachineHistoryRequest{SinceUnixNanos: since.UnixNano(), PageSize: 1000, PageToken: token}))
			if err != nil {
				break
			}
			for _, r := range got.Msg.GetRecords() {
				if r.GetType() != pb.RecordType_RECORD_TYPE_STARTED {
					continue
				}
				count := actions
				if len(about) > 0 && r.GetClusterId() != "" && !slices.Contains(about, r.GetClusterId()) {
					count = elsewhere
				}
				count[output.Enum("ACTION_KIND_", r.GetKind().String())]++
			}
			if token = got.Msg.GetNextPageToken(); token == "" {
				break
			}
		}
	}
	out["actions"], out["elsewhere"] = actions, elsewhere
	now := w.look(ctx)
	out["podsRunBefore"], _ = before.pods()
	out["podsRun"], out["podsWait"] = now.pods()
	out["needsUnmetBefore"], out["needsUnmet"] = before.Status.GetUnsatisfiedNeeds(), now.Status.GetUnsatisfiedNeeds()
	out["spendBefore"], out["spendAfter"] = before.Status.GetCostPerHour(), now.Status.GetCostPerHour()
	return out
}

// pods counts those of all clusters.
func (f frame) pods() (run, wait int) {
	for _, c := range f.Clusters {
		run, wait = run+c.Running, wait+c.Waits
	}
	return run, wait
}

// addStage serves stories for `bigfleet demo`.
func (w *World) addStage() error {
	addr := cmp.Or(w.cfg.DemoListen, DefaultDemoListen)
	l, err := net.Listen("tcp", addr)
	if err != nil && w.cfg.DemoListen == "" {
		l, err = net.Listen("tcp", "127.0.0.1:0") // stories are an extra: nothing waits for this port
	}
	if err != nil {
		return taken(err, "--demo-listen")
	}
	w.stage = l
	return nil
}

// runStage serves until ctx ends.
func (w *World) runStage(ctx context.Context) error {
	server := &http.Server{Handler: &stage{w: w}, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(w.stage); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) { return maps.Keys(m) }

package hosts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/providers/hosts/agent"

	"connectrpc.com/connect"
)

// warden runs the programs around one pretended host, hears each point that one of them passes, and kills at one of them. It is the
// host's power control, too.
type warden struct {
	*testing.T
	dir, url    string
	rpc, agents string // host:port
	machine     *agent.Pretended
	client      bigfleetv1alpha1connect.CapacityProviderClient
	mu          sync.Mutex
	programs    map[string]*exec.Cmd
	points      []string            // that were passed, each once, in their order
	runs        map[string][]string // which services of the host ran at the first pass of each
	want        pb.MachineState
	epoch       int64
	power       string
	victim, at  string // killed at the first pass of the point
	killed      bool   // at is reached
	ended       bool
}

// victims are the programs that are killed.
var victims = []string{"agent", "provider", "shard", string(agent.Kubelet), string(agent.Runtime)}

func newWarden(t *testing.T) *warden {
	t.Helper()
	w := &warden{T: t, dir: t.TempDir(), programs: map[string]*exec.Cmd{}, runs: map[string][]string{}, want: pb.MachineState_MACHINE_STATE_IDLE, power: "On"}
	w.machine = agent.NewPretended(w.dir)
	s := httptest.NewServer(w)
	w.url = s.URL
	w.rpc, w.agents = loopback.Addr(t), loopback.Addr(t)
	for name, text := range map[string]string{
		"inventory.yaml": fmt.Sprintf("defaults: {type: rack.64x, zone: z1, resources: {cpu: \"64\"}}\nhosts:\n- {name: one, power: {redfish: %q}}\n", w.url+"/redfish/one"),
		"config.yaml":    fmt.Sprintf("inventory: %s\nrecovery: resume\nreconcile_interval: 100ms\nretention: {failed: 100ms, lost: 1h, stockout: 1h}\n", filepath.Join(w.dir, "inventory.yaml")),
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.client = bigfleetv1alpha1connect.NewCapacityProviderClient(oneCall, "http://"+w.rpc)
	t.Cleanup(func() {
		w.mu.Lock()
		w.ended = true
		for name := range w.programs {
			w.end(name)
		}
		w.mu.Unlock()
		s.Close()
		if t.Failed() {
			for name := range roles {
				text, _ := os.ReadFile(filepath.Join(w.dir, name+".log"))
				t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range roles {
		w.begin(name)
	}
	return w
}

// begin starts a program; the lock is held.
func (w *warden) begin(name string) {
	self, err := os.Executable()
	if err != nil {
		w.Error(err)
		return
	}
	log, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.Error(err)
		return
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(self)
	if name == "provider" {
		cmd.Args = append(cmd.Args, "--addr", w.rpc, "--data-dir", w.dir, "--metrics-addr", "", "--config", filepath.Join(w.dir, "config.yaml"))
	}
	cmd.Env = append(os.Environ(), asRole+"="+name, atWarden+"="+w.url, atProvider+"=http://"+w.rpc, atAgentPort+"="+w.agents, inDir+"="+w.dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Error(err)
		return
	}
	w.programs[name] = cmd
}

// end kills a program; the lock is held.
func (w *warden) end(name string) {
	if cmd := w.programs[name]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(w.programs, name)
	}
}

// pass is called at each point, and kills there.
func (w *warden) pass(point string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	if !slices.Contains(w.points, point) {
		w.points = append(w.points, point)
		w.runs[point] = w.machine.Facts().Processes
	}
	if w.at != point || w.killed {
		return
	}
	w.killed = true
	if roles[w.victim] == nil {
		w.machine.Kill(agent.Service(w.victim))
		return
	}
	w.end(w.victim)
	w.begin(w.victim)
}

func (w *warden) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	answer := func(v any) { _ = json.NewEncoder(out).Encode(v) }
	switch {
	case r.URL.Path == "/point":
		w.pass(r.URL.Query().Get("at"))
	case strings.HasPrefix(r.URL.Path, "/redfish/"):
		what := "state"
		if r.Method == http.MethodPost {
			what = "on"
		}
		w.pass("power: before " + what)
		w.mu.Lock()
		if r.Method == http.MethodPost {
			w.power = "On"
		}
		power := w.power
		w.mu.Unlock()
		w.pass("power: after " + what)
		answer(map[string]string{"PowerState": power})
	case r.URL.Path == "/want":
		w.mu.Lock()
		defer w.mu.Unlock()
		answer(w.want)
	case r.URL.Path == "/epoch":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.epoch++
		answer(w.epoch)
	}
}

// reach waits until the machine is in a state and stays there for two looks of the provider.
func (w *warden) reach(state pb.MachineState) {
	w.Helper()
	w.mu.Lock()
	w.want = state
	w.mu.Unlock()
	var last any
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		list, err := w.client.List(w.Context(), connect.NewRequest(&pb.ListFilter{}))
		if last = err; err == nil {
			last = list.Msg.GetMachines()
		}
		if err == nil && len(list.Msg.GetMachines()) == 1 && usable(list.Msg.GetMachines()).GetState() == state {
			return
		}
		if time.Now().After(limit) {
			w.Fatalf("the machine is not %s after a minute, but %v", state, last)
		}
	}
}

// life switches the host on, makes it a node, and resets it. A victim dies at a point.
func (w *warden) life(victim, point string) {
	w.Helper()
	before := w.machine.Facts()
	w.mu.Lock()
	w.victim, w.at, w.killed, w.power = victim, point, false, "Off"
	w.mu.Unlock()
	w.reach(pb.MachineState_MACHINE_STATE_CONFIGURED)
	f := w.machine.Facts()
	// Only the end of the provider cuts a Configure off: its boot data is a secret that no store has (PROV-12.6). The host is reset then and
	// configured again.
	if again := f.Resets - before.Resets; f.Joins-before.Joins != 1+again || victim != "provider" && again > 0 || f.Mixed > 0 || len(f.Keys) != 1 || len(f.Files) == 0 {
		w.Errorf("configured: %+v, before %+v", f, before)
	}
	for limit := time.Now().Add(time.Minute); len(f.Processes) < 2; f = w.machine.Facts() { // what was killed is started again
		if time.Now().After(limit) {
			w.Fatalf("configured, and only %v run", f.Processes)
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.reach(pb.MachineState_MACHINE_STATE_IDLE)
	joined := f.Joins
	f = w.machine.Facts()
	if len(f.Files)+len(f.Keys)+len(f.Processes) > 0 || f.Remembered || f.Joins != joined || f.Resets-before.Resets != joined-before.Joins {
		w.Errorf("idle again: %+v, before %+v", f, before)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if point != "" && !w.killed {
		w.Errorf("the point was not reached")
	}
}

// PROV-32.5, 32.6, 32.10, 17.4: agent, provider, shard, kubelet and runtime are killed with SIGKILL at each point of a host's life: power,
// configure, join, health, drain, reset. The host is configured once, reset whole, and nothing of it is left.
func TestKillMatrix(t *testing.T) {
	for _, victim := range victims {
		t.Run(victim, func(t *testing.T) {
			t.Parallel() // the programs wait more than they work
			w := newWarden(t)
			w.reach(pb.MachineState_MACHINE_STATE_IDLE)
			w.life("", "")
			w.mu.Lock()
			points := slices.Clone(w.points)
			w.mu.Unlock()
			for _, program := range []string{"power", "provider", "shard", "agent: configure", "agent: reset"} {
				if !slices.ContainsFunc(points, func(p string) bool { return strings.HasPrefix(p, program) }) {
					t.Fatalf("no point of %s among %v", program, points)
				}
			}
			if len(points) < 40 {
				t.Fatalf("only %d points: %v", len(points), points)
			}
			kills := 0
			for _, point := range points {
				if roles[victim] == nil && !slices.Contains(w.runs[point], victim) {
					continue // a service of the host that does not run there
				}
				kills++
				if !t.Run(strings.ReplaceAll(point, " ", "-"), func(t *testing.T) {
					w.T = t
					w.life(victim, point)
				}) {
					return
				}
			}
			if kills < 8 {
				t.Errorf("%s is killed at %d of %d points only", victim, kills, len(points))
			}
		})
	}
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

const (
	kindConfigure = "configure"
	kindReset     = "reset"

	waitDefault  = 20 * time.Second // of one report; the provider may hold its answer that long
	tendDefault  = 2 * time.Second
	retryMin     = 200 * time.Millisecond
	retryMax     = 10 * time.Second
	warnEvery    = 10 * time.Minute
	problemMax   = 2048
	remainsBytes = 256
)

// Config is what an Agent needs.
type Config struct {
	Name     string // of the host in the inventory; required
	URL      string // of the provider's agent port; required
	Client   connect.HTTPClient
	StateDir string // of the journal; required
	Host     Host   // required
	Version  string
	Log      *slog.Logger  // required
	Wait     time.Duration // 0 means 20 s
	Tend     time.Duration // how soon a kubelet or a runtime that ended is started again; 0 means 2 s
}

// running is a task that runs.
type running struct {
	kind string
	stop context.CancelFunc
	done chan struct{}
}

// Agent carries out tasks on one host. Make it with New.
type Agent struct {
	config Config
	host   Host
	log    *slog.Logger
	client bigfleetv1alpha1connect.HostAgentClient
	book   journal
	life   context.Context // of Run

	mu      sync.Mutex
	now     State
	needs   bool          // the task waits for its boot data, which only the provider has
	changed chan struct{} // closed when now changes
	running *running      // the task that runs; nil: none
	tending *running      // the look after kubelet and runtime that runs; nil: none
	work    sync.WaitGroup
}

// New reads the journal. It changes nothing.
func New(c Config) (*Agent, error) {
	if c.Name == "" || c.URL == "" || c.StateDir == "" || c.Host == nil || c.Log == nil {
		return nil, errors.New("agent: Name, URL, StateDir, Host and Log are required")
	}
	if c.Client == nil {
		c.Client = http.DefaultClient
	}
	if c.Wait == 0 {
		c.Wait = waitDefault
	}
	if c.Tend == 0 {
		c.Tend = tendDefault
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, err
	}
	a := &Agent{
		config: c, host: c.Host, log: c.Log.With("host", c.Name), book: journal{filepath.Join(c.StateDir, "journal.json")},
		client: bigfleetv1alpha1connect.NewHostAgentClient(c.Client, c.URL), changed: make(chan struct{}),
	}
	s, err := a.book.load()
	a.now = s
	return a, err
}

// Run serves until ctx ends. What runs on the host continues.
func (a *Agent) Run(ctx context.Context) error {
	defer a.work.Wait()
	a.life = ctx
	if err := a.begin(ctx); err != nil {
		return err
	}
	a.work.Go(func() { a.tend(ctx) })
	var said time.Time // of the last warning: a provider may be away for days
	for pause := retryMin; ctx.Err() == nil; {
		err := a.report(ctx)
		if err == nil {
			if !said.IsZero() {
				a.log.Info("the provider answers again")
			}
			pause, said = retryMin, time.Time{}
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(said) > warnEvery {
			a.log.Warn("the provider does not answer; workloads on this host keep running", "url", a.config.URL, "err", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMax)
	}
	return nil
}

// begin takes up what the journal says. A host without a journal is looked at first.
func (a *Agent) begin(ctx context.Context) error {
	s := a.state()
	switch s.Phase {
	case pb.HostPhase_HOST_PHASE_UNSPECIFIED:
		s = State{Phase: pb.HostPhase_HOST_PHASE_CLEAN}
		if err := a.mustBeClean(ctx); err != nil {
			s = State{Phase: pb.HostPhase_HOST_PHASE_QUARANTINED, Problem: "the first check of the host: " + err.Error() + "; the command reset removes them"}
			if left, ok := errors.AsType[*leftError](err); ok {
				s.Remains = left.left[:min(len(left.left), remainsShown)]
			}
		}
		if !a.save(s) {
			return errors.New("the journal cannot be written")
		}
	case pb.HostPhase_HOST_PHASE_CONFIGURING:
		if s.Step == "" || s.Step == "look" || s.Step == "remember" || s.Step == stepFiles {
			a.needs = true // the boot data died with the process
			return nil
		}
		a.launch(&task{flags: s.Kubelet})
	case pb.HostPhase_HOST_PHASE_RESETTING:
		a.launch(&task{grace: time.Duration(s.Grace) * time.Second})
	}
	return nil
}

// report tells the provider what is here and takes what it answers. It ends early when something changes here.
func (a *Agent) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.config.Wait+10*time.Second)
	defer cancel()
	request, changed := a.look()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	answer, err := a.client.ReportHost(ctx, connect.NewRequest(request))
	if err != nil {
		select {
		case <-changed:
			return nil // cut short by news
		default:
			return err
		}
	}
	switch t := answer.Msg.GetTask().(type) {
	case *pb.ReportHostResponse_Configure:
		a.configure(t.Configure)
	case *pb.ReportHostResponse_Reset_:
		a.reset(t.Reset_)
	}
	return nil
}

// look is the present report, and a channel that closes when it is out of date.
func (a *Agent) look() (*pb.ReportHostRequest, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.now
	r := &pb.ReportHostRequest{
		Host: a.config.Name, AgentVersion: a.config.Version, BootId: bootID(), Phase: s.Phase, OperationId: s.Operation,
		MachineId: s.Machine, ClusterId: s.Cluster, Step: s.Step, Problem: clip(s.Problem, problemMax), WaitMillis: a.config.Wait.Milliseconds(),
	}
	for _, left := range s.Remains {
		r.Remains = append(r.Remains, clip(left, remainsBytes))
	}
	if a.needs {
		r.OperationId = "" // asks for the task again
	}
	r.KubeletRuns, r.RuntimeRuns = a.host.Runs()
	return r, a.changed
}

func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// configure takes a task, unless it is the last one already.
func (a *Agent) configure(c *pb.ConfigureHost) {
	a.mu.Lock()
	s, needs, now := a.now, a.needs, a.running
	a.mu.Unlock()
	if now != nil || s.Operation == c.GetOperationId() && !needs {
		return
	}
	again := needs && s.Operation == c.GetOperationId()
	if !again && s.Phase != pb.HostPhase_HOST_PHASE_CLEAN {
		a.refuse(s, c, fmt.Errorf("the host is %s for cluster %q; it must be reset first", phaseName(s.Phase), s.Cluster))
		return
	}
	boot, err := ParseBootData(c.GetBootData())
	if err != nil {
		a.refuse(s, c, err)
		return
	}
	next := State{
		Phase: pb.HostPhase_HOST_PHASE_CONFIGURING, Operation: c.GetOperationId(), Kind: kindConfigure, Machine: c.GetMachineId(),
		Cluster: c.GetClusterId(), Kubelet: boot.Kubelet,
	}
	if again {
		next.Step = s.Step
	}
	a.mu.Lock()
	a.needs = false
	a.mu.Unlock()
	if a.save(next) {
		a.log.Info("task taken", "task", kindConfigure, "operation", next.Operation, "cluster", next.Cluster, "machine", next.Machine)
		a.launch(&task{boot: &boot, flags: boot.Kubelet})
	}
}

// refuse answers a task that cannot be begun. A clean host stays clean: the problem belongs to the operation.
func (a *Agent) refuse(s State, c *pb.ConfigureHost, why error) {
	a.log.Error("a task is refused", "operation", c.GetOperationId(), "cluster", c.GetClusterId(), "err", why)
	s.Operation, s.Problem = c.GetOperationId(), "configure is refused: "+why.Error()
	a.mu.Lock()
	a.needs = false
	a.mu.Unlock()
	a.save(s)
}

// reset takes a task in any phase. It ends a configure that still runs.
func (a *Agent) reset(r *pb.ResetHost) {
	a.mu.Lock()
	s, now := a.now, a.running
	a.mu.Unlock()
	if s.Operation == r.GetOperationId() || now != nil && now.kind == kindReset {
		return // a running reset ends within its limits, and the provider asks again
	}
	if now != nil {
		now.stop()
		<-now.done
		s = a.state()
	}
	s.Phase, s.Operation, s.Kind, s.Step, s.Grace = pb.HostPhase_HOST_PHASE_RESETTING, r.GetOperationId(), kindReset, "", r.GetGraceSeconds()
	s.Problem, s.Remains = "", nil
	a.mu.Lock()
	a.needs = false
	a.mu.Unlock()
	if a.save(s) {
		a.log.Info("task taken", "task", kindReset, "operation", s.Operation, "cluster", s.Cluster, "machine", s.Machine)
		a.endTending()
		a.launch(&task{grace: time.Duration(s.Grace) * time.Second})
	}
}

// ResetNow resets the host on behalf of the person at its console.
func (a *Agent) ResetNow(ctx context.Context, grace time.Duration) error {
	s := a.state()
	s.Phase, s.Operation, s.Kind, s.Step, s.Grace = pb.HostPhase_HOST_PHASE_RESETTING, "console", kindReset, "", int64(grace/time.Second)
	if !a.save(s) {
		return errors.New("the journal cannot be written")
	}
	a.perform(ctx, &task{grace: grace})
	if s = a.state(); s.Phase != pb.HostPhase_HOST_PHASE_CLEAN {
		return fmt.Errorf("%s: %s", s.Problem, strings.Join(s.Remains, ", "))
	}
	return nil
}

func (a *Agent) launch(t *task) {
	ctx, stop := context.WithCancel(a.life)
	now := &running{kind: a.state().Kind, stop: stop, done: make(chan struct{})}
	a.mu.Lock()
	a.running = now
	a.mu.Unlock()
	a.work.Go(func() {
		defer close(now.done)
		defer stop()
		a.perform(ctx, t)
		a.mu.Lock()
		a.running = nil
		a.mu.Unlock()
	})
}

func (a *Agent) state() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

// save makes a state durable and then visible.
func (a *Agent) save(s State) bool {
	if err := a.book.save(s); err != nil {
		a.log.Error("the journal cannot be written; the agent does nothing more", "err", err)
		return false
	}
	a.mu.Lock()
	a.now = s
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	return true
}

func phaseName(p pb.HostPhase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "HOST_PHASE_"))
}

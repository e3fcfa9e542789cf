package drain

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/status"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// Config is what a Drainer needs.
type Config struct {
	Client   client.Client     // required
	Machines *machine.Registry // required
	Pods     *pods.Store       // required
	// Show puts the state of a drain on the machine's UpcomingNode; the channel is closed when it is there.
	Show        func(machine string, s upcoming.DrainState, why string) <-chan struct{} // required
	Report      func(*pb.DrainReport)                                                   // required
	OrphanAfter time.Duration                                                           // a Node is deleted this long after its machine is gone; 0 means 2 min
	KeepNodes   bool                                                                    // never delete a Node
	Stopped     func() bool                                                             // required: evictions are switched off (OP-9.3)
	Record      func(events.Event)                                                      // required
	Instruments *instruments.Instruments                                                // required
	Log         *slog.Logger                                                            // required
}

// Drainer drains nodes.
type Drainer struct {
	Config
	cordons   chan struct{} // parallel cordons
	evictions chan struct{} // parallel evictions of the cluster

	mu           sync.Mutex
	base         context.Context // of Run; nil before
	tasks        sync.WaitGroup
	drains       map[string]*drain       // by node name, also those that ended while their node exists
	instructions map[string]*instruction // by id
	order        []string                // of instructions, the oldest first
	opened       time.Time               // of the session
	resynced     time.Time               // of its replay; zero: not yet
}

// instruction is one that was received.
type instruction struct {
	nodes map[string]string // entry -> node it was resolved to; absent: it did not start
}

// New checks the configuration.
func New(c Config) (*Drainer, error) {
	if c.Client == nil || c.Machines == nil || c.Pods == nil || c.Show == nil || c.Report == nil || c.Stopped == nil || c.Record == nil ||
		c.Instruments == nil || c.Log == nil {
		return nil, errors.New("drain: Client, Machines, Pods, Show, Report, Stopped, Note, Instruments and Log are required")
	}
	c.OrphanAfter = cmp.Or(c.OrphanAfter, orphanAfterDefault)
	return &Drainer{
		Config: c, cordons: make(chan struct{}, cordonParallel), evictions: make(chan struct{}, evictPerCluster),
		drains: map[string]*drain{}, instructions: map[string]*instruction{},
	}, nil
}

// Run resumes what an earlier process left, and keeps drains going until ctx ends. Drains that are not done then are
// left to the successor (OP-3.4).
func (d *Drainer) Run(ctx context.Context) error {
	d.mu.Lock()
	d.base = ctx
	for _, t := range d.drains { // ordered before Run
		d.tasks.Go(func() { t.run(ctx) })
	}
	for _, n := range d.Machines.Nodes() {
		if s, ok := stateOf(n); ok && d.drains[n.Name] == nil {
			d.start(n, s, true)
		}
	}
	d.mu.Unlock()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			d.tasks.Wait()
			return nil
		case <-tick.C:
			d.sweep(time.Now())
		}
	}
}

// Running says whether a machine's node is being drained within its deadline.
func (d *Drainer) Running(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.drains {
		if t.state.Machine == id && !t.ended {
			return true
		}
	}
	return false
}

// Counts are the drains that run, and those of them that a budget blocks.
func (d *Drainer) Counts() (running, blocked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.drains {
		if t.ended {
			continue
		}
		running++
		if t.blocked > 0 {
			blocked++
		}
	}
	return running, blocked
}

// List describes the drains, by node.
func (d *Drainer) List() (out []status.Drain) {
	d.mu.Lock()
	held := map[string]*drain{} // by node: what budgets hold up
	for name, t := range d.drains {
		text := cmp.Or(t.outcome, "running")
		if !t.ended && t.blocked > 0 {
			text, held[name] = "blocked", t
		}
		out = append(out, status.Drain{Node: name, Machine: t.state.Machine, Instruction: t.state.Instruction, Deadline: *status.Second(t.state.deadline()), State: text})
	}
	d.mu.Unlock()
	for i := range out {
		if t := held[out[i].Node]; t != nil {
			out[i].Budgets = t.budgets()
		}
	}
	slices.SortFunc(out, func(a, b status.Drain) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// Wake looks at a node again: its Pods or the Node itself changed.
func (d *Drainer) Wake(node string) {
	d.mu.Lock()
	t := d.drains[node]
	d.mu.Unlock()
	if t != nil {
		t.signal()
	}
}

// sweep counts, and ends what is over: drains whose node is gone, and drains that were abandoned (OP-8.15).
func (d *Drainer) sweep(now time.Time) {
	running, blocked := d.Counts()
	d.Instruments.Drains.WithLabelValues("running").Set(float64(running))
	d.Instruments.Drains.WithLabelValues("blocked").Set(float64(blocked))
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, t := range d.drains {
		if !t.ended {
			continue
		}
		n := t.present()
		if n == nil {
			delete(d.drains, name)
			continue
		}
		if d.orphaned(t, n, now) {
			t.deleting = true
			d.tasks.Go(func() { d.deleteNode(d.base, t) })
		}
		if t.outcome != outcomeStopped && !t.releasing && d.abandoned(t, now) {
			t.releasing = true
			d.tasks.Go(func() { d.giveBack(d.base, t, reasonAbandoned, "the shard keeps the machine") })
		}
	}
}

// abandoned says that the deadline of a drain has passed and the shard calls the machine Configured without asking for it
// again: for a while, or through a whole replay (OP-8.15). Without this a node would stay cordoned forever.
func (d *Drainer) abandoned(t *drain, now time.Time) bool {
	m, _ := d.Machines.Machine(t.state.Machine)
	deadline := t.state.deadline()
	if m.Configured.IsZero() || now.Before(deadline) {
		return false
	}
	since := slices.MaxFunc([]time.Time{deadline, t.asked, m.Configured}, time.Time.Compare)
	replayed := !d.resynced.IsZero() && d.opened.After(t.asked) && d.resynced.After(deadline) && now.Sub(d.resynced) >= settleAfterResync
	return now.Sub(since) >= abandonedAfter || replayed
}

// Opened says that a session opened.
func (d *Drainer) Opened() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened, d.resynced = time.Now(), time.Time{}
}

// Resynced says that the shard has replayed the state of every machine.
func (d *Drainer) Resynced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resynced = time.Now()
}

// remember notes an instruction.
func (d *Drainer) remember(id string) *instruction {
	if in := d.instructions[id]; in != nil {
		return in
	}
	in := &instruction{nodes: map[string]string{}}
	d.instructions[id] = in
	d.order = append(d.order, id)
	if len(d.order) > instructionsMax {
		delete(d.instructions, d.order[0])
		d.order = d.order[1:]
	}
	return in
}

// start begins the drain of a node. The caller holds the lock.
func (d *Drainer) start(n *corev1.Node, s state, resumed bool) *drain {
	t := newDrain(d, n, s, resumed)
	d.drains[n.Name] = t
	if d.base != nil {
		d.tasks.Go(func() { t.run(d.base) })
	}
	return t
}

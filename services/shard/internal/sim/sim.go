package sim

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// epochOfRuns is the wall clock at the start of every run, in Unix nanoseconds.
const epochOfRuns = 1_800_000_000 * second

// world is one run.
type world struct {
	*setup
	now   int64
	todo  agenda
	steps int64
	calm  bool // the tail: no fault any more

	rollDice [faults]*random // one per kind, so that switching one off leaves the others alone
	net      *random
	beside   *random

	providers []*provider
	clusters  []*cluster
	shards    []*shard
	coord     *coordinator // nil: none is configured
	wallShift int64
	asks      int64

	tally  *Tally
	trace  digest
	log    *Timeline
	fail   *Failure
	policy *engine.Policy
}

// Failure is a broken rule.
type Failure struct {
	Rule    string // short name, equal for equal causes
	Clause  string
	Text    string
	Step    int64
	At      int64
	Machine string
	Cluster string
}

func (f *Failure) String() string {
	return fmt.Sprintf("%s (%s) at step %d, %s: %s", f.Rule, f.Clause, f.Step, clock(f.At), f.Text)
}

// Result is what a run came to.
type Result struct {
	Options  Options
	Failure  *Failure // nil: all rules held
	Steps    int64
	Virtual  int64
	Digest   uint64 // over all effects, in order
	Machines int
	Clusters int
	On       FaultSet // kinds that were on
	Tally    *Tally
	Replayed int // events replayed with equal effects
}

// Run is one run from start to end, or to the first broken rule. The error is about the options.
func Run(o Options) (Result, error) {
	s, err := draw(o)
	if err != nil {
		return Result{}, err
	}
	w := newWorld(s)
	w.run()
	r := Result{Options: o, Failure: w.fail, Steps: w.steps, Virtual: w.now, Digest: w.trace.sum(), Machines: s.nMachine, Clusters: s.nCluster,
		Tally: w.tally, Replayed: w.tally.Replayed}
	for f, rate := range s.rate {
		if rate > 0 {
			r.On = r.On.With(Fault(f))
		}
	}
	return r, nil
}

func newWorld(s *setup) *world {
	w := &world{setup: s, net: newRandom(s.Seed, "network"), beside: newRandom(s.Seed, "beside"), tally: &Tally{}, trace: newDigest(), log: s.Log, policy: engine.DefaultPolicy()}
	w.policy.Workers = 1
	if r := newRandom(s.Seed, "domain looks"); r.chance(.3) { // as few as make Needs wait for later plans (ENG-12.11)
		w.policy.DomainLooks = r.between(1, 8)
	}
	if w.beside.chance(.3) {
		s.config.Beside = core.BesideAlways
	}
	if r := newRandom(s.Seed, "share looks"); r.chance(.3) { // so few that Needs with a hard spread leave shares (ENG-11.5)
		w.policy.ShareLooks = int(r.between(1, 4))
	}
	for f := range w.rollDice {
		w.rollDice[f] = newRandom(s.Seed, "fault/"+Fault(f).String())
	}
	w.buildShards()
	w.buildProviders()
	w.buildClusters()
	w.buildCoordinator()
	for _, s := range w.shards {
		s.startProcess()
	}
	for _, c := range w.clusters {
		c.start()
	}
	w.scheduleFaults()
	return w
}

func (w *world) run() {
	end := w.faulty + w.tail
	w.at(w.faulty, w.beginTail)
	for len(w.todo.list) > 0 && w.fail == nil {
		e := w.todo.take()
		if e.at > end || w.StopAfter > 0 && w.steps >= w.StopAfter {
			break
		}
		w.now = e.at
		e.do()
	}
	if w.fail == nil && (w.StopAfter == 0 || w.steps < w.StopAfter) {
		w.now = end
		for _, s := range w.shards {
			if w.tail > 0 {
				s.check.end()
			}
			w.endProcess(s.proc)
		}
	}
}

// after does something when some time has passed.
func (w *world) after(d int64, do func()) { w.todo.add(w.now+max(d, 0), do) }

// at does something at a time.
func (w *world) at(t int64, do func()) { w.todo.add(max(t, w.now), do) }

// wall is the wall clock of the machine that the process runs on.
func (w *world) wall() int64 { return epochOfRuns + w.now + w.wallShift }

// roll reports whether a kind of fault strikes at this opportunity.
func (w *world) roll(f Fault) bool {
	if w.rate[f] == 0 {
		return false
	}
	if hit := w.rollDice[f].chance(min(w.rate[f], .95)); !hit || w.calm {
		return false
	}
	w.tally.Faults[f]++
	return true
}

// delay is how long a message takes one way.
func (w *world) delay() int64 { return w.net.spread(w.latency/4+1, w.latency*4) }

// broken ends the run.
func (w *world) broken(rule, clause, machine, cluster, text string, args ...any) {
	if w.fail != nil {
		return
	}
	w.fail = &Failure{Rule: rule, Clause: clause, Text: fmt.Sprintf(text, args...), Step: w.steps, At: w.now, Machine: machine, Cluster: cluster}
	w.note(machine, cluster, "BROKEN %s: %s", rule, w.fail.Text)
}

// note writes a line of the timeline, if one is kept.
func (w *world) note(machine, cluster, text string, args ...any) {
	if w.log != nil {
		w.log.add(Line{At: w.now, Step: w.steps, Machine: machine, Cluster: cluster, Text: fmt.Sprintf(text, args...)})
	}
}

// struck notes a fault of a timed kind.
func (w *world) struck(f Fault, machine, cluster, text string, args ...any) {
	w.tally.Faults[f]++
	w.note(machine, cluster, "fault "+f.String()+": "+text, args...)
}

// scheduleFaults draws when the timed kinds strike. Each time is drawn whether or not the kind is on.
func (w *world) scheduleFaults() {
	for f := range faults {
		r := w.rollDice[f]
		if !f.timed() || w.rate[f] == 0 {
			continue
		}
		mean := int64(float64(hour) / w.rate[f])
		for t := r.between(0, 2*mean); t < w.faulty; t += r.between(mean/10+1, 2*mean) {
			w.at(t, func() { w.strike(f) })
		}
	}
}

// beginTail ends all faults. What they left behind stays, and must heal.
func (w *world) beginTail() {
	w.calm = true
	w.note("", "", "tail begins: no fault from here on")
	for _, s := range w.shards {
		s.kill(s.twin, "the tail begins")
	}
	for _, p := range w.providers {
		p.heal()
	}
	for _, c := range w.clusters {
		c.heal()
	}
	if w.coord != nil {
		w.coord.heal()
	}
	for _, s := range w.shards {
		if s.proc == nil {
			s.startProcess()
		}
		s.proc.thaw()
		s.peopleTidyUp()
	}
}

// clusterNamed finds a cluster.
func (w *world) clusterNamed(name string) *cluster {
	i := slices.IndexFunc(w.clusters, func(c *cluster) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return w.clusters[i]
}

func (w *world) providerNamed(name string) *provider {
	i := slices.IndexFunc(w.providers, func(p *provider) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return w.providers[i]
}

// machine finds a machine at whichever provider has it.
func (w *world) machine(id string) *machine {
	for _, p := range w.providers {
		if m := p.byID[id]; m != nil {
			return m
		}
	}
	return nil
}

func clock(ns int64) string {
	return fmt.Sprintf("%d:%02d:%02d.%03d", ns/hour, ns/minute%60, ns/second%60, ns/millisecond%1000)
}

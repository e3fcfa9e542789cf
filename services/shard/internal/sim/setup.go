package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
)

// Durations of virtual time, as in the core.
const (
	millisecond = core.Millisecond
	second      = core.Second
	minute      = core.Minute
	hour        = core.Hour
)

// Options say what to run. Seed and Profile alone fix everything; the rest cuts a run down, which is how failures are
// made small.
type Options struct {
	Seed    uint64
	Profile string   // "" is mixed
	Without FaultSet // kinds switched off

	Clusters, Machines int   // at most so many; 0: as drawn
	Faulty             int64 // length of the part with faults; 0: as drawn
	Tail               int64 // length of the fault-free tail; 0: that of the profile, below 0: none
	StopAfter          int64 // steps; 0: to the end

	Replay bool // record the events of each process and replay them at its end
	Log    *Timeline
	Watch  func(*core.Core, []core.Effect) // called after each step; changes nothing
	Still  bool                            // the wall clock never jumps, whatever the profile says
}

// profile is how a family of runs is drawn.
type profile struct {
	name, text         string
	clusters, machines [2]int
	faulty             [2]int64
	tail               int64
	odds               float64 // that a kind of fault is on at all in a run
	only               []Fault // kinds that may be on; nil: all
	processes          [2]int  // providers
	load               [2]float64
	scale              bool              // sizes of deployments follow the fleet
	plain              bool              // operators know no extension
	often              map[Fault]float64 // rates in place of the base ones
}

var fromProvider = []Fault{NotSent, LostRequest, LateRequest, LostReply, DuplicateRequest, Throttled, Unavailable, ErrorAfter, Refused, WrongAck,
	FenceNoDetail, CoarseMarks, TransitionFails, TransitionReverts, TransitionSlow, ListFails, ListBreaks, ListSlow, ListStale, ListEmpty,
	ListHalved, DeltaLost, RowTwice, RowInvalid, CursorRefused, GetFails, Outage, RestartKeeps, RestartForgets, StockOut, HostLoss,
	SpotInterruption, PriceMove, SlotGone, SlotNew, ProviderCut, DemandMove}

var fromOperators = []Fault{BlobSilence, BlobError, BlobShortTTL, BlobBroken, NodeNeverJoins, NodeSlow, AckLost, AckTwice, AckFailures, RollupRejected,
	FrameSlow, EvictionBlocked, DeafOperator, SlowReader, ClusterCut, DrainCrash, BlobSlow, NodeLost, SessionDrop, OperatorCrash, TwoOperators, RollupWiped, RollupStorm, RollupLate, RollupTwice, OperatorUpgrade, DemandMove}

var fromProcess = []Fault{LostReply, HintsLost, DataDirLost, ProcessCrash, ProcessFreeze, ProcessTwice, CleanStop, WallJump, AdminPause, AdminDryRun,
	AdminRetry, AdminForget, AdminReconcile, AdminAccept, AdminClear, AdminRetire, SessionDrop, DemandAside, DemandMove}

var fromCoordinator = []Fault{Coordinated, CoordinatorAway, CoordinatorSlow, NewLeader, DomainMove, Decommissioned, StaleLeader, InstructionTwice, InstructionUnknown,
	InstructionOld, MachineMove, QuotaShift, TransitionSlow, ProcessCrash, CleanStop, LostReply, DemandMove}

var fromMoves = []Fault{Coordinated, CoordinatorAway, CoordinatorSlow, NewLeader, DomainMove, MachineMove, QuotaShift, InstructionTwice, TransitionSlow,
	ProcessCrash, HintsLost, LostReply, SpotInterruption, HostLoss, DemandMove}

var profiles = []profile{
	{name: "mixed", text: "every kind of fault, each on in about a third of the runs", clusters: [2]int{1, 4}, machines: [2]int{8, 40},
		faulty: [2]int64{10 * minute, 40 * minute}, tail: 45 * minute, odds: 0.35, processes: [2]int{1, 2}, load: [2]float64{0.3, 1.1}},
	{name: "calm", text: "no faults, changing demand", clusters: [2]int{1, 4}, machines: [2]int{8, 40},
		faulty: [2]int64{10 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{DemandMove}, processes: [2]int{1, 2}, load: [2]float64{0.3, 1.1}},
	{name: "provider", text: "bad providers and networks", clusters: [2]int{1, 3}, machines: [2]int{8, 40},
		faulty: [2]int64{20 * minute, hour}, tail: 45 * minute, odds: 0.5, only: fromProvider, processes: [2]int{1, 2}, load: [2]float64{0.3, 1.1}},
	{name: "operator", text: "bad clusters and operators", clusters: [2]int{1, 4}, machines: [2]int{8, 40},
		faulty: [2]int64{20 * minute, hour}, tail: 45 * minute, odds: 0.5, only: fromOperators, processes: [2]int{1, 1}, load: [2]float64{0.3, 1.1}},
	{name: "process", text: "crashes, restarts, twins, clocks and people", clusters: [2]int{1, 4}, machines: [2]int{8, 40},
		faulty: [2]int64{20 * minute, hour}, tail: 45 * minute, odds: 0.6, only: fromProcess, processes: [2]int{1, 1}, load: [2]float64{0.3, 1.1}},
	{name: "twins", text: "two processes with one identity, again and again", clusters: [2]int{1, 3}, machines: [2]int{8, 24},
		faulty: [2]int64{20 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{ProcessTwice, LostReply, FenceNoDetail, SessionDrop, DemandMove},
		processes: [2]int{1, 1}, load: [2]float64{0.4, 0.9}, often: map[Fault]float64{ProcessTwice: 6, DemandMove: 60}},
	{name: "lies", text: "a provider that shows the past, and operators that keep pulls waiting", clusters: [2]int{2, 3}, machines: [2]int{8, 24},
		faulty: [2]int64{20 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{ListStale, ListSlow, BlobSilence, DemandMove},
		processes: [2]int{1, 1}, load: [2]float64{0.6, 1.2}, often: map[Fault]float64{ListStale: .3, BlobSilence: .4, DemandMove: 90}},
	{name: "fleet", text: "a coordinator in trouble, and two shards on one provider", clusters: [2]int{2, 4}, machines: [2]int{12, 40},
		faulty: [2]int64{20 * minute, hour}, tail: 45 * minute, odds: 1, only: fromCoordinator, processes: [2]int{1, 2}, load: [2]float64{0.4, 1},
		often: map[Fault]float64{DomainMove: 40, DemandMove: 60}},
	{name: "moves", text: "machines, domains and slices of quotas that change hands between shards", clusters: [2]int{2, 4}, machines: [2]int{12, 40},
		faulty: [2]int64{20 * minute, hour}, tail: 45 * minute, odds: 1, only: fromMoves, processes: [2]int{1, 2}, load: [2]float64{0.4, 1},
		often: map[Fault]float64{MachineMove: 120, QuotaShift: 6, DomainMove: 20, ProcessCrash: 40, DemandMove: 60}},
	{name: "removed", text: "shards that are removed from the fleet for a while, and a coordinator that answers late", clusters: [2]int{1, 2}, machines: [2]int{8, 16},
		faulty: [2]int64{20 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{Coordinated, CoordinatorAway, CoordinatorSlow, Decommissioned, DemandMove},
		processes: [2]int{1, 1}, load: [2]float64{0.4, 0.9}, often: map[Fault]float64{Decommissioned: 12, CoordinatorSlow: .5, DemandMove: 120}},
	{name: "plain", text: "operators that know no extension and are slow to acknowledge", clusters: [2]int{1, 3}, machines: [2]int{8, 30},
		faulty: [2]int64{20 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{AckLost, EvictionBlocked, FrameSlow, RollupStorm, DemandMove},
		processes: [2]int{1, 1}, load: [2]float64{0.4, 0.9}, plain: true, often: map[Fault]float64{AckLost: .8, RollupStorm: 20, DemandMove: 60}},
	{name: "versions", text: "operators that are up- and downgraded in the middle of drains", clusters: [2]int{2, 4}, machines: [2]int{8, 20},
		faulty: [2]int64{20 * minute, 40 * minute}, tail: 45 * minute, odds: 1, only: []Fault{OperatorUpgrade, AckLost, EvictionBlocked, DemandMove},
		processes: [2]int{1, 1}, load: [2]float64{.9, 1.4}, often: map[Fault]float64{OperatorUpgrade: 300, AckLost: .8, DemandMove: 120}},
	{name: "day", text: "one day of 1,000 machines and 20 clusters", clusters: [2]int{20, 20}, machines: [2]int{1000, 1000},
		faulty: [2]int64{24*hour - 45*minute, 24*hour - 45*minute}, tail: 45 * minute, odds: 0.35, processes: [2]int{1, 1}, load: [2]float64{0.6, 0.8}, scale: true},
}

// Profiles names the families of runs with a line each.
func Profiles() string {
	var b strings.Builder
	for _, p := range profiles {
		fmt.Fprintf(&b, "  %-9s %s\n", p.name, p.text)
	}
	return b.String()
}

func profileNamed(name string) (profile, error) {
	if name == "" {
		name = "mixed"
	}
	i := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if i < 0 {
		return profile{}, fmt.Errorf("no profile is called %q; they are\n%s", name, Profiles())
	}
	return profiles[i], nil
}

// setup is what a seed draws before anything happens.
type setup struct {
	Options
	profile     profile
	nCluster    int
	nMachine    int
	nProv       int
	nShard      int
	coordinated bool
	faulty      int64
	tail        int64
	load        float64
	config      core.Config
	rate        [faults]float64 // per opportunity, or per hour of the timed kinds
	cursors     bool            // providers answer to cursors
	paged       bool            // and carry complete
	sync        bool            // acks wait for the transition
	dwell       int64           // longest usual transition
	latency     int64
	window      int // frames between the shard's writer and an operator that does not read
	outbox      session.OutboxLimits
}

// base are the rates that a run with the kind on draws around: a probability per opportunity, or a number per hour.
var base = [faults]float64{
	NotSent: .1, LostRequest: .05, LateRequest: .05, LostReply: .1, DuplicateRequest: .1, Throttled: .1, Unavailable: .1, ErrorAfter: .1,
	Refused: .05, WrongAck: .05, FenceNoDetail: .5, CoarseMarks: .3,
	TransitionFails: .1, TransitionReverts: .1, TransitionSlow: .05, ListFails: .2, ListBreaks: .1, ListSlow: .2, ListStale: .05,
	ListEmpty: .02, ListHalved: .02, DeltaLost: .05, RowTwice: .01, RowInvalid: .01, CursorRefused: .1, GetFails: .2,
	BlobSilence: .1, BlobError: .15, BlobShortTTL: .3, BlobBroken: .05, NodeNeverJoins: .05, NodeSlow: .2, AckLost: .3, AckTwice: .2, AckFailures: .2,
	RollupRejected: .1, FrameSlow: .1, EvictionBlocked: .2, HintsLost: .5, DataDirLost: .2, DeafOperator: .3,
	Outage: 1, RestartKeeps: 2, RestartForgets: 1, StockOut: 2, HostLoss: 6, SpotInterruption: 10, PriceMove: 20, SlotGone: 3, SlotNew: 3, NodeLost: 5,
	SessionDrop: 10, OperatorCrash: 2, TwoOperators: 1.5, RollupWiped: 3, RollupStorm: 2,
	ProcessCrash: 4, ProcessFreeze: 1, ProcessTwice: 1, CleanStop: 1, WallJump: 4,
	AdminPause: 2, AdminDryRun: 1, AdminRetry: 3, AdminForget: 2, AdminReconcile: 3, AdminAccept: 2, AdminClear: 3, AdminRetire: 2,
	DemandMove: 20,
	SlowReader: 6, ClusterCut: 3, ProviderCut: 2, DrainCrash: 6,
	CoordinatorAway: 3, NewLeader: 3, DomainMove: 12, Decommissioned: 1,
	BlobSlow: .05, Coordinated: 1, CoordinatorSlow: .1, StaleLeader: .1, InstructionTwice: .2, InstructionUnknown: .05, InstructionOld: .1,
	MachineMove: 20, QuotaShift: 4, RollupLate: .1, RollupTwice: .1, OperatorUpgrade: 1, DemandAside: 2,
}

// draw makes the setup of a seed. Everything is drawn whatever the options cut away, so that a cut changes nothing else.
func draw(o Options) (*setup, error) {
	p, err := profileNamed(o.Profile)
	if err != nil {
		return nil, err
	}
	r := newRandom(o.Seed, "setup")
	s := &setup{Options: o, profile: p}
	between := func(b [2]int) int { return int(r.between(int64(b[0]), int64(b[1]))) }
	s.nCluster, s.nMachine, s.nProv = between(p.clusters), between(p.machines), between(p.processes)
	s.faulty = r.between(p.faulty[0], p.faulty[1])
	s.tail = p.tail
	s.load = p.load[0] + r.float()*(p.load[1]-p.load[0])
	s.cursors, s.paged, s.sync = r.chance(.7), r.chance(.5), r.chance(.2)
	s.dwell = r.spread(second, 4*minute)
	s.latency = r.spread(2*millisecond, 300*millisecond)
	s.nShard, s.window, s.outbox = 1, 1<<20, session.OutboxLimits{EssentialFrames: 1024, Bytes: 32 << 20}
	s.drawConfig(r)
	later, moves := newRandom(o.Seed, "setup/later"), newRandom(o.Seed, "setup/moves") // so that kinds that came later leave the older ones alone
	rollups := newRandom(o.Seed, "setup/rollups")
	for f := range faults {
		r := r
		switch {
		case f >= RollupLate:
			r = rollups
		case f >= MachineMove:
			r = moves
		case f > DemandMove:
			r = later
		}
		on, scale := r.chance(p.odds), r.spread(100, 1500)
		allowed := (p.only == nil || slices.Contains(p.only, f)) && !o.Without.Has(f)
		if (on || f == DemandMove) && allowed {
			rate := base[f]
			if r := p.often[f]; r > 0 {
				rate = r
			}
			s.rate[f] = min(rate*float64(scale)/1000, .9+rate) // probabilities stay below 1, most of the time
		}
	}
	if s.rate[DataDirLost] > 0 || s.rate[ProcessTwice] > 0 {
		s.rate[MachineMove] = 0 // a shard that lost a reservation with its disk, or never had it, learns of it with the next view only
	}
	s.drawFleet(later)
	if s.rate[DataDirLost] > 0 || o.Still {
		s.rate[WallJump] = 0 // a new data dir and a clock that went back together can make an old epoch; one of them has to stay to tell old from new
	}
	s.cut()
	return s, nil
}

// drawFleet draws what the kinds of a run need: whether there is a coordinator and a second shard, and how much an
// operator that does not read leaves between itself and the shard.
func (s *setup) drawFleet(r *random) {
	two, window, small := r.chance(.6), int(r.between(1, 16)), r.chance(.5)
	limits := session.OutboxLimits{EssentialFrames: int(r.between(4, 32)), Bytes: int(r.between(64<<10, 256<<10))}
	if s.coordinated = s.rate[Coordinated] > 0; s.coordinated && two && s.nCluster > 1 {
		s.nShard = 2
	}
	if s.rate[SlowReader] > 0 {
		if s.window = window; small {
			s.outbox = limits
		}
	}
}

func (s *setup) drawConfig(r *random) {
	s.config = core.Config{Version: "sim"}
	small := r.chance(.3)
	c := core.Config{ExecuteConcurrency: r.between(1, 16), ExecutePerCluster: r.between(1, 4), ProviderConcurrency: r.between(1, 8)}
	if small {
		s.config.ExecuteConcurrency, s.config.ExecutePerCluster, s.config.ProviderConcurrency = c.ExecuteConcurrency, c.ExecutePerCluster, c.ProviderConcurrency
	}
	if n := r.between(1, 4); r.chance(.1) {
		s.config.MaxActionsPerCycle = n
	}
	if n := r.between(5, 60); r.chance(.1) {
		s.config.ProvisionRate = n
	}
	mode := core.Incremental(r.intn(3))
	if r.chance(.3) && (mode != core.IncrementalOn || s.cursors) {
		s.config.Incremental = mode
	}
	s.config.ReleaseDelay = [...]int64{-1, 10 * second, minute}[s.Seed%3]
	s.config.ReleaseDelayEmpty, s.config.SessionHandoverWait = s.config.ReleaseDelay/2-1, [...]int64{-1, 10 * second}[s.Seed%2]
	s.config.DrainForce = s.Seed%5 == 0
}

// cut applies the options that make a run smaller.
func (s *setup) cut() {
	o := s.Options
	if o.Clusters > 0 {
		s.nCluster = min(s.nCluster, o.Clusters)
	}
	if o.Machines > 0 {
		s.nMachine = min(s.nMachine, o.Machines)
	}
	if o.Faulty > 0 {
		s.faulty = min(s.faulty, o.Faulty)
	}
	switch {
	case o.Tail > 0:
		s.tail = o.Tail
	case o.Tail < 0:
		s.tail = 0
	}
	for i := range s.nProv {
		s.config.Providers = append(s.config.Providers, fmt.Sprintf("p%d", i))
	}
	s.config = s.config.WithDefaults()
}

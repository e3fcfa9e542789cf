package reference

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// State is one plan at work, and what every step asks of it. Each step is a type of its own.
type State struct {
	World       *engine.World
	Policy      *engine.Policy
	Now         int64
	Machines    []*Machine // by id
	Clusters    []*Cluster // by name
	Result      *engine.Result
	needs       []*Need        // of all clusters, in allocation order
	slotsBefore map[string]int // free Speculative machines of each kind of hardware, before the allocations
	displaced   int            // needs that reattribution took a machine from, once for each machine (ENG-14.8)
}

// Machine is one machine and who uses it.
type Machine struct {
	Index inventory.Index
	inventory.Machine
	Seen        inventory.State // the state that counts
	supply      resource.Vector // without the overhead of a cluster
	typ         symbol.ID       // its instance type in Space.Strings; 0: none
	attribution *inventory.Attribution
	Promise     *inventory.Promise
	Marks       []inventory.Withheld
	Foreign     bool // another shard owns it
	since       int64
	ready       inventory.Readiness

	claim     *Need // that claims it now
	kept      bool  // claimed, but credited with nothing (ENG-10.3)
	acquired  bool  // taken from a free pool by this plan
	shares    []*Share
	excluded  bool          // Configured, but not credited (ENG-17.3)
	rank      int           // of what its node holds (ENG-7.3)
	inUse     bool          // its node is known to hold something
	protected bool          // overdue, but credited because of a guard (ENG-17.4)
	preempt   *plannedDrain // chosen by preemption
	goesTo    *Need         // promised by preemption
}

// plannedDrain is how preemption takes a machine.
type plannedDrain struct {
	kind      engine.Kind
	cause     engine.Cause
	preemptor *Need
	gap       int64
	terms     engine.ScoreTerms
	order     int // of the choice
}

// Share is what a need uses on a machine that another need claims.
type Share struct {
	to     *Need
	on     *Machine
	units  int64
	taken  resource.Vector // from what the machine offers
	credit resource.Vector // to the need
}

// Cluster is one cluster: its demand as it came, and as needs.
type Cluster struct {
	*demand.Cluster
	block      int32
	normalised []*Need        // in allocation order
	folded     []*Need        // those that stand for several rows
	left       map[int32]bool // rows whose gangs left a fold
}

// Need is one normalised need, and what it has.
type Need struct {
	demand.Need
	Cluster   *Cluster
	row       int32
	hold      demand.Hold
	members   []int32 // rows of a folded need
	Same      *demand.Requirement
	Spread    *demand.Spread
	Elsewhere resource.Vector // what Pods of it use on machines of other needs, not in Aggregate (ENG-11.18)

	claims      []*Machine
	received    []*Share
	promised    []*Machine // by preemption
	domain      string     // of a gang
	chosen      bool       // the gang has a domain
	satisfiable bool       // the free machines of the domain would suffice
	displaced   bool       // it lost a claim or a share (ENG-12.6)
	lost        bool       // something was taken over from it (ENG-15.4)
	victims     int
	freed       resource.Vector
}

// Plan runs the phases of ENG-2.7 in their order. Allocations follow one another (ENG-12.1, ENG-14.2).
func Plan(in engine.Input) *engine.Result {
	n := &State{World: in.World, Policy: in.Policy.OrDefault(), Now: in.World.Inventory.Now(), slotsBefore: map[string]int{}}
	n.Result = &engine.Result{Now: n.Now, Cycle: in.Cycle}
	n.Load()
	normalising{n}.excludeNotJoined()
	for _, c := range n.Clusters {
		n.credit(c)
		n.needs = append(n.needs, c.normalised...)
	}
	slices.SortFunc(n.needs, compareNeeds)
	for _, m := range n.Machines {
		if n.pooled(m) && m.Seen == inventory.Speculative {
			n.slotsBefore[hardware(&m.Machine)]++
		}
	}
	for _, d := range n.needs {
		if d.hold == demand.NotHeld && n.isShort(d) {
			n.Result.Counters.OpenNeeds++
		}
	}
	postponing{n}.postpone()
	acquiring := acquisition{covering{n}}
	acquiring.allocate()
	(&exchanging{acquisition: acquiring}).exchange()
	acquiring.claimFreed()
	preempting{acquiring}.preemption()
	settling{verdicts{acquiring}}.settle()
	return n.Result
}

// credit makes the needs of a cluster and counts for them what it has, again as long as gangs leave folds (ENG-8.2a).
func (n *State) credit(c *Cluster) {
	c.left = map[int32]bool{}
	for again := true; again; again = (normalising{n}).leave(c) {
		for _, m := range n.Machines {
			if m.claim != nil && m.claim.Cluster == c {
				m.claim, m.kept, m.shares = nil, false, nil
			}
		}
		normalising{n}.normalise(c)
		crediting{n}.credit(c)
	}
}

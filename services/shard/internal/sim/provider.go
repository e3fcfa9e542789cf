package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// machine is the truth about one machine.
type machine struct {
	inventory.Machine
	at      *provider
	meta    []core.KeyVal // what Configure stored
	rev     int64
	since   int64 // of the state
	last    core.RPC
	move    int64           // number of the transition under way; an older one that ends late means nothing
	marks   map[string]mark // fence marks, by shard
	works   bool            // the node can join: its blob was good
	failing int64           // times the provider said or caused Failed; the shard may believe it
	node    *node
	grace   int64
}

// provider is the model of one capacity provider.
type provider struct {
	w      *world
	name   string
	r      *random
	byID   map[string]*machine
	order  []*machine // by id
	rev    int64
	tombs  []tomb
	born   int64 // incarnation: cursors of another one are refused
	down   bool
	cut    int64 // until when nothing gets through to it
	coarse bool
	top    map[string]mark // marks of a provider that keeps one per shard
	dry    map[string]bool
	past   []snapshot
	moves  int64
	slots  int
}

type tomb struct {
	id  string
	rev int64
}

// snapshot is what a List would have shown.
type snapshot struct {
	rows []core.Fact
	rev  int64
}

// hardware is the catalogue of the run.
type hardware struct {
	name     string
	cpu, gib int64
	gpu      int64
	price    int64
}

var catalogue = []hardware{
	{"c4", 4, 16, 0, 200_000}, {"c8", 8, 32, 0, 390_000}, {"c16", 16, 64, 0, 800_000}, {"m8", 8, 96, 0, 600_000}, {"g8", 8, 64, 2, 2_500_000},
}

var zones = []string{"za", "zb", "zc"}

const rackKey = "example.com/rack"

func (w *world) buildProviders() {
	for i := range w.nProv {
		p := &provider{w: w, name: fmt.Sprintf("p%d", i), byID: map[string]*machine{}, dry: map[string]bool{}, top: map[string]mark{}, born: 1}
		p.r = newRandom(w.Seed, p.name)
		p.coarse = w.roll(CoarseMarks)
		w.providers = append(w.providers, p)
	}
	for i := range w.nMachine {
		w.providers[i%w.nProv].addSlot()
	}
}

// addSlot makes one machine: an elastic slot, or a fixed one that is Idle from the start.
func (p *provider) addSlot() *machine {
	h := catalogue[min(p.r.intn(7), len(catalogue)-1)%len(catalogue)]
	p.slots++
	m := &machine{at: p, marks: map[string]mark{}}
	m.ID = fmt.Sprintf("%s-%04d", p.name, p.slots)
	m.Provider, m.State, m.InstanceType, m.Zone = p.name, inventory.Speculative, h.name, pick(p.r, zones)
	m.CapacityType = pick(p.r, []inventory.CapacityType{inventory.OnDemand, inventory.OnDemand, inventory.Spot, inventory.Reserved, inventory.BareMetal})
	m.Price = h.price
	if m.CapacityType == inventory.Spot {
		m.Price, m.Probability = h.price/3, int32(p.r.between(1000, 100_000))
	}
	m.Resources = amounts(h.cpu*1000, h.gib, h.gpu)
	m.Allocatable = amounts(h.cpu*1000-100, h.gib-1, h.gpu)
	m.Labels = []inventory.Label{{Key: rackKey, Value: fmt.Sprintf("%s-r%d", m.Zone, p.r.intn(3))}}
	if fixed := p.r.chance(.5); fixed && !m.CapacityType.Elastic() {
		m.State = inventory.Idle
	}
	m.host()
	m.since = p.w.now
	p.rev++
	m.rev = p.rev
	p.byID[m.ID] = m
	at, _ := slices.BinarySearchFunc(p.order, m.ID, func(m *machine, id string) int { return strings.Compare(m.ID, id) })
	p.order = slices.Insert(p.order, at, m)
	return m
}

func (m *machine) host() {
	if m.State.Hosted() {
		m.HostProvider, m.HostRef = m.Provider, "host-"+m.ID
	} else {
		m.HostProvider, m.HostRef = "", ""
	}
}

// set moves a machine. Whatever moves it also gives it a new revision.
func (m *machine) set(s inventory.State, why string) {
	w := m.at.w
	if m.State != s {
		w.note(m.ID, m.Cluster, "provider: %s %s -> %s (%s)", m.ID, m.State, s, why)
		m.since = w.now
	}
	m.State = s
	switch s {
	case inventory.Speculative, inventory.Creating, inventory.Idle, inventory.Deleting:
		m.detach(why)
		m.Cluster, m.meta = "", nil
	case inventory.Failed:
		m.failing++
		m.detach(why)
	}
	if s != inventory.Failed {
		m.LastError, m.Failure = "", 0
	}
	m.host()
	m.changed()
}

func (m *machine) changed() {
	m.at.rev++
	m.rev = m.at.rev
}

// detach takes the machine's node out of its cluster; Pods on it are lost and made again.
func (m *machine) detach(why string) {
	if m.node != nil {
		m.node.gone(why)
		m.node = nil
	}
}

// fact is what the provider says now.
func (m *machine) fact() core.Fact {
	f := core.Fact{Machine: m.Machine}
	f.Attribution, f.HasAttribution, f.Owner = attributionOf(m.meta)
	return f
}

// attributionOf reads the attribution back, as the gate does.
func attributionOf(meta []core.KeyVal) (s inventory.Attribution, has bool, owner string) {
	priority, interruption, reclamation, fingerprint, group, ownerKey := core.MetadataKeys()
	for _, kv := range meta {
		switch kv.Key {
		case priority:
			v, _ := strconv.ParseInt(kv.Value, 10, 32)
			s.Priority = int32(v)
		case interruption:
			v, _ := strconv.ParseFloat(kv.Value, 64)
			s.Interruption = demand.PenaltyOfDollars(v)
		case reclamation:
			v, _ := strconv.ParseFloat(kv.Value, 64)
			s.Reclamation = demand.PenaltyOfDollars(v)
		case fingerprint:
			s.Fingerprint = kv.Value
		case group:
			s.Group = kv.Value
		case ownerKey:
			owner = kv.Value
		}
	}
	return s, len(meta) > 0, owner
}

// answer is the provider's word on one command.
type answer struct {
	code   core.Code
	detail string
	fact   *core.Fact
	wait   int64 // how long the provider takes to answer
	epoch  int64 // the mark, when the fence refused
	seq    int64
	mark   bool
}

func refusal(code core.Code, detail string) answer { return answer{code: code, detail: detail} }

// command carries out one mutating call, by the rules of the provider contract: fence, repeat, position, effect.
func (p *provider) command(from *shard, c core.Command, epoch, seq int64, works bool) answer {
	w := p.w
	switch {
	case p.down:
		return refusal(core.CodeUnavailable, "the provider is down")
	case w.roll(Throttled):
		return refusal(core.CodeResourceExhausted, "slow down")
	case w.roll(Unavailable):
		return refusal(core.CodeUnavailable, "try again")
	}
	m := p.byID[c.Machine]
	if a, stale := p.fenced(from, m, epoch, seq); stale {
		return a
	}
	if m == nil {
		return refusal(core.CodeNotFound, "no such machine")
	}
	if w.roll(Refused) {
		return refusal(core.CodeInvalidArgument, "not like this")
	}
	if m.last == c.RPC && (m.State == middleOf(c.RPC) || m.State == targetOf(c.RPC)) {
		if c.RPC == core.RPCConfigure && m.Cluster != c.Cluster {
			from.check.conflict(m, c)
			return refusal(core.CodeAlreadyExists, "configured for "+m.Cluster)
		}
		f := m.fact()
		return answer{fact: &f}
	}
	if m.State != startOf(c.RPC) {
		from.check.illegal(m, c)
		return refusal(core.CodeAborted, "the machine is "+m.State.String())
	}
	w.commanded(from, m, c, epoch)
	m.last = c.RPC
	wait := p.begin(m, c, works)
	f := m.fact()
	a := answer{fact: &f, wait: wait}
	if w.roll(ErrorAfter) {
		a.code, a.fact, a.detail = core.CodeInternal, nil, "something broke behind the scenes"
	}
	return a
}

// mark is the newest token that a provider has seen.
type mark struct{ epoch, seq int64 }

// fenced applies the mark of (shard, machine), or that of the shard at a provider that knows no better.
func (p *provider) fenced(from *shard, m *machine, epoch, seq int64) (answer, bool) {
	at, marked := mark{}, false
	switch {
	case p.coarse:
		at, marked = p.top[from.id], true
	case m != nil:
		at, marked = m.marks[from.id]
	}
	if marked && (epoch < at.epoch || epoch == at.epoch && seq <= at.seq) {
		a := refusal(core.CodeFailedPrecondition, "stale token")
		if !p.w.roll(FenceNoDetail) {
			a.epoch, a.seq, a.mark = at.epoch, at.seq, true
		}
		return a, true
	}
	p.top[from.id] = mark{epoch, seq}
	if m != nil {
		m.marks[from.id] = mark{epoch, seq}
	}
	return answer{}, false
}

// begin starts a transition and returns how long the answer waits for it.
func (p *provider) begin(m *machine, c core.Command, works bool) int64 {
	w := p.w
	dwell := p.r.spread(100*millisecond, w.dwell)
	if w.roll(TransitionSlow) {
		dwell = p.r.between(minute, 30*minute)
	}
	switch c.RPC {
	case core.RPCConfigure:
		m.Cluster, m.meta, m.works = c.Cluster, c.Metadata, works
	case core.RPCDrain:
		m.grace = c.GraceSecs * second
		dwell = min(dwell, m.grace+10*second)
	}
	m.set(middleOf(c.RPC), "commanded by "+c.Op)
	p.moves++
	m.move = p.moves
	mine := m.move
	sync := w.sync && dwell < 20*second
	w.after(dwell, func() {
		if m.move == mine && p.byID[m.ID] == m && m.State == middleOf(c.RPC) {
			p.finish(m, c)
		}
	})
	if sync {
		return dwell
	}
	return 0
}

// finish ends a transition: at its target, or not.
func (p *provider) finish(m *machine, c core.Command) {
	w := p.w
	pool := poolOf(m)
	switch {
	case c.RPC == core.RPCCreate && p.dry[pool]:
		m.fail(1, "out of stock")
	case c.RPC == core.RPCConfigure && !m.works && p.r.chance(.5):
		m.fail(4, "the node did not start")
	case w.roll(TransitionFails):
		m.fail(0, "the "+c.RPC.String()+" failed")
	case c.RPC == core.RPCConfigure && w.roll(TransitionReverts):
		m.set(inventory.Idle, "rolled back by the provider")
	case c.RPC == core.RPCConfigure:
		m.set(inventory.Configured, "done")
		w.joinNode(m)
	default:
		m.set(targetOf(c.RPC), "done")
	}
}

// fail makes a machine Failed, and arranges its repair.
func (m *machine) fail(class int32, text string) {
	m.LastError, m.Failure = text, class
	m.set(inventory.Failed, text)
	p := m.at
	p.moves++
	m.move = p.moves
	mine := m.move
	p.w.after(p.r.spread(10*second, 10*minute), func() {
		if m.move == mine && m.State == inventory.Failed && p.byID[m.ID] == m {
			m.last = 0
			if m.CapacityType.Elastic() {
				m.set(inventory.Speculative, "repaired")
			} else {
				m.set(inventory.Idle, "repaired")
			}
		}
	})
}

// remove takes a machine out of the provider's world.
func (p *provider) remove(m *machine) {
	m.detach("the machine is gone")
	delete(p.byID, m.ID)
	p.order = slices.DeleteFunc(p.order, func(x *machine) bool { return x == m })
	p.rev++
	p.tombs = append(p.tombs, tomb{m.ID, p.rev})
	p.w.note(m.ID, m.Cluster, "provider: %s is gone", m.ID)
}

// heal ends what faults left behind that does not end by itself.
func (p *provider) heal() {
	p.down, p.cut = false, 0
	clear(p.dry)
}

func poolOf(m *machine) string {
	return fmt.Sprintf("%s/%s/%d", m.InstanceType, m.Zone, m.CapacityType)
}

func startOf(r core.RPC) inventory.State {
	return [...]inventory.State{0, inventory.Speculative, inventory.Idle, inventory.Configured, inventory.Idle}[r]
}

func middleOf(r core.RPC) inventory.State {
	return [...]inventory.State{0, inventory.Creating, inventory.Configuring, inventory.Draining, inventory.Deleting}[r]
}

func targetOf(r core.RPC) inventory.State {
	return [...]inventory.State{0, inventory.Idle, inventory.Configured, inventory.Idle, inventory.Speculative}[r]
}

package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// coordinator is the model of the coordinator, as the wire contract has it: it answers reports, gives each shard a view
// of its own, hands domains over by release before acquire, and sends an instruction until it is answered. It knows which
// shard may act on a machine, and the rules ask it.
type coordinator struct {
	w       *world
	r       *random
	term    int64
	index   uint64
	seq     int64
	odd     int64 // instructions that no right leader sends
	away    int64 // until when it answers no request
	members []*member
	zones   map[string]*domain // of the partition key; the others are the default owner's

	moves      []*move // that are not over
	exceptions map[string]exception
}

// domain is one value of the partition key.
type domain struct {
	holder *member // who may act on its machines
	next   *member // who will, when the holder has let go; nil: no handover is under way
}

// member is one shard, as the coordinator knows it.
type member struct {
	s       *shard
	epoch   int64
	view    core.View // the newest
	attempt int64     // of sending it
	acked   bool      // the newest is obeyed
	done    []string  // the last accepted ids
	removed bool      // decommissioned
	quota   []core.Quota
}

const (
	zoneKey     = "topology.kubernetes.io/zone"
	groupUUID   = "the-group"
	reportEvery = 10 * second
	reportLimit = 5 * second
)

func (w *world) buildCoordinator() {
	if !w.coordinated {
		return
	}
	co := &coordinator{w: w, r: newRandom(w.Seed, "coordinator"), term: 3, zones: map[string]*domain{}, exceptions: map[string]exception{}}
	w.coord = co
	w.tally.Faults[Coordinated]++
	for _, s := range w.shards {
		co.members = append(co.members, &member{s: s})
	}
	if len(co.members) > 1 {
		for i, z := range zones[:len(zones)-1] { // the last has no owner by name
			co.zones[z] = &domain{holder: co.members[i%len(co.members)]}
		}
	}
	for _, m := range co.members {
		co.newView(m)
	}
}

// newView makes the next view of a shard from what it holds.
func (co *coordinator) newView(m *member) {
	co.index++
	v := core.View{Term: co.term, Index: co.index, Provider: "all", PartitionKeys: []string{zoneKey}, OnlyShard: len(co.members) == 1, DefaultOwner: m == co.members[0]}
	for _, z := range sortedKeys(co.zones) {
		d, ref := co.zones[z], core.DomainRef{Key: zoneKey, Value: z}
		switch {
		case d.holder == m && d.next == nil:
			v.Owned = append(v.Owned, ref)
		case v.DefaultOwner:
			v.ForeignOwned = append(v.ForeignOwned, ref)
		}
	}
	for _, c := range m.s.clusters {
		v.Clusters = append(v.Clusters, c.name)
	}
	v.Quotas = m.quota
	co.viewMoves(m, &v)
	m.view, m.attempt, m.acked = v, 1, false
}

func (co *coordinator) viewID(m *member) string {
	return fmt.Sprintf("view/%s/%d.%d/%d", m.s.id, m.view.Term, m.view.Index, m.attempt)
}

// mayAct reports whether a shard may act on a machine now: it configured it, or it holds its domain (COORD-9.3).
func (co *coordinator) mayAct(s *shard, m *machine) bool {
	if bound(m.State) {
		if _, _, owner := attributionOf(m.meta); owner != "" {
			return owner == s.id
		}
		c := co.w.clusterNamed(m.Cluster)
		return c == nil || c.s == s
	}
	return co.holds(s, m)
}

// holds reports whether a machine is a shard's when it is free.
func (co *coordinator) holds(s *shard, m *machine) bool {
	holder := co.members[0]
	if d := co.zones[m.Zone]; d != nil {
		holder = d.holder
	}
	holder = co.byMove(m.ID, holder)
	return holder != nil && holder.s == s
}

// moveDomain begins the handover of a domain, unless one is under way.
func (co *coordinator) moveDomain(r *random) {
	if len(co.members) == 1 {
		co.newView(co.members[0])
		return
	}
	z := pick(r, zones[:len(zones)-1])
	d := co.zones[z]
	if d.next != nil {
		return
	}
	i := slices.Index(co.members, d.holder)
	d.next = co.members[(i+1)%len(co.members)]
	co.w.struck(DomainMove, "", "", "zone %s goes from %s to %s", z, d.holder.s.id, d.next.s.id)
	co.newView(d.holder)
}

// obeyed finishes the handovers that waited for a shard to let go.
func (co *coordinator) obeyed(m *member) {
	m.acked = true
	for _, z := range sortedKeys(co.zones) {
		if d := co.zones[z]; d.holder == m && d.next != nil {
			co.w.note("", "", "coordinator: zone %s is %s's", z, d.next.s.id)
			d.holder, d.next = d.next, nil
			co.newView(d.holder)
		}
	}
}

// shardReport is what a process tells the coordinator.
type shardReport struct {
	from *process
	view *core.View
	acks []core.AckInstruction
	back []string // machines whose exceptions ended there
}

// answer takes a report and gives the reply.
func (co *coordinator) answer(x shardReport) core.CoordinatorReplied {
	m := co.members[slices.IndexFunc(co.members, func(m *member) bool { return m.s == x.from.s })]
	if x.from.epoch < m.epoch {
		return core.CoordinatorReplied{Failed: true, EpochDisputed: true, Text: "a higher epoch of this shard is known"}
	}
	m.epoch = x.from.epoch
	for _, a := range x.acks {
		co.acked(m, a)
		co.moveAcked(m, a)
	}
	co.returned(m, x.back)
	if m.removed {
		return core.CoordinatorReplied{Failed: true, Decommissioned: true, Text: "removed from the fleet"}
	}
	if m.acked && (x.view == nil || compareViews(x.view, &m.view) < 0) {
		m.acked = false // it has lost its disk, or runs from an older one
		m.attempt++
	}
	r := core.CoordinatorReplied{Term: co.term, UUID: groupUUID, Address: "coordinator"}
	if !m.acked {
		r.Instructions = append(r.Instructions, co.setView(m))
	}
	r.Instructions = append(r.Instructions, co.moveOrders(m)...)
	co.confuse(m, &r, x.from.lineage.Term)
	return r
}

func (co *coordinator) setView(m *member) core.Instruction {
	co.seq++
	v := m.view
	return core.Instruction{ID: co.viewID(m), Term: co.term, Sequence: co.seq, Attempt: m.attempt, SetView: &v}
}

func compareViews(a, b *core.View) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index))
}

// acked takes the answer to an instruction.
func (co *coordinator) acked(m *member, a core.AckInstruction) {
	if m.acked || a.ID != co.viewID(m) {
		return
	}
	switch a.Outcome {
	case core.InstructionAccepted:
		m.done = append(m.done, a.ID)
		co.obeyed(m)
	case core.InstructionFailed:
		m.attempt++
	}
}

// confuse adds what a coordinator in trouble, a new version or a deposed leader might send.
func (co *coordinator) confuse(m *member, r *core.CoordinatorReplied, known int64) {
	w := co.w
	everything := &core.View{Term: co.term - 1, Index: co.index, OnlyShard: true, DefaultOwner: true}
	if w.roll(InstructionTwice) {
		if len(r.Instructions) > 0 {
			r.Instructions = append(r.Instructions, r.Instructions[0])
		} else if n := len(m.done); n > 0 { // what was answered long ago comes again, with a view that is long past
			r.Instructions = append(r.Instructions, core.Instruction{ID: m.done[n-1], Term: co.term, Sequence: co.seq, SetView: everything})
		}
	}
	if w.roll(InstructionUnknown) {
		co.odd++
		r.Instructions = append(r.Instructions, core.Instruction{ID: fmt.Sprintf("unknown/%d", co.odd), Term: co.term, Sequence: co.seq, Invalid: "unsupported"})
	}
	if w.roll(InstructionOld) {
		co.odd++
		r.Instructions = append(r.Instructions, core.Instruction{ID: fmt.Sprintf("old/%d", co.odd), Term: co.term - 1, Sequence: co.seq, SetView: everything})
	}
	if known >= co.term && w.roll(StaleLeader) { // of one that does not know that it leads no more, and the shard has heard of the next
		co.odd++
		v := *everything
		v.Term, v.Index = co.term+1, 1
		*r = core.CoordinatorReplied{Term: co.term - 1, UUID: groupUUID, Address: "deposed", Instructions: []core.Instruction{
			{ID: fmt.Sprintf("deposed/%d/view", co.odd), Term: co.term - 1, SetView: &v},
			{ID: fmt.Sprintf("deposed/%d/domain", co.odd), Term: co.term - 1, Unassign: &core.DomainRef{Key: zoneKey, Value: zones[0]}}}}
	}
}

// heal ends what faults left behind.
func (co *coordinator) heal() {
	co.away = 0
	for _, m := range co.members {
		m.removed = false
	}
}

// strikeCoordinator is a fault of the coordinator.
func (w *world) strikeCoordinator(f Fault, r *random) {
	co := w.coord
	if co == nil {
		return
	}
	switch f {
	case CoordinatorAway:
		d := r.spread(5*second, 20*minute)
		w.struck(f, "", "", "for %s", clock(d))
		co.away = max(co.away, w.now+d)
	case NewLeader:
		w.struck(f, "", "", "term %d", co.term+1)
		co.term++
	case DomainMove:
		co.moveDomain(r)
	case MachineMove:
		co.beginMove(r)
	case QuotaShift:
		co.shiftQuota(r)
	case Decommissioned:
		m := pick(r, co.members)
		d := r.spread(30*second, 8*minute)
		w.struck(f, "", "", "%s for %s", m.s.id, clock(d))
		m.removed = true
		w.after(d, func() { m.removed = false })
	}
}

package engine

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// matcher is the one match function (ENG-6.1 to 6.3a), for all profiles with the same requirements and tolerations. It
// is asked about classes, never about machines, and remembers its answers.
type matcher struct {
	id      uint32       // in catalog.everyM
	form    *demand.Form // one of the Forms it stands for
	set     []uint64     // bit by class: it matches now
	classes []uint32     // those that match now, ascending
	version uint64       // of the classes it has seen
	synced  bool
	terms   []term // requirements in symbols, as of version

	whole  bool     // of each supply it matches all classes or none,
	mask   []uint64 // and these are the supplies, by catalog.shelves; nil is all
	placed uint64   // the version of the classes that this is about, plus 1

	// In the plan at work: from where on classes may hold something free, by pool.
	epoch uint32
	alive [2]int32

	// In preemption: the lowest effective priority among matching targets, excess and victims.
	preyPlan  uint64
	preyKnown [2]bool
	prey      [2]int64
}

// term is a requirement with the symbols of its key and values, as far as anything has them.
type term struct {
	op     demand.Operator
	key    symbol.ID
	known  bool // the key is known
	values []symbol.ID
	any    bool // Same without values: presence is enough
}

// sync brings the answers up to date with the classes of the table.
func (m *matcher) sync(c *catalog) {
	inv := c.inv
	if m.version == inv.ClassVersion() && m.synced {
		return
	}
	m.version, m.synced = inv.ClassVersion(), true
	m.resolve(inv)
	m.set = slices.Grow(m.set[:0], (inv.Classes()+63)/64)[:(inv.Classes()+63)/64]
	clear(m.set)
	// What lists its values is looked up by them; the others are checked on what is found.
	listed := slices.IndexFunc(m.terms, func(t term) bool { return t.op == demand.In })
	switch {
	case listed < 0:
		for id := range inv.Classes() {
			m.ask(inv, uint32(id))
		}
	case m.terms[listed].known:
		for _, v := range m.terms[listed].values {
			for _, id := range c.classesWith(m.terms[listed].key, v) {
				m.ask(inv, id)
			}
		}
	}
	m.list()
}

// follow is sync for a matcher that was up to date with the version before.
func (m *matcher) follow(c *catalog, before uint64) {
	if m.version != before || !m.synced {
		m.synced = false
		m.sync(c)
		return
	}
	m.version = c.inv.ClassVersion()
	m.resolve(c.inv)
	for n := (c.inv.Classes() + 63) / 64; len(m.set) < n; {
		m.set = append(m.set, 0)
	}
	differs := false
	for _, id := range c.changed {
		had := m.has(id)
		m.set[id/64] &^= 1 << (id % 64)
		m.ask(c.inv, id)
		differs = differs || had != m.has(id)
	}
	if differs {
		m.list()
	}
}

// ask matches one class.
func (m *matcher) ask(inv *inventory.Table, id uint32) {
	if c := inv.Class(id); c.Serial != 0 && m.match(inv, c) {
		m.set[id/64] |= 1 << (id % 64)
	}
}

// list writes classes from set.
func (m *matcher) list() {
	m.classes = m.classes[:0]
	for w, word := range m.set {
		for ; word != 0; word &= word - 1 {
			m.classes = append(m.classes, uint32(w*64+bits.TrailingZeros64(word)))
		}
	}
}

// has answers for one class of the table that sync has seen.
func (m *matcher) has(class uint32) bool { return m.set[class/64]&(1<<(class%64)) != 0 }

func (m *matcher) resolve(inv *inventory.Table) {
	str := inv.Space().Strings
	m.terms = m.terms[:0]
	for _, r := range m.form.Requirements {
		t := term{op: r.Op, any: r.Op == demand.Same && len(r.Values) == 0}
		t.key, t.known = str.Find(r.Key)
		for _, v := range r.Values {
			if id, ok := str.Find(v); ok {
				t.values = append(t.values, id)
			}
		}
		m.terms = append(m.terms, t)
	}
}

func (m *matcher) match(inv *inventory.Table, c *inventory.Class) bool {
	for _, t := range m.terms {
		var v symbol.ID
		has := false
		if t.known {
			v, has = inv.ClassValue(c, t.key)
		}
		ok := false
		switch t.op {
		case demand.In:
			ok = has && slices.Contains(t.values, v)
		case demand.NotIn:
			ok = !has || !slices.Contains(t.values, v)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		case demand.Same:
			ok = has && (t.any || slices.Contains(t.values, v))
		}
		if !ok {
			return false
		}
	}
	return !m.form.TolerationsStated || untolerated(m.form.Tolerations, inv.Shape(c.Shape).Taints) < 0
}

// untolerated returns the position of the first taint that keeps Pods away and that no toleration covers, or -1.
func untolerated(tolerations []demand.Toleration, taints []inventory.Taint) int {
	return slices.IndexFunc(taints, func(t inventory.Taint) bool {
		if t.Effect != demand.NoSchedule && t.Effect != demand.NoExecute {
			return false
		}
		return !slices.ContainsFunc(tolerations, func(o demand.Toleration) bool {
			return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
				(o.Op == demand.TolerationExists || o.Value == t.Value)
		})
	})
}

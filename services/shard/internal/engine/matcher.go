package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// matcher is the one match function (ENG-6.1 to 6.3a), for all profiles with the same requirements and tolerations. It
// is asked about classes, never about machines, and remembers its answers.
type matcher struct {
	form    *demand.Form // one of the Forms it stands for
	verdict []uint32     // by class: serial<<1 | matches; another serial means not asked yet
	classes []uint32     // those that match now, ascending
	version uint64       // of the classes it has seen
	terms   []term       // requirements in symbols, as of version

	// In the plan at work: from where on classes may hold something free, by pool.
	epoch uint32
	alive [2]int32
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
func (m *matcher) sync(inv *inventory.Table) {
	if m.version == inv.ClassVersion() && m.verdict != nil {
		return
	}
	m.version = inv.ClassVersion()
	m.resolve(inv)
	for len(m.verdict) < inv.Classes() {
		m.verdict = append(m.verdict, 0)
	}
	m.classes = m.classes[:0]
	for id := range m.verdict {
		c := inv.Class(uint32(id))
		if c.Serial == 0 {
			continue
		}
		if m.verdict[id]>>1 != c.Serial {
			m.verdict[id] = c.Serial << 1
			if m.match(inv, c) {
				m.verdict[id] |= 1
			}
		}
		if m.verdict[id]&1 != 0 {
			m.classes = append(m.classes, uint32(id))
		}
	}
}

// has answers for one class of the table that sync has seen.
func (m *matcher) has(class uint32) bool { return m.verdict[class]&1 != 0 }

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

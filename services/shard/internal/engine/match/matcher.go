package match

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Matcher is the match function (ENG-6.1 to 6.3a) for all profiles with the same requirements and tolerations. It answers for
// classes, never for machines, and keeps its answers.
type Matcher struct {
	ID      uint32       // its position in Catalog.ByID
	Form    *demand.Form // one of the Forms it stands for
	set     []uint64     // bit by class: it matches now
	Classes []uint32     // those that match now, ascending
	Version uint64       // of the classes it has seen,
	Changed uint64       // and in which one of those that match, or matched, last changed
	synced  bool
	number  uint32 // of set,
	as      uint64 // as of this version; see Catalog.SetOf
	terms   []term // requirements in symbols, as of version

	prefers  []preference // as of version
	dislikes []uint8      // by class: what machines of it cost more because others are preferred; may end early, where the rest is 0
}

// term is a requirement with the symbols of its key and values, as far as anything has them.
type term struct {
	op     demand.Operator
	key    symbol.ID
	known  bool // the key is known
	values []symbol.ID
	texts  []string            // instead, where they are many: ascending
	any    bool                // Same without values: presence is enough
	number *demand.Requirement // of Gt and Lt, which read the value as an integer
}

// resolvedMax is how many values of a requirement are looked up with each change of the classes. Longer lists are searched for the values of classes,
// which are few: one roll-up may list millions.
const resolvedMax = 8

// lists reports whether a value is among those of the requirement.
func (t *term) lists(inv *inventory.Table, v symbol.ID) bool {
	if t.texts == nil || v == inventory.Unnamed {
		return slices.Contains(t.values, v)
	}
	_, listed := slices.BinarySearch(t.texts, inv.Space().Strings.Text(v))
	return listed
}

// Sync brings the answers up to date with the classes of the table.
func (m *Matcher) Sync(c *Catalog) {
	inv := c.Inventory
	if m.Version == inv.ClassVersion() && m.synced {
		return
	}
	m.Version, m.Changed, m.synced = inv.ClassVersion(), inv.ClassVersion(), true
	m.resolve(inv)
	m.set = slices.Grow(m.set[:0], (inv.Classes()+63)/64)[:(inv.Classes()+63)/64]
	clear(m.set)
	m.dislikes = m.dislikes[:0]
	for id := range inv.Classes() {
		m.ask(inv, uint32(id))
	}
	m.list()
}

// follow is Sync for a matcher that was up to date with the version before.
func (m *Matcher) follow(c *Catalog, before uint64) {
	if m.Version != before || !m.synced {
		m.synced = false
		m.Sync(c)
		return
	}
	m.Version = c.Inventory.ClassVersion()
	m.resolve(c.Inventory)
	m.set = append(m.set, make([]uint64, max(0, (c.Inventory.Classes()+63)/64-len(m.set)))...)
	differs := false
	for _, id := range c.changed {
		had := m.Has(id)
		m.set[id/64] &^= 1 << (id % 64)
		m.ask(c.Inventory, id)
		if has := m.Has(id); had || has {
			m.Changed, differs = m.Version, differs || had != has
		}
	}
	if differs {
		m.list()
	}
}

// ask matches one class.
func (m *Matcher) ask(inv *inventory.Table, id uint32) {
	c := inv.Class(id)
	if c.Serial == 0 || !m.match(inv, c) {
		return
	}
	m.set[id/64] |= 1 << (id % 64)
	m.note(id, m.dislike(inv, c))
}

// list writes classes from set.
func (m *Matcher) list() {
	m.Classes = m.Classes[:0]
	for w, word := range m.set {
		for ; word != 0; word &= word - 1 {
			m.Classes = append(m.Classes, uint32(w*64+bits.TrailingZeros64(word)))
		}
	}
}

// Has reports whether a class matches. Sync has seen the class.
func (m *Matcher) Has(class uint32) bool { return m.set[class/64]&(1<<(class%64)) != 0 }

// Alike reports whether two matchers that have seen the same classes match the same ones.
func (m *Matcher) Alike(other *Matcher) bool { return m == other || slices.Equal(m.set, other.set) }

// resolve looks up the symbols of keys and values.
func (m *Matcher) resolve(inv *inventory.Table) {
	m.terms = resolved(m.terms[:0], m.Form.Requirements, inv)
	m.prefers = m.prefers[:0]
	for i := range m.Form.Preferences {
		p := &m.Form.Preferences[i]
		m.prefers = append(m.prefers, preference{uint8(p.Dislike()), resolved(nil, p.Requirements, inv)})
	}
}

func resolved(into []term, list []demand.Requirement, inv *inventory.Table) []term {
	str := inv.Space().Strings
	for _, r := range list {
		t := term{op: r.Op, any: r.Op == demand.Same && len(r.Values) == 0}
		if r.Op == demand.Gt || r.Op == demand.Lt {
			q := r
			t.number = &q
		}
		t.key, t.known = str.Find(r.Key)
		if len(r.Values) > resolvedMax {
			t.texts = r.Values
		} else {
			for _, v := range r.Values {
				if id, ok := str.Find(v); ok {
					t.values = append(t.values, id)
				}
			}
		}
		into = append(into, t)
	}
	return into
}

// NewMatcher returns a Matcher for single questions: it belongs to no Catalog and keeps no answers.
func NewMatcher(f *demand.Form, inv *inventory.Table) *Matcher {
	m := &Matcher{Form: f}
	m.resolve(inv)
	return m
}

// Matches answers for one class, as the inventory is now.
func (m *Matcher) Matches(inv *inventory.Table, class uint32) bool {
	return m.match(inv, inv.Class(class))
}

// match answers for one class (ENG-6.2, 6.3a).
func (m *Matcher) match(inv *inventory.Table, c *inventory.Class) bool {
	return holds(m.terms, inv, c) && (!m.Form.TolerationsStated || Untolerated(m.Form.Tolerations, inv.Shape(c.Shape).Taints) < 0)
}

// holds reports whether a class satisfies all terms.
func holds(terms []term, inv *inventory.Table, c *inventory.Class) bool {
	for i := range terms {
		t := &terms[i]
		var v symbol.ID
		has := false
		if t.known {
			v, has = inv.ClassValue(c, t.key)
		}
		ok := false
		switch t.op {
		case demand.In:
			ok = has && t.lists(inv, v)
		case demand.NotIn:
			ok = !has || !t.lists(inv, v)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		case demand.Gt, demand.Lt:
			ok = has && v != inventory.Unnamed && t.number.Compares(inv.Space().Strings.Text(v))
		case demand.Same:
			ok = has && (t.any || t.lists(inv, v))
		}
		if !ok {
			return false
		}
	}
	return true
}

// Untolerated returns the position of the first taint that keeps Pods away and that no toleration covers, or -1.
func Untolerated(tolerations []demand.Toleration, taints []inventory.Taint) int {
	return slices.IndexFunc(taints, func(t inventory.Taint) bool {
		return (t.Effect == demand.NoSchedule || t.Effect == demand.NoExecute) && !tolerated(tolerations, t)
	})
}

func tolerated(tolerations []demand.Toleration, t inventory.Taint) bool {
	return slices.ContainsFunc(tolerations, func(o demand.Toleration) bool {
		return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
			(o.Op == demand.TolerationExists || o.Value == t.Value)
	})
}

package match

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// preference is one of a Form, with the symbols of its terms.
type preference struct {
	dislike uint8 // of machines that do not satisfy it
	terms   []term
}

// dislike is what a machine of a class costs more because Needs of this matcher prefer others (ENG-7.4a), in millionths of a dollar.
func (m *Matcher) dislike(inv *inventory.Table, c *inventory.Class) (sum uint8) {
	for _, p := range m.prefers {
		if !holds(p.terms, inv, c) {
			sum += p.dislike
		}
	}
	if m.Form.TolerationsStated && slices.ContainsFunc(inv.Shape(c.Shape).Taints, func(t inventory.Taint) bool {
		return t.Effect == demand.PreferNoSchedule && !tolerated(m.Form.Tolerations, t)
	}) {
		sum += demand.TaintDislike
	}
	return sum
}

// note keeps it for a class.
func (m *Matcher) note(class uint32, dislike uint8) {
	if int(class) >= len(m.dislikes) {
		if dislike == 0 {
			return
		}
		m.dislikes = append(m.dislikes, make([]uint8, int(class)+1-len(m.dislikes))...)
	}
	m.dislikes[class] = dislike
}

// Indifferent reports that no class that matches is liked less than another. Sync has seen the classes.
func (m *Matcher) Indifferent() bool { return len(m.dislikes) == 0 }

// Cost is the effective cost of one machine of a class for Needs of this matcher (ENG-7.4, 7.4a). Sync has seen the class.
func (m *Matcher) Cost(class uint32, c *inventory.Class, b demand.Bucket) int64 {
	k := EffectiveCost(c, b)
	if int(class) < len(m.dislikes) {
		k = resource.AddSat(k, int64(m.dislikes[class]))
	}
	return k
}

package reference

import (
	"math/big"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// hardware names what a machine is, labels aside. Whether a class is exhausted (ENG-13.10) is asked for this, so that the
// answer does not depend on how label keys split classes (ENG-6.5).
func hardware(m *inventory.Machine) string {
	var b strings.Builder
	write := func(s string) { b.WriteString(s); b.WriteByte(0) }
	write(m.Provider)
	write(m.InstanceType)
	write(m.Zone)
	write(m.CapacityType.String())
	write(big.NewInt(m.Price).String())
	write(big.NewInt(int64(m.Probability)).String())
	write(big.NewInt(int64(m.DrainSeconds)).String())
	for _, list := range [][]resource.Quantity{m.Resources, m.Allocatable} {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b resource.Quantity) int { return strings.Compare(a.Name, b.Name) })
		for _, q := range list {
			if q.Milli > 0 && q.Name != "" {
				write(q.Name)
				write(big.NewInt(q.Milli).String())
			}
		}
		write("")
	}
	for _, t := range m.Taints {
		write(t.Key)
		write(t.Value)
		write(t.Effect)
	}
	return b.String()
}

// exchanging is ENG-13.10, after all allocations.
type exchanging struct {
	acquisition
	tries       int   // covers made
	triesUsedUp bool  // Policy.ExchangeTries is reached
	saved       int64 // millionths of a dollar per hour
}

// exchange retries purchases from exhausted kinds of hardware in a different order. It keeps a new order only if the total cost
// falls and no other need loses coverage (ENG-13.10).
func (n *exchanging) exchange() {
	left := map[string]int{}
	for _, m := range n.Machines {
		if n.pooled(m) && m.Seen == inventory.Speculative {
			left[hardware(&m.Machine)]++
		}
	}
	var list []*Need
	for _, d := range n.needs {
		if d.Same != nil || d.Spread != nil || n.isShort(d) || len(n.bought(d)) == 0 {
			continue
		}
		for _, m := range n.Machines {
			if h := hardware(&m.Machine); m.Seen == inventory.Speculative && n.slotsBefore[h] > 0 && left[h] == 0 && n.wasFree(d, m) {
				list = append(list, d)
				break
			}
		}
	}
	for improved := true; improved && !n.triesUsedUp; {
		improved = false
		for b := range list {
			for a := range b {
				improved = n.tryExchange(list[b], list[a]) || improved
			}
		}
		for c := range list {
			for b := range c {
				for a := range b {
					improved = n.tryExchange(list[c], list[b], list[a]) || improved
				}
			}
		}
	}
	n.Result.Counters.ExchangeTries, n.Result.Counters.ExchangeSaved = n.tries, n.saved
}

// wasFree reports whether d could have taken m before the allocations.
func (n *exchanging) wasFree(d *Need, m *Machine) bool {
	return !m.Foreign && m.Promise == nil && !WithheldFor(m, d.Cluster.Name) && n.Usable(d, m)
}

// bought lists the Speculative machines that d took, if none of them carries a share.
func (n *exchanging) bought(d *Need) []*Machine {
	var out []*Machine
	for _, m := range d.claims {
		if m.acquired && m.Seen == inventory.Speculative {
			if len(m.shares) > 0 {
				return nil
			}
			out = append(out, m)
		}
	}
	return out
}

// tryExchange lets the listed Needs give back what they bought and buy again in the listed order.
func (n *exchanging) tryExchange(order ...*Need) bool {
	old := make([][]*Machine, len(order))
	was := new(big.Int)
	for i, d := range order {
		if old[i] = n.bought(d); len(old[i]) == 0 {
			return false
		}
	}
	if n.triesUsedUp = n.triesUsedUp || n.tries+len(order) > n.Policy.ExchangeTries; n.triesUsedUp {
		return false
	}
	n.tries += len(order)
	for i, d := range order {
		for _, m := range old[i] {
			was.Add(was, big.NewInt(n.Cost(d, m)))
			n.drop(d, m)
			m.acquired = false
		}
	}
	is := new(big.Int)
	ok := true
	for _, d := range order {
		n.acquire(d, inventory.Speculative)
		for _, m := range n.bought(d) {
			is.Add(is, big.NewInt(n.Cost(d, m)))
		}
		ok = ok && !n.isShort(d)
	}
	if ok && is.Cmp(was) < 0 && !n.neededByShort(old) {
		n.saved += new(big.Int).Sub(was, is).Int64()
		return true
	}
	for _, d := range order {
		for _, m := range n.bought(d) {
			n.drop(d, m)
			m.acquired = false
		}
	}
	for i, d := range order {
		for _, m := range old[i] {
			n.claim(d, m)
			m.acquired = true
		}
	}
	return false
}

// neededByShort reports whether a short Need could use one of the machines that were given back and not taken again.
func (n *exchanging) neededByShort(lists [][]*Machine) bool {
	for _, list := range lists {
		for _, m := range list {
			for _, d := range n.needs {
				if m.claim != nil || d.hold != demand.NotHeld || !n.isShort(d) || !inside(d, m) || !n.free(d, m) {
					continue
				}
				if n.contributes(d, m, n.residual(d)) {
					return true
				}
			}
		}
	}
	return false
}

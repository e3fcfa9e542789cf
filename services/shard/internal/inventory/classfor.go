package inventory

import "slices"

// Demand is what says by which label keys machines are classed (ENG-6.5): demand.Table.
type Demand interface {
	ValueKeys() []string
	PresenceKeys() []string
	TopologyKeys() []string
	Values(key string) (values, alike []string, bounds []int64)
	KeysVersion() uint64  // grows when one of the lists changes,
	RulesVersion() uint64 // and when values may
}

// classedFor is what machines were last classed for.
type classedFor struct {
	demand      Demand
	keys, rules uint64
}

// ClassFor classes machines by what profiles look at now. It costs nothing if that is as it was.
func (t *Table) ClassFor(d Demand) {
	now := classedFor{d, d.KeysVersion(), d.RulesVersion()}
	if was := t.classed; was.demand == d && was.keys == now.keys && (was.rules == now.rules || !t.wide()) && !t.matchKeysDue() && !slices.ContainsFunc(t.walked, (*Topology).due) {
		return
	}
	t.classed = now
	values, topology := d.ValueKeys(), d.TopologyKeys()
	for _, key := range topology {
		// A class then has one value of these keys, so what is left in a domain need not be counted.
		if key == ZoneKey || key == TypeKey {
			values = append(values, key)
		}
	}
	t.SetMatchKeys(MatchKeys{Values: values, Presence: d.PresenceKeys(), Named: d.Values})
	t.SetTopologyKeys(topology)
}

// wide reports whether some key is wide: then each value that profiles name may make a class.
func (t *Table) wide() bool { return len(t.keys.named) > 0 }

// matchKeysDue reports whether so many classes have come that another key may be wide.
func (t *Table) matchKeysDue() bool { return len(t.classIDs) > 2*t.keysAs+WideMin }

package rebalance

// pools groups the buckets of all shards by kind and size, so that a constraint is judged once for each kind of machine
// and not once for each shard that has some.
type pools struct {
	ids   map[poolKey]int
	keys  []poolKey
	at    []map[int][]entry // by pool, then provider, in the order of the shards
	names map[string]int    // providers
	serve map[ask]bits
	list  map[ask][]int
	empty map[*Shard]bits // pools that a donor is short of itself
}

type poolKey struct {
	kind *Kind
	size *Vector
}

// ask is what a shortfall wants, but for the amount.
type ask struct {
	req  *Requirements
	unit *Vector
}

type entry struct {
	donor  *Shard
	bucket *Bucket
}

// bits is a set of pools.
type bits []uint64

func (b bits) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func newPools(shards []Shard) *pools {
	p := &pools{ids: map[poolKey]int{}, names: map[string]int{}, serve: map[ask]bits{}, list: map[ask][]int{}, empty: map[*Shard]bits{}}
	for i := range shards {
		sh := &shards[i]
		if sh.Provider == "" {
			continue // the provider of these machines is unknown
		}
		provider := p.provider(sh.Provider)
		for j := range sh.Supply {
			b := &sh.Supply[j]
			key := poolKey{b.Kind, b.Allocatable}
			id, ok := p.ids[key]
			if !ok {
				id = len(p.keys)
				p.ids[key], p.keys, p.at = id, append(p.keys, key), append(p.at, map[int][]entry{})
			}
			p.at[id][provider] = append(p.at[id][provider], entry{sh, b})
		}
	}
	return p
}

// provider numbers a provider.
func (p *pools) provider(name string) int {
	id, ok := p.names[name]
	if !ok {
		id = len(p.names)
		p.names[name] = id
	}
	return id
}

// served is the set of pools that could serve an ask.
func (p *pools) served(req *Requirements, unit *Vector) bits {
	key := ask{req, unit}
	set, ok := p.serve[key]
	if !ok {
		set = make(bits, (len(p.keys)+63)/64)
		for id, pool := range p.keys {
			if allows(req, pool.kind) && covers(pool.size, unit) {
				set[id/64] |= 1 << (id % 64)
				p.list[key] = append(p.list[key], id)
			}
		}
		p.serve[key] = set
	}
	return set
}

// serving lists them.
func (p *pools) serving(req *Requirements, unit *Vector) []int {
	p.served(req, unit)
	return p.list[ask{req, unit}]
}

// hungry reports whether a donor is short of what a pool could serve: then it gives nothing from it (COORD-12.7).
func (p *pools) hungry(donor *Shard, pool int) bool {
	set, ok := p.empty[donor]
	if !ok {
		set = make(bits, (len(p.keys)+63)/64)
		var last ask
		for i := range donor.Shortfalls {
			f := &donor.Shortfalls[i]
			if key := (ask{f.Requirements, f.MinUnit}); len(f.Deficit) > 0 && key != last {
				last = key
				for w, word := range p.served(f.Requirements, f.MinUnit) {
					set[w] |= word
				}
			}
		}
		p.empty[donor] = set
	}
	return set.has(pool)
}

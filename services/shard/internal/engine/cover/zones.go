package cover

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// zoneKey names the part of a candidate index that lies in one domain of a key that every class has one value of.
type zoneKey struct {
	whole *Index
	key   symbol.ID
	value symbol.ID
}

// zoneOf returns that part and brings it up to date.
func (c *Indexes) zoneOf(whole *Index, key, value symbol.ID) *Index {
	at := zoneKey{whole, key, value}
	k := c.zones[at]
	if k == nil {
		if len(c.zones) > 4*match.CatalogMax {
			clear(c.zones)
		}
		k = &Index{m: whole.m, f: whole.f, bucket: whole.bucket}
		c.zones[at] = k
	}
	if k.version != whole.version || k.base == nil {
		k.version = whole.version
		c.slots = c.slots[:0]
		for _, id := range whole.m.Classes {
			if v, has := c.Inventory.ClassValue(c.Inventory.Class(id), key); has && v == value {
				c.slots = append(c.slots, Slot{Class: id})
			}
		}
		c.fill(k, c.slots)
	}
	return k
}

// ZonesOf returns the parts of a candidate index by domain of a key, up to date.
func (c *Indexes) ZonesOf(whole *Index, top *inventory.Topology) []*Index {
	if whole.top != top || whole.cut != whole.version || len(whole.zones) != len(top.Domains) {
		whole.zones = whole.zones[:0]
		for d := range top.Domains {
			whole.zones = append(whole.zones, c.zoneOf(whole, top.Key, top.Domains[d].Value))
		}
		whole.top, whole.cut = top, whole.version
	}
	return whole.zones
}

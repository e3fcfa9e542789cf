package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

const (
	certain = 1_000_000 // parts per million: what a provider says of a host once it knows that it is taken back (PROV-26.6)

	// announcedFor is how long an announcement is believed. Clouds give half a minute to five; a host that is still there after
	// this counts again, so that a provider that cries wolf costs no machine for good.
	announcedFor = 15 * 60 * Second
	// risksMax bounds the pools whose interruptions are counted: types times zones of the largest clouds.
	risksMax = 8192
)

func (c *risks) of(key riskKey, now int64) *risk {
	r := c.pools[key]
	if r == nil {
		if len(c.pools) >= risksMax {
			return nil
		}
		if c.pools == nil {
			c.pools, c.since = map[riskKey]*risk{}, now
		}
		r = &risk{at: now}
		c.pools[key] = r
	}
	r.advance(now)
	return r
}

func (c *risks) hostOf(i inventory.Index) hosting {
	inv := c.world.Inventory
	if s := inv.State(i); s < inventory.Idle || s > inventory.Draining || inv.Probability(i) >= certain {
		return hosting{}
	}
	shape := inv.Shape(inv.Class(inv.Row(i).Class).Shape)
	text := c.world.Space.Strings.Text
	return hosting{riskKey{text(shape.Provider), text(shape.Type), text(shape.Zone), shape.Capacity}, true}
}

// hosted takes note of what became of a host, and of the word that it is taken back.
//
// Only a probability that rises while the host is known is such a word: a provider that declares 1.0 of every host, or of a slot,
// would otherwise be bought from without end (SHARD-13.19).
func (c *risks) hosted(i inventory.Index, was hosting) {
	is := c.hostOf(i)
	inv := c.world.Inventory
	s := inv.State(i)
	if is.counts || !s.Hosted() {
		inv.SetAnnounced(i, false)
	}
	if was == is {
		return
	}
	if was.counts {
		if r := c.of(was.key, c.now); r != nil {
			r.hosts--
		}
	}
	if is.counts {
		if r := c.of(is.key, c.now); r != nil {
			r.hosts++
		}
		return
	}
	switch {
	case s.Hosted() && inv.Probability(i) >= certain:
		c.announced(i)
	case s == inventory.Failed && inv.Machine(i).Failure == failureHostLost:
	default:
		return
	}
	if r := c.of(was.key, c.now); r != nil {
		r.taken++
	}
	c.emit(Sample{Metric: MetricInterruptions, Label1: was.key.provider, Label2: was.key.class.String(), Value: 1})
}

// announced: the provider takes a host back. From here on it is not supply, so that its replacement is bought while it still serves.
func (c *risks) announced(i inventory.Index) {
	inv := c.world.Inventory
	inv.SetAnnounced(i, true)
	m := inv.Machine(i)
	c.timers.add(c.now+announcedFor, timerAnnounced, m.ID)
	c.record(Record{Type: RecordInterruption, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster, From: m.State, To: m.State,
		Detail: "Its provider has announced that it will interrupt the host."})
}

// announcedStill ends an announcement that nothing came of.
func (c *risks) announcedStill(id string) {
	inv := c.world.Inventory
	i, known := inv.Find(id)
	if !known || !inv.SetAnnounced(i, false) {
		return
	}
	c.record(Record{Type: RecordInterruption, Machine: id, Provider: inv.Provider(i), Cluster: inv.Cluster(i), From: inv.State(i), To: inv.State(i),
		Detail: "The announced interruption did not happen, so the machine counts again."})
	c.trigger(triggerMachine)
}

// SeenInterruptions answers it for the pool of one machine; false when no host of it was ever seen.
func (c *reader) SeenInterruptions(id string) (SeenInterruptions, bool) {
	i, known := c.world.Inventory.Find(id)
	if !known {
		return SeenInterruptions{}, false
	}
	m := c.world.Inventory.Machine(i)
	r := c.risks.pools[riskKey{m.Provider, m.InstanceType, m.Zone, m.CapacityType}]
	if r == nil {
		return SeenInterruptions{}, false
	}
	millis := r.millis + max(0, c.now-r.at)/Millisecond*r.hosts
	return SeenInterruptions{Taken: r.taken, Hours: float64(millis) / 3_600_000, Since: c.risks.since}, true
}

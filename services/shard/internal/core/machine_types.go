package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// subscriber is a cluster and the machines that it was shown. Half of a fleet is shown to some cluster, so the lists hold
// indexes and not ids.
type subscriber struct {
	cluster  string
	machines []inventory.Index // in no order
}

// acquisition is a machine on its way to a need, for the latency histograms (SHARD-27.5). A time lost in a restart is
// not sampled.
type acquisition struct {
	Path  string `n:"1"` // idle or speculative
	Unmet int64  `n:"2"`
	Bound bool   `n:"3"`
}

// A pool is what is out of stock together: provider, type, zone and capacity type (SHARD-14.11).
type pool struct {
	Key      string                 `n:"1"`
	Provider string                 `n:"2"`
	Type     string                 `n:"3"`
	Zone     string                 `n:"4"`
	Class    inventory.CapacityType `n:"5"`
	Backoff  backoff                `n:"6"`
	Probe    string                 `n:"7"` // machine let through after the pause; empty: pausing
}

func (p *pool) holds(m *inventory.Machine) bool {
	return m.Provider == p.Provider && m.InstanceType == p.Type && m.Zone == p.Zone && m.CapacityType == p.Class
}

// PoolKey is how status prints a pool and ClearBackoff takes it.
func PoolKey(provider, instanceType, zone string, class inventory.CapacityType) string {
	return provider + "/" + instanceType + "/" + zone + "/" + class.String()
}

// riskKey is a pool as a provider prices it: what one interruption says of the next.
type riskKey struct {
	provider, instanceType, zone string
	class                        inventory.CapacityType
}

// risk is how often hosts of a pool were taken back while this process looked. Nothing decides by it (SHARD-23.7).
type risk struct {
	hosts  int64 // that count now
	millis int64 // that hosts were there, up to at
	at     int64
	taken  int64
}

func (r *risk) advance(now int64) {
	passed := max(0, now-r.at) / Millisecond
	r.millis += passed * r.hosts
	r.at += passed * Millisecond
}

// hosting is what a machine counts as: a host of a pool that its provider means to leave alone, or nothing.
type hosting struct {
	key    riskKey
	counts bool
}

// SeenInterruptions is how often hosts of a machine's pool were taken back since a moment of Mono, in so many hours of theirs.
type SeenInterruptions struct {
	Taken int64
	Hours float64
	Since int64
}

// boundState reports whether machines in a state have a cluster.
func boundState(s inventory.State) bool {
	return s == inventory.Configuring || s == inventory.Configured || s == inventory.Draining
}

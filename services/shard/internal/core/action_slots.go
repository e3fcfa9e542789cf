package core

// concurrencyClasses bound the commands in flight by kind (SHARD-15.3).
type concurrencyClasses struct {
	size [kinds]int64
	used [kinds]int64
}

// init shares the concurrency out: Bootstrap a half, Provision a quarter, Preempt an eighth, Reclaim and Delete a
// sixteenth each, everyone at least one.
func (l *concurrencyClasses) init(total int64) {
	for k, share := range [kinds]int64{0, 2, 4, 8, 16, 16} {
		if k > 0 {
			l.size[k] = max(1, total/share)
		}
	}
}

func (l *concurrencyClasses) free(k Kind) bool { return l.used[k] < l.size[k] }

// takeSlot reserves what a command needs: a place in its concurrency class and at its provider.
func (c *dispatcher) takeSlot(o *operation) bool {
	p := c.provider(o.Provider)
	if o.Slot {
		return true
	}
	if !c.classes.free(o.Kind) || p.Inflight >= p.limit(c.now) {
		return false
	}
	o.Slot = true
	c.classes.used[o.Kind]++
	p.Inflight++
	return true
}

func (c *dispatcher) releaseSlot(o *operation) {
	if !o.Slot {
		return
	}
	o.Slot = false
	c.classes.used[o.Kind]--
	c.provider(o.Provider).Inflight--
	c.cycle.Redispatch = true
}

// clustersBusy counts pulls and Configures by cluster (SHARD-15.4).
func (c *dispatcher) clustersBusy() map[string]int64 {
	busy := map[string]int64{}
	for _, o := range c.ops.list {
		if !o.Deleted && o.Kind == KindBootstrap && (o.Phase == phasePulling || o.Phase == phaseReady || o.Phase == phaseSending) {
			busy[o.Cluster]++
		}
	}
	return busy
}

func (c *dispatcher) clusterLimit(cl *cluster) int64 {
	if cl.OneProbe {
		return 1
	}
	return c.cfg.ExecutePerCluster
}

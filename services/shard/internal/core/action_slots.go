package core

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

// tries reports whether a machine is being bought or configured for a need now.
func (c *dispatcher) tries(pass *dispatchPass, cluster, fingerprint string) bool {
	if pass.trying == nil {
		pass.trying = map[[2]string]bool{}
		for _, o := range c.ops.list {
			if !o.Deleted && (o.Kind == KindBootstrap || o.Kind == KindProvision) {
				pass.trying[[2]string{o.Cluster, o.Need.Fingerprint}] = true
			}
		}
	}
	return pass.trying[[2]string{cluster, fingerprint}]
}

// began counts what the pass has started.
func (p *dispatchPass) began(k Kind, cluster, fingerprint string) {
	if k == KindBootstrap && p.busy != nil {
		p.busy[cluster]++
	}
	if (k == KindBootstrap || k == KindProvision) && p.trying != nil {
		p.trying[[2]string{cluster, fingerprint}] = true
	}
}

func (c *dispatcher) clusterLimit(cl *cluster) int64 {
	if cl.OneProbe {
		return 1
	}
	return c.cfg.ExecutePerCluster
}

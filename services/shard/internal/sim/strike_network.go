package sim

// strikeNetwork is a fault between a shard and what surrounds it, or in an operator's hands.
func (w *world) strikeNetwork(f Fault, r *random) {
	if f == ProviderCut {
		p, d := pick(r, w.providers), r.spread(second, 5*minute)
		w.struck(f, "", "", "%s for %s", p.name, clock(d))
		p.cut = max(p.cut, w.now+d)
		return
	}
	c := pick(r, w.clusters)
	o := pick(r, c.ops)
	d := r.spread(second, 4*minute)
	switch f {
	case SlowReader:
		w.struck(f, "", c.name, "%s reads nothing for %s", o.name, clock(d))
		o.deafUntil = max(o.deafUntil, w.now+d)
	case ClusterCut:
		w.struck(f, "", c.name, "%s for %s", c.name, clock(d))
		o.cutUntil = max(o.cutUntil, w.now+d)
		if cn := o.conn; cn != nil {
			w.after(r.between(30*second, 45*second), func() { // pings have gone unanswered
				if o.conn == cn && w.now < o.cutUntil {
					cn.clientGone()
				}
			})
		}
	case DrainCrash:
		if len(o.drains) == 0 || o.down {
			return
		}
		w.struck(f, "", c.name, "%s in the middle of %d drains, for %s", o.name, len(o.drains), clock(d))
		o.life++
		clear(o.drains)
		o.crash()
		w.after(d, o.wake)
	}
}

// hearDuplicate ends what keeps frames from an operator, and lets it read those that waited.
func (o *operator) hearDuplicate() {
	o.deafUntil, o.cutUntil = 0, 0
	if cn := o.conn; cn != nil {
		for range len(cn.out.wire) {
			cn.receive()
		}
		cn.pump()
	}
}

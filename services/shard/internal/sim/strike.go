package sim

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// strike makes a timed fault happen.
func (w *world) strike(f Fault) {
	if w.calm || w.fail != nil {
		return
	}
	r := w.rollDice[f]
	switch {
	case f >= Outage && f <= SlotNew:
		w.strikeProvider(f, r, w.providers[r.intn(len(w.providers))])
	case f >= NodeLost && f <= RollupStorm || f == OperatorUpgrade:
		w.strikeCluster(f, r, w.clusters[r.intn(len(w.clusters))])
	case f >= ProcessCrash && f <= WallJump:
		w.strikeProcess(f, r)
	case f >= AdminPause && f <= AdminRetire:
		w.strikePeople(f, r)
	case f >= SlowReader && f <= DrainCrash:
		w.strikeNetwork(f, r)
	case f >= CoordinatorAway && f <= Decommissioned || f == MachineMove || f == QuotaShift:
		w.strikeCoordinator(f, r)
	case f == DemandMove:
		w.moveDemand(r, w.clusters[r.intn(len(w.clusters))])
	case f == DemandAside:
		w.setDemandAside(r)
	}
}

// setDemandAside is what a shell does whose next plan could not hold what a cluster asks for (SHARD-10.12). The roll-up that follows is taken.
func (w *world) setDemandAside(r *random) {
	s := w.struckShard(r)
	if p := s.proc; p != nil && !p.frozen {
		name := pick(r, s.clusters).name
		w.struck(DemandAside, "", name, "of %s", name)
		s.check.forgetDemand(name)
		p.step(core.DemandTooWide{Cluster: name, Reason: "simulated"})
	}
}

func (w *world) strikeProvider(f Fault, r *random, p *provider) {
	switch f {
	case Outage:
		d := r.spread(5*second, 15*minute)
		w.struck(f, "", "", "%s is down for %s", p.name, clock(d))
		p.down = true
		w.after(d, func() { p.down = false })
	case RestartKeeps:
		d := r.between(second, 20*second)
		w.struck(f, "", "", "%s restarts, %s", p.name, clock(d))
		p.down = true
		w.after(d, func() { p.down = false })
	case RestartForgets:
		w.struck(f, "", "", "%s restarts without memory", p.name)
		p.forget()
	case StockOut:
		if len(p.order) == 0 {
			return
		}
		pool := poolOf(p.order[r.intn(len(p.order))])
		w.struck(f, "", "", "%s has no %s", p.name, pool)
		p.dry[pool] = true
		w.after(r.between(minute, 20*minute), func() { delete(p.dry, pool) })
	case HostLoss, SpotInterruption, PriceMove, SlotGone:
		w.strikeMachine(f, r, p)
	case SlotNew:
		m := p.addSlot()
		w.struck(f, m.ID, "", "%s", m.ID)
	}
}

func (w *world) strikeMachine(f Fault, r *random, p *provider) {
	if len(p.order) == 0 {
		return
	}
	m := p.order[r.intn(len(p.order))]
	switch f {
	case HostLoss:
		if !m.State.Hosted() {
			return
		}
		w.struck(f, m.ID, m.Cluster, "%s was %s", m.ID, m.State)
		m.fail(6, "the host is gone")
	case SpotInterruption:
		if m.CapacityType != inventory.Spot || m.State != inventory.Configured {
			return
		}
		if m.Probability >= announced {
			return
		}
		w.struck(f, m.ID, m.Cluster, "%s", m.ID)
		if r.chance(.4) {
			p.interrupt(m)
			return
		}
		was := m.Probability
		m.Probability = announced
		m.changed()
		w.after(r.between(5*second, 150*second), func() {
			if m.Probability != announced || p.byID[m.ID] != m {
				return
			}
			m.Probability = was
			if m.State != inventory.Configured || r.chance(.2) { // nothing comes of it
				m.changed()
				return
			}
			p.interrupt(m)
		})
	case PriceMove:
		w.struck(f, m.ID, "", "%s", m.ID)
		m.Price = max(1000, m.Price*r.between(50, 200)/100)
		m.changed()
	case SlotGone:
		if r.chance(.3) || m.State == inventory.Speculative || m.State == inventory.Idle {
			w.struck(f, m.ID, m.Cluster, "%s was %s", m.ID, m.State)
			p.remove(m)
		}
	}
}

// announced is the probability of a host that is taken back (PROV-26.6).
const announced = 1_000_000

func (p *provider) interrupt(m *machine) {
	p.moves++
	m.move, m.last = p.moves, 0
	m.set(inventory.Speculative, "interrupted")
}

// forget is a restart that loses marks, cursors, and whatever was under way.
func (p *provider) forget() {
	p.born++
	clear(p.top)
	p.past = nil
	for _, m := range slices.Clone(p.order) {
		m.last = 0
		clear(m.marks)
		p.moves++
		m.move = p.moves
		switch m.State {
		case inventory.Creating:
			m.set(inventory.Speculative, "forgotten")
		case inventory.Configuring, inventory.Draining:
			m.set(inventory.Idle, "forgotten")
		case inventory.Deleting:
			m.set(inventory.Speculative, "forgotten")
		case inventory.Failed:
			m.fail(0, "still broken after the restart")
		}
	}
}

func (w *world) strikeCluster(f Fault, r *random, c *cluster) {
	o := c.ops[r.intn(len(c.ops))]
	switch f {
	case NodeLost:
		if len(c.nodes) == 0 {
			return
		}
		n := c.nodes[r.intn(len(c.nodes))]
		if !n.ready {
			return
		}
		w.struck(f, n.m.ID, c.name, "%s is not Ready", n.m.ID)
		n.ready = false
		c.report(n)
		w.after(r.between(10*second, 5*minute), func() {
			if n.m.node == n && n.joined && !n.ready {
				n.ready = true
				c.report(n)
				c.look()
			}
		})
	case SessionDrop:
		if o.conn != nil {
			w.struck(f, "", c.name, "%s", o.name)
			o.conn.clientGone()
		}
	case OperatorCrash:
		d := r.spread(second, 20*minute)
		w.struck(f, "", c.name, "%s for %s", o.name, clock(d))
		o.crash()
		w.after(d, o.wake)
	case OperatorUpgrade:
		if o.features = nil; r.chance(.5) {
			o.features = allFeatures
		}
		w.struck(f, "", c.name, "%s knows %v from now on", o.name, o.features)
		o.crash()
		o.wake()
	case TwoOperators:
		if len(c.ops) > 1 {
			return
		}
		second := c.newOperator(1)
		w.struck(f, "", c.name, "%s dials too", second.name)
		c.ops = append(c.ops, second)
		second.dial()
		w.after(r.between(20*core.Second, 5*minute), func() {
			if !second.gone {
				c.ops = slices.DeleteFunc(c.ops, func(x *operator) bool { return x == second })
				second.leave("only one is meant to run")
			}
		})
	case RollupWiped:
		w.struck(f, "", c.name, "%s reports nothing for a while", c.name)
		c.wiped = true
		c.changedDemand()
		w.after(r.between(second, 15*core.Second), func() {
			if c.wiped {
				c.wiped = false
				c.changedDemand()
			}
		})
	case RollupStorm:
		w.struck(f, "", c.name, "%s changes its demand all the time", c.name)
		for i := range 40 {
			w.after(int64(i)*r.between(200*millisecond, 2*core.Second), func() {
				if !w.calm {
					w.moveDemand(r, c)
				}
			})
		}
	}
}

// moveDemand is users at work: a workload grows, shrinks, ends or starts again.
func (w *world) moveDemand(r *random, c *cluster) {
	d := c.work[r.intn(len(c.work))]
	var pods int
	switch {
	case r.chance(.15):
		pods = 0
	case d.pods == 0:
		pods = 1 + r.intn(8)
	default:
		pods = max(0, d.pods*int(r.between(30, 200))/100+r.intn(3)-1)
	}
	if d.row.Group != "" {
		pods = min(pods, 8)
	}
	most := 40
	if w.profile.scale {
		most = 400
	}
	w.tally.Faults[DemandMove]++
	c.scale(d, min(pods, most))
}

func (w *world) strikeProcess(f Fault, r *random) {
	s := w.struckShard(r)
	p := s.proc
	switch f {
	case WallJump:
		by := r.between(-6*hour, 6*hour)
		w.struck(f, "", "", "the wall clock jumps by %d s", by/second)
		w.wallShift += by
		return
	case ProcessCrash:
		if p == nil || p.frozen {
			return
		}
		w.struck(f, "", "", "kill -9 soon")
		p.crashIn = 1 + r.intn(30)
	case CleanStop:
		if p == nil || p.frozen {
			return
		}
		w.struck(f, "", "", "SIGTERM")
		p.step(core.Stopping{})
		w.after(r.between(second, 15*second), func() {
			if s.proc == p {
				s.restart(p, "stopped", 3*second)
			}
		})
	case ProcessFreeze:
		if p == nil || p.frozen {
			return
		}
		d := r.spread(second, 12*minute)
		w.struck(f, "", "", "the process does not run for %s", clock(d))
		p.frozen = true
		w.after(d, p.thaw)
	case ProcessTwice:
		if p == nil || s.twin != nil || p.frozen {
			return
		}
		w.struck(f, "", "", "a second process starts; %s goes on beside it", p.name)
		p.owns = false
		s.twin = p
		p.save(0)
		s.startProcess()
		stay := r.chance(.5) // the operators do not notice, and both act
		for _, name := range sortedKeys(p.conns) {
			if !stay || r.chance(.5) {
				p.conns[name].serverCloses("moved")
			}
		}
		for i := range 12 {
			w.after(int64(i+1)*5*second, func() {
				if !w.calm {
					w.moveDemand(r, w.clusters[r.intn(len(w.clusters))])
				}
			})
		}
		w.after(r.between(30*second, 10*minute), func() { s.kill(p, "the older of two is stopped") })
	}
}

// crashed ends a process in the middle of a step and starts it again later.
func (s *shard) crashed(p *process) {
	if p != s.proc {
		s.kill(p, "crash")
		return
	}
	s.restart(p, "kill -9", s.w.net.spread(3*second, 5*minute))
}

func (s *shard) restart(p *process, why string, down int64) {
	s.kill(p, why)
	s.w.after(down, func() {
		if s.proc == nil {
			s.startProcess()
		}
	})
}

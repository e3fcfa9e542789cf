package sim

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// shown notes that a fact about a machine is given to the process. lie says that the provider knew better. A true word
// ends the effect of a lie, unless it was asked for before the operation began that is open: of two such words the shard
// cannot know which is the older one (SHARD-13.6). The present process does not know what an older one received.
func (c *checker) shown(p *process, m *machine, f *core.Fact, asked int64, lie bool) {
	if p != c.s.proc {
		return
	}
	delete(c.unseen, m.ID)
	switch same := f.Machine.State == m.State && f.Machine.Cluster == m.Cluster; {
	case lie && !same:
		c.lied[m.ID] = true
	case same && (c.ofM[m.ID] == "" || asked > c.began[c.ofM[m.ID]]):
		delete(c.lied, m.ID)
	}
}

// guard notes a fact that is too old to be judged, or that a command in flight may be about to contradict: it must not
// move the machine.
func (c *checker) guard(p *process, f *core.Fact, asked int64) {
	v, known := p.core.Machine(f.Machine.ID)
	if !known || v.Machine.State == f.Machine.State {
		return
	}
	g := guarded{id: f.Machine.ID, had: v.Machine.State, shown: f.Machine.State}
	if _, is := p.inflight[c.ofM[g.id]]; is {
		g.rule, g.why = "merged-in-flight", "while a command of it is in flight"
	} else if asked < c.chosen[g.id] {
		g.rule, g.why = "merged-old", "by a word that was asked for before its operation began"
	}
	if g.rule != "" {
		c.guarded = append(c.guarded, g)
	}
}

// guardHeld looks at what became of those machines.
func (c *checker) guardHeld(p *process) {
	for _, g := range c.guarded {
		if v, known := p.core.Machine(g.id); known && v.Machine.State == g.shown {
			c.w.broken(g.rule, "SHARD-13.6", g.id, "", "%s was %s and is made %s %s", g.id, g.had, g.shown, g.why)
		}
	}
}

// hidden notes that a full List did not show a machine that is there.
func (c *checker) hidden(m *machine) {
	c.lied[m.ID] = true
	c.unseen[m.ID]++
}

// conflict: a Configure of a machine that serves another cluster. The provider refuses it, but a shard that got the
// truth must not have asked.
func (c *checker) conflict(m *machine, x core.Command) {
	if !c.lied[m.ID] && !c.misled[x.Op] && c.mine(x) {
		c.w.broken("bound-twice", "SHARD-33.5.1", m.ID, x.Cluster, "%s serves %s and is configured for %s", m.ID, m.Cluster, x.Cluster)
	}
}

// illegal: a command from a state that it does not start from. Delays make some of these unavoidable; a Delete of a
// machine that serves a cluster is not among them, and neither is a Configure of one.
func (c *checker) illegal(m *machine, x core.Command) {
	if c.lied[m.ID] || c.misled[x.Op] || !c.mine(x) {
		return
	}
	switch {
	case x.RPC == core.RPCDelete && bound(m.State):
		c.w.broken("delete-of-serving", "SHARD-33.5.1", m.ID, m.Cluster, "Delete of %s, which is %s for %s", m.ID, m.State, m.Cluster)
	case x.RPC == core.RPCConfigure && bound(m.State) && m.Cluster != x.Cluster:
		c.w.broken("bound-twice", "SHARD-33.5.1", m.ID, x.Cluster, "%s is %s for %s and is configured for %s", m.ID, m.State, m.Cluster, x.Cluster)
	}
}

// mine reports whether a command is of the present process and still open there.
func (c *checker) mine(x core.Command) bool {
	_, open := c.ops[x.Op]
	return open
}

// commanded tells all who watch that a command takes effect. What another shard or an older process does, the present
// process of a shard cannot know before the provider says so; the fence stops an older one at the machines that the
// present one has commanded.
func (w *world) commanded(from *shard, m *machine, x core.Command, epoch int64) {
	for _, s := range w.shards {
		if s != from || s.proc != nil && epoch < s.proc.epoch {
			s.check.lied[m.ID] = true
		}
	}
	from.check.commanded(m, x)
}

// commanded: what a command takes away when it takes effect at the provider. Of one whose operation has ended the process does not know until
// the provider says so; the provider refuses what no longer fits.
func (c *checker) commanded(m *machine, x core.Command) {
	op, open := c.ops[x.Op]
	if !open { // a request that arrived after its operation had ended without an answer
		c.lied[m.ID] = true
		return
	}
	if x.RPC != core.RPCDrain {
		return
	}
	if op.Cluster != m.Cluster && !c.lied[m.ID] && !c.misled[x.Op] {
		c.w.broken("drained-from-another", "SHARD-33.5.2", m.ID, m.Cluster, "%s drains %s from %s, which serves %s", x.Op, m.ID, op.Cluster, m.Cluster)
	}
}

// acceptedByPerson notes that somebody accepts a held roll-up.
func (c *checker) acceptedByPerson(name string) { c.person[name] = true }

// retireAsked notes that somebody may declare a cluster dead.
func (c *checker) retireAsked(name string) { c.retired[name] = true }

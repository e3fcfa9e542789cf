package sim

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// shown notes that a fact about a machine is given to the process. lie says that the provider knew better. A true word
// ends the effect of a lie, unless an operation that began on the lie keeps facts from being judged (SHARD-13.6).
func (c *checker) shown(m *machine, f *core.Fact, lie bool) {
	delete(c.unseen, m.ID)
	switch same := f.Machine.State == m.State && f.Machine.Cluster == m.Cluster; {
	case lie && !same:
		m.lied = true
	case same && c.ofM[m.ID] == "":
		m.lied = false
	}
}

// hidden notes that a full List did not show a machine that is there.
func (c *checker) hidden(m *machine) {
	m.lied = true
	c.unseen[m.ID]++
}

// conflict: a Configure of a machine that serves another cluster. The provider refuses it, but a shard that was told the
// truth must not have asked.
func (c *checker) conflict(m *machine, x core.Command) {
	if !m.lied && c.mine(x) {
		c.w.broken("bound-twice", "SHARD-33.5.1", m.ID, x.Cluster, "%s serves %s and is configured for %s", m.ID, m.Cluster, x.Cluster)
	}
}

// illegal: a command from a state that it does not start from. Delays make some of these unavoidable; a Delete of a
// machine that serves a cluster is not among them, and neither is a Configure of one.
func (c *checker) illegal(m *machine, x core.Command) {
	if m.lied || !c.mine(x) {
		return
	}
	switch {
	case x.RPC == core.RPCDelete && bound(m.State):
		c.w.broken("delete-of-serving", "SHARD-33.5.1", m.ID, m.Cluster, "Delete of %s, which is %s for %s", m.ID, m.State, m.Cluster)
	case x.RPC == core.RPCConfigure && bound(m.State) && m.Cluster != x.Cluster:
		c.w.broken("bound-twice", "SHARD-33.5.1", m.ID, x.Cluster, "%s is %s for %s and is configured for %s", m.ID, m.State, m.Cluster, x.Cluster)
	}
}

// mine tells whether a command is of the present process and still open there.
func (c *checker) mine(x core.Command) bool {
	_, open := c.ops[x.Op]
	return open
}

// commanded: what a command takes away when it takes effect at the provider.
func (c *checker) commanded(m *machine, x core.Command) {
	op, open := c.ops[x.Op]
	if !open || x.RPC != core.RPCDrain {
		return
	}
	if op.Cluster != m.Cluster && !m.lied {
		c.w.broken("drained-from-another", "SHARD-33.5.2", m.ID, m.Cluster, "%s drains %s from %s, which serves %s", x.Op, m.ID, op.Cluster, m.Cluster)
	}
}

// acceptedByPerson notes that somebody accepts a held roll-up.
func (c *checker) acceptedByPerson(name string) { c.person[name] = true }

// retireAsked notes that somebody may declare a cluster dead.
func (c *checker) retireAsked(name string) { c.retired[name] = true }

package sim

import (
	"maps"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// The rules of this file are about what happens between operations: pauses after failures (SHARD-33.5.15), promises that
// end with their drain (33.5.16), and roll-ups that are decoded late or twice (33.5.17).

// budgets is what the present process may try again, and when.
type budgets struct {
	machines map[tried]failures     // by machine and command
	boots    map[string]failures    // Configures, by machine, until one is taken: other commands do not end the row
	blobs    map[[2]string]failures // by cluster and row
	suspects map[[2]string]bool     // rows whose template failed and has not worked since
	pulled   map[string][2]string   // row that boot data was requested for, by request
	retry    bool                   // the refusal of this step said that a second try may work
	answered string                 // the operation whose command was answered in this step
}

// tried is one command at one machine.
type tried struct {
	machine string
	rpc     core.RPC
}

// failures is a row of failures: how many, when the last one was, and the first pause of its kind.
type failures struct {
	n           int
	at          int64
	first, most int64
}

func newBudgets() budgets {
	return budgets{machines: map[tried]failures{}, boots: map[string]failures{}, blobs: map[[2]string]failures{}, suspects: map[[2]string]bool{},
		pulled: map[string][2]string{}}
}

// over reports whether the pause behind the last failure is over. It doubles with each failure, and jitter takes at most a fifth.
func (f failures) over(now int64) bool {
	pause := f.first
	for i := 1; i < f.n && pause < f.most; i++ {
		pause *= 2
	}
	return f.n == 0 || now-f.at >= min(pause, f.most)/5*4
}

func (f failures) more(now, first, most int64) failures {
	return failures{n: f.n + 1, at: now, first: first, most: most}
}

func rpcOf(k core.Kind) core.RPC {
	switch k {
	case core.KindProvision:
		return core.RPCCreate
	case core.KindBootstrap:
		return core.RPCConfigure
	case core.KindDelete:
		return core.RPCDelete
	}
	return core.RPCDrain
}

// follow notes what ends a row of failures: a command or a Get that went well, and people who say so.
func (b *budgets) follow(e core.Event, of core.Kind) {
	b.retry, b.answered = false, ""
	switch e := e.(type) {
	case core.CommandDone:
		b.answered = e.Op
		if e.Code == core.CodeOK {
			b.forget(e.Machine)
			if of == core.KindBootstrap {
				delete(b.boots, e.Machine)
			}
		}
	case core.GetDone:
		if e.Row != nil {
			b.forget(e.Machine)
			if s := e.Row.Machine.State; s == inventory.Configuring || s == inventory.Configured {
				delete(b.boots, e.Machine)
			}
		}
	case core.SessionOpened:
		maps.DeleteFunc(b.blobs, func(row [2]string, _ failures) bool { return row[0] == e.Cluster })
		maps.DeleteFunc(b.suspects, func(row [2]string, _ bool) bool { return row[0] == e.Cluster })
	case core.BootstrapAnswered:
		b.retry = e.Retryable
		if e.Error == "" && !e.Undeliverable {
			delete(b.suspects, b.pulled[e.Request])
		}
		delete(b.pulled, e.Request)
	case core.AdminAsked:
		switch e.Command {
		case core.AdminRetry:
			b.forget(e.Machine)
			delete(b.boots, e.Machine)
		case core.AdminClearBackoff:
			clear(b.machines)
			clear(b.boots)
			clear(b.blobs)
			clear(b.suspects)
		}
	}
}

func (b *budgets) forget(machine string) {
	for rpc := core.RPCCreate; rpc <= core.RPCDelete; rpc++ {
		delete(b.machines, tried{machine, rpc})
	}
}

// paused: a command that failed at a machine, and a template that failed for a row, are tried again after a pause and not before. Nothing is
// bought to wait for the end of a pause, and while it is open whether a template works, one machine at a time is bought for it.
func (c *checker) paused(r core.Record) {
	now := c.w.now
	if r.Kind == core.KindProvision {
		if f := c.budgets.boots[r.Machine]; !f.over(now) {
			c.w.broken("rebought-at-once", "SHARD-33.5.18", r.Machine, r.Cluster, "%s is bought %s after it was not configured, %d times in a row", r.Machine, clock(now-f.at), f.n)
		}
		row := [2]string{r.Cluster, r.Fingerprint}
		for _, o := range c.ops {
			if c.budgets.suspects[row] && (o.Kind == core.KindProvision || o.Kind == core.KindBootstrap) && [2]string{o.Cluster, o.Fingerprint} == row {
				c.w.broken("bought-on-suspicion", "SHARD-33.5.18", r.Machine, r.Cluster, "%s is bought while it is open whether the template works with another machine", r.Machine)
				break
			}
		}
	}
	if f := c.budgets.machines[tried{r.Machine, rpcOf(r.Kind)}]; !f.over(now) {
		c.w.broken("retried-at-once", "SHARD-33.5.15", r.Machine, r.Cluster, "%s of %s starts %s after failure %d in a row", r.Kind, r.Machine, clock(now-f.at), f.n)
	}
	if f := c.budgets.blobs[[2]string{r.Cluster, r.Fingerprint}]; r.Kind == core.KindBootstrap && !f.over(now) {
		c.w.broken("template-retried-at-once", "SHARD-33.5.15", r.Machine, r.Cluster, "%s of %s starts %s after template failure %d in a row", r.Kind, r.Machine, clock(now-f.at), f.n)
	}
}

// failed notes the end of an operation.
func (c *checker) failed(r core.Record) {
	b, now := &c.budgets, c.w.now
	at, row := tried{r.Machine, rpcOf(r.Kind)}, [2]string{r.Cluster, r.Fingerprint}
	switch r.Outcome {
	case core.OutcomeNotTouched.String(), core.OutcomeUnknown.String():
		if r.Outcome == core.OutcomeNotTouched.String() && r.Op != b.answered {
			return // it was rolled back because another command was refused
		}
		b.machines[at] = b.machines[at].more(now, second, minute)
	case core.OutcomeRefused.String(), core.OutcomeFailed.String():
		b.machines[at] = b.machines[at].more(now, 30*second, hour)
		if r.Kind == core.KindBootstrap {
			b.boots[r.Machine] = b.boots[r.Machine].more(now, 30*second, hour)
			b.suspects[row] = b.suspects[row] || r.Outcome == core.OutcomeRefused.String()
		}
	case core.OutcomeBlobError.String():
		b.suspects[row] = true
		first, most := 10*second, 10*minute
		if b.retry {
			first, most = second, 30*second
		}
		b.blobs[row] = b.blobs[row].more(now, first, most)
	case core.OutcomeSuccess.String():
		b.forget(r.Machine)
		if r.Kind == core.KindBootstrap {
			delete(b.blobs, row)
			delete(b.boots, r.Machine)
			delete(b.suspects, row)
		}
	}
	if r.Kind == core.KindReclaim || r.Kind == core.KindPreempt {
		c.undrained = append(c.undrained, r.Machine)
	}
}

// promisesEnd: a machine that stays where it is, because its drain ended early, is promised to no other cluster.
func (c *checker) promisesEnd(p *process) {
	for _, id := range c.undrained {
		v, known := p.core.Machine(id)
		if known && c.ofM[id] == "" && v.Machine.State == inventory.Configured && v.Intended != "" {
			c.w.broken("promise-kept", "SHARD-33.5.16", id, v.Machine.Cluster, "%s stays with %s and is still promised to %s", id, v.Machine.Cluster, v.Intended)
		}
	}
	c.undrained = c.undrained[:0]
}

// newest: of the roll-ups of a cluster only one that came after all that were judged before is judged.
func (c *checker) newest(x core.SendAck) {
	if last := c.arrived[x.Cluster]; c.pending.Arrival <= last {
		c.w.broken("rollup-old", "SHARD-33.5.17", "", x.Cluster, "roll-up %d of %s is judged after roll-up %d", c.pending.Arrival, x.Cluster, last)
	}
	c.arrived[x.Cluster] = c.pending.Arrival
}

package core

import (
	"fmt"
	"slices"
)

// fenceSuspected takes a refusal by the fence.
func (c *commands) fenceSuspected(o *operation, e CommandDone) {
	p := c.provider(o.Provider)
	f := &p.Fence
	o.Phase = phaseFenced
	if e.HasFence && e.FenceEpoch > c.epoch {
		c.supersede(fmt.Sprintf("provider %s has fencing mark epoch %d for %s; this process has epoch %d", p.Name, e.FenceEpoch, o.Machine, c.epoch))
		return
	}
	if f.Suspect && f.Confirm == o.ID {
		c.supersede(fmt.Sprintf("provider %s refused %s of %s twice, with tokens %d/%d and older", p.Name, o.rpc(), o.Machine, c.epoch, e.Token))
		return
	}
	f.Refused = append(f.Refused, o.ID)
	if !f.Suspect {
		f.Suspect, f.Since = true, c.now
		c.record(Record{Type: RecordFence, Provider: p.Name, Machine: o.Machine, Op: o.ID, Sequence: e.Token,
			Detail: "rejected by the provider's fence; one confirming attempt follows when the commands in flight have ended"})
		c.timers.add(c.now+c.cfg.ExecuteTimeout, timerFence, p.Name)
	}
	c.confirmFence(p)
}

// confirmFence sends the one confirming attempt when nothing else is in flight, or after the time of one command.
func (c *commands) confirmFence(p *provider) {
	f := &p.Fence
	if !f.Suspect || f.Confirm != "" || c.superseded != "" || c.stopping {
		return
	}
	if p.Inflight > 0 && c.now < f.Since+c.cfg.ExecuteTimeout || c.now < f.NextTry {
		return
	}
	for len(f.Refused) > 0 {
		o := c.ops.byID[f.Refused[0]]
		if o == nil || o.rpc() == RPCConfigure && (o.BlobAt == 0 || !c.bootstraps.blobFresh(o)) {
			f.Refused = f.Refused[1:]
			if o != nil {
				c.rollBack(o, OutcomeFenced, "rejected by the provider's fence; the boot data expired before a confirming attempt")
			}
			continue
		}
		if !c.dispatcher.classes.free(o.Kind) { // other providers fill it; the limit holds here too
			c.timers.add(c.now+fenceClassRetry, timerFence, p.Name)
			return
		}
		f.Confirm = o.ID
		f.Tries++
		o.Slot = true
		c.dispatcher.classes.used[o.Kind]++
		p.Inflight++
		c.send(o)
		return
	}
	*f = fence{}
	c.cycle.Redispatch = true
}

// ended looks at the end of any command that was not refused by the fence.
func (f *fence) ended(c *commands, p *provider, o *operation, class Class, code Code) {
	if !f.Suspect {
		return
	}
	if f.Confirm != o.ID {
		c.confirmFence(p)
		return
	}
	if code == CodeAborted || code == CodeAlreadyExists {
		class = Refused // the machine stands elsewhere: said by a provider that has let the token pass (PROV-7.2, 7.7)
	}
	switch class {
	case Accepted, Refused, Gone: // the token passed: the order of tokens was mixed up, not ours
		others := slices.DeleteFunc(f.Refused, func(id string) bool { return id == o.ID })
		*f = fence{}
		p.SlowUntil = c.now + fenceSlowPeriod
		c.timers.add(p.SlowUntil, timerDispatch, "")
		c.sample(MetricFenceReordered, "", 1)
		c.record(Record{Type: RecordFence, Provider: p.Name, Machine: o.Machine, Op: o.ID,
			Detail: "the confirming attempt succeeded: the provider's fencing marks are not per machine; for 10 min, commands are sent one at a time"})
		for _, id := range others {
			if other := c.ops.byID[id]; other != nil {
				c.rollBack(other, OutcomeNotTouched, "rejected by the fence of a provider that confuses the order of tokens")
			}
		}
		c.cycle.Redispatch = true
	default: // no answer: ask again with backoff
		f.Confirm = ""
		f.NextTry = c.now + rampAsk.after(f.Tries)
		c.timers.add(f.NextTry, timerFence, p.Name)
	}
}

// unresolved keeps an operation whose confirming attempt had no answer in the fence's hands.
func (f *fence) unresolved(o *operation) bool { return f.Suspect && slices.Contains(f.Refused, o.ID) }

func (c *commands) fenceTimer(name string) { c.confirmFence(c.provider(name)) }

// supersede latches: no command, no pull, no instruction from here on, for the life of the process. Machines are left as
// they are (SHARD-20.7).
func (c *commands) supersede(evidence string) {
	if c.superseded != "" {
		return
	}
	c.superseded = evidence
	c.record(Record{Type: RecordFence, Detail: "superseded: " + evidence})
	c.emit(Superseded{Evidence: evidence})
	for _, cl := range c.clusters.ordered {
		if cl.connected() {
			c.emit(CloseSession{Cluster: cl.Name, Session: cl.Session, Code: CodeUnavailable, Reason: "superseded"})
		}
	}
}

package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// want queues a Get. One per machine is queued or under way at a time.
func (c *reconciler) want(providerName, machine string, why getPurpose) {
	p := c.provider(providerName)
	if old, queued := p.wanted[machine]; queued {
		p.wanted[machine] = max(old, why)
		return
	}
	p.wanted[machine] = why
	p.asked = append(p.asked, want{machine})
}

// sendGets sends queued Gets within the limit of the provider (SHARD-13.1).
func (c *reconciler) sendGets(p *provider) {
	for p.Gets < getConcurrency && len(p.asked) > 0 {
		id := p.asked[0].machine
		p.asked = p.asked[1:]
		why, ok := p.wanted[id]
		if !ok {
			continue
		}
		c.gets++
		c.getsByID[c.gets] = &get{provider: p.Name, machine: id, purpose: why, asked: c.mutations}
		p.Gets++
		c.emit(GetMachine{Get: c.gets, Provider: p.Name, Machine: id, Timeout: getTimeout})
	}
}

// getDone takes the answer to a Get.
func (c *reconciler) getDone(e GetDone) {
	g := c.getsByID[e.Get]
	if g == nil {
		return
	}
	delete(c.getsByID, e.Get)
	p := c.provider(g.provider)
	p.Gets--
	why := max(p.wanted[g.machine], g.purpose)
	delete(p.wanted, g.machine)
	if e.Rejected != "" {
		c.rejectMachine(RejectedID{ID: g.machine, Reason: e.Rejected, Text: e.Error}, p)
		e.Row = nil
	}
	if e.Row != nil {
		e.Row.Machine.Provider = p.Name
	}
	if why == getForMove && (e.Row != nil || e.NotFound || e.Code != CodeOK) {
		defer c.coord.moveAnswered(g.machine, e.Row)
	}
	if e.Code != CodeOK && !e.NotFound {
		p.LastError, p.ErrorAt = "Get: "+e.Code.String()+": "+clipText(e.Error), c.now
	}
	if o := c.ops.byMachine[g.machine]; o != nil && o.Phase == phaseAsking {
		if c.gets > 0 && g.asked >= c.cols.mutationOf(o.Index) {
			c.commands.answered(o, e)
		} else {
			c.want(p.Name, g.machine, getForOperation)
		}
		c.admin.answerGetWaiters(g.machine, e)
		return
	}
	i, known := c.world.Inventory.Find(g.machine)
	switch {
	case e.NotFound:
		if known && !c.commandInFlight(g.machine) && c.cols.at(i).mutation <= g.asked && why != getForOwed {
			c.goneByGet(p, i, why)
		}
	case e.Row != nil:
		if c.merger.merge(*e.Row, g.asked) == mergedSetAside {
			p.owed[g.machine] = true
		} else {
			delete(p.owed, g.machine)
		}
	case why == getForOwed:
		p.owed[g.machine] = true // no answer: still owed
	}
	c.admin.answerGetWaiters(g.machine, e)
}

// goneByGet removes a machine that Get does not know. An unbound one needs the full List to say so too, unless somebody
// asked for exactly this machine.
func (c *reconciler) goneByGet(p *provider, i inventory.Index, why getPurpose) {
	if c.world.Inventory.Foreign(i) {
		c.machines.removeMachine(i)
		return
	}
	c.commands.vanish(i, "Get reports that it does not exist")
}

// requestOwed fetches a machine whose facts were set aside while its operation ran: the cursor has moved past that delta
// and it never comes again (SHARD-13.7).
func (c *reconciler) requestOwed(o *operation) {
	p := c.provider(o.Provider)
	if p.owed[o.Machine] {
		delete(p.owed, o.Machine)
		c.want(p.Name, o.Machine, getForOwed)
	}
}

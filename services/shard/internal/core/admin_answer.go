package core

import "strings"

func (c *orders) answer(e AdminAsked, code Code, text string, a any) {
	c.answers = append(c.answers, AdminAnswer{Ask: e.Ask, Code: code, Text: text, Answer: a})
	if e.Check {
		return
	}
	out := "ok"
	if code != CodeOK {
		out = code.String()
	}
	c.record(Record{Type: RecordAdmin, Actor: e.Actor, Machine: e.Machine, Cluster: e.Cluster, Provider: e.Provider, Outcome: out,
		Detail: clipText(strings.TrimSuffix(e.says()+": "+e.Reason+"; "+text, "; "))})
}

func (c *orders) waitForGet(e AdminAsked, name string) {
	if c.gets == nil {
		c.gets = map[string][]AdminAsked{}
	}
	c.gets[e.Machine] = append(c.gets[e.Machine], e)
	for _, p := range c.providers {
		if name == "" || p.Name == name {
			c.reconciler.want(p.Name, e.Machine, getForAdmin)
		}
	}
}

// answerGetWaiters completes the orders that waited for a Get of a machine.
func (c *orders) answerGetWaiters(machine string, d GetDone) {
	waiting := c.gets[machine]
	delete(c.gets, machine)
	for _, e := range waiting {
		switch {
		case e.Command == AdminForget:
			c.forgetAfterGet(e, d)
		case d.NotFound:
			c.answer(e, CodeNotFound, "the provider does not know the machine", nil)
		case d.Code != CodeOK:
			c.answer(e, CodeUnavailable, "the provider did not answer: "+d.Code.String(), nil)
		default:
			c.answer(e, CodeOK, "", nil)
		}
	}
}

// answerReconcile completes orders that waited for a full List.
func (c *orders) answerReconcile(p *provider, l *list) {
	waiting := p.Waiters
	p.Waiters = nil
	for _, ask := range waiting {
		if c.done[ask]--; c.done[ask] > 0 {
			continue
		}
		delete(c.done, ask)
		held := 0
		for _, q := range c.providers {
			held += q.Held
		}
		c.answers = append(c.answers, AdminAnswer{Ask: ask, Answer: Reconciled{Machines: c.world.Inventory.Len(), Held: held}})
	}
}

func (c *orders) answerReconcileFailed(p *provider) {
	waiting := p.Waiters
	p.Waiters = nil
	for _, ask := range waiting {
		if _, open := c.done[ask]; open {
			delete(c.done, ask)
			c.answers = append(c.answers, AdminAnswer{Ask: ask, Code: CodeUnavailable, Text: "the provider did not answer: " + p.LastError})
		}
	}
}

// anothersMachine is the answer to orders about a machine that this shard only read of (SHARD-21.6).
const anothersMachine = "another shard owns the machine: send the request to that shard"

// says is the order in words: a reader of the history wants to know what was stopped, and with which pause.
func (e AdminAsked) says() string {
	out := e.Command.String()
	switch e.Command {
	case AdminPause:
		kinds := "every action"
		if len(e.Pause.Kinds) > 0 {
			var names []string
			for _, k := range e.Pause.Kinds {
				names = append(names, k.String())
			}
			kinds = strings.Join(names, ", ")
		}
		out += " " + e.Pause.ID + " of " + kinds
		if e.Pause.Cluster != "" {
			out += " of cluster " + e.Pause.Cluster
		}
		if e.Pause.Provider != "" {
			out += " at provider " + e.Pause.Provider
		}
	case AdminResume:
		out += " " + e.PauseID
	case AdminDryRun:
		if e.DryRun {
			return out + " on"
		}
		return out + " off"
	}
	return out
}

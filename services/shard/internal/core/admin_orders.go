package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// AdminCommand is one order of ShardAdmin (SHARD-24).
type AdminCommand uint8

const (
	AdminPause AdminCommand = iota + 1
	AdminResume
	AdminDryRun
	AdminRetry
	AdminForget
	AdminAcceptRollup
	AdminReconcile
	AdminRetire
	AdminUnretire
	AdminAbandon
	AdminClearBackoff
)

func (a AdminCommand) String() string {
	return [...]string{"", "pause", "resume", "dry_run", "retry_machine", "forget_machine", "accept_rollup", "reconcile_now",
		"retire_cluster", "unretire_cluster", "abandon_reservation", "clear_backoff"}[a]
}

// AdminAsked is an order of a person. What must survive a restart is stored before the core sees it (SHARD-5.4).
type AdminAsked struct {
	Ask     int64        `n:"1"` // answered by AdminAnswer with the same number
	Command AdminCommand `n:"2"`
	Actor   string       `n:"3"`
	Reason  string       `n:"4"`
	Check   bool         `n:"5"` // validate_only: answer, change nothing

	Pause    *Pause        `n:"6"`
	PauseID  string        `n:"7"`
	DryRun   bool          `n:"8"`
	Machine  string        `n:"9"`
	Cluster  string        `n:"10"`
	Provider string        `n:"11"`
	Bound    int64         `n:"12"`
	Pool     string        `n:"13"`
	Row      demand.RowKey `n:"14"`
	RowID    string        `n:"15"`
	Move     string        `n:"16"`
}

// Answers of AdminAnswer.
type (
	// AcceptedRollup answers AdminAcceptRollup.
	AcceptedRollup struct{ Before, After, Surplus int }
	// Reconciled answers AdminReconcile.
	Reconciled struct{ Machines, Rejected, Held int }
	// ForgottenCost answers AdminForget: what the machine cost an hour, in millionths of a dollar.
	ForgottenCost struct{ PriceMicro int64 }
	// Retired answers AdminRetire.
	Retired struct {
		Bound int
		Fresh int64
	}
)

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

// says is the order in words: whoever reads the history wants to know what was stopped, and with which pause.
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

// adminAsked carries out an order.
func (c *orders) adminAsked(e AdminAsked) {
	switch e.Command {
	case AdminPause:
		if !e.Check {
			c.guards.setPause(*e.Pause)
		}
		c.answer(e, CodeOK, "", nil)
	case AdminResume:
		c.adminResume(e)
	case AdminDryRun:
		if !e.Check && c.ctl.DryRun != e.DryRun {
			c.ctl.DryRun = e.DryRun
			c.cycle.Redispatch = true
			c.trigger(triggerAdmin)
		}
		c.answer(e, CodeOK, "", nil)
	case AdminRetry:
		c.adminRetry(e)
	case AdminForget:
		c.adminForget(e)
	case AdminAcceptRollup:
		c.adminAccept(e)
	case AdminReconcile:
		c.adminReconcile(e)
	case AdminRetire:
		c.adminRetire(e)
	case AdminUnretire:
		c.adminUnretire(e)
	case AdminAbandon:
		c.adminAbandon(e)
	case AdminClearBackoff:
		c.adminClear(e)
	default:
		c.answer(e, CodeUnimplemented, "unknown order", nil)
	}
}

func (c *orders) adminResume(e AdminAsked) {
	switch {
	case e.PauseID == "flag":
		c.answer(e, CodeAborted, "this pause is the start-up flag --actuation-paused; restart the shard without it", nil)
		return
	case !slices.ContainsFunc(c.ctl.Pauses, func(p Pause) bool { return p.ID == e.PauseID }):
		c.answer(e, CodeNotFound, "no pause has this id", nil)
		return
	}
	if !e.Check {
		c.guards.liftPause(e.PauseID)
	}
	c.answer(e, CodeOK, "", nil)
}

// anothersMachine is the answer to orders about a machine that this shard only read of (SHARD-21.6).
const anothersMachine = "another shard owns the machine: send the request to that shard"

// adminRetry clears the machine's pauses and asks the provider; the answer is adopted.
func (c *orders) adminRetry(e AdminAsked) {
	f := slices.IndexFunc(c.ctl.Forgotten, func(f Forgotten) bool { return f.Machine == e.Machine })
	i, known := c.world.Inventory.Find(e.Machine)
	if !known && f < 0 {
		c.answer(e, CodeNotFound, "no such machine", nil)
		return
	}
	if known && c.world.Inventory.Foreign(i) {
		c.answer(e, CodeNotFound, anothersMachine, nil)
		return
	}
	if e.Check {
		c.answer(e, CodeOK, "", nil)
		return
	}
	name := e.Provider
	if known {
		m := c.world.Inventory.Machine(i)
		name = m.Provider
		delete(c.guards.backoffs, e.Machine)
		c.guards.mark(i)
		c.pools.clearPool(PoolKey(m.Provider, m.InstanceType, m.Zone, m.CapacityType))
	}
	if f >= 0 {
		c.ctl.Forgotten = slices.Delete(slices.Clone(c.ctl.Forgotten), f, f+1)
		c.emit(Persist{Bucket: BucketForgotten, Key: e.Machine})
	}
	c.waitForGet(e, name)
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

func (c *orders) adminReconcile(e AdminAsked) {
	n := 0
	for _, p := range c.providers {
		if e.Provider != "" && p.Name != e.Provider {
			continue
		}
		n++
		if e.Check {
			continue
		}
		p.NextList = c.now
		p.Waiters = append(p.Waiters, e.Ask)
		c.reconciler.requestList(p, true)
	}
	switch {
	case n == 0:
		c.answer(e, CodeNotFound, "no such provider", nil)
	case e.Check:
		c.answer(e, CodeOK, "", nil)
	default:
		if c.done == nil {
			c.done = map[int64]int{}
		}
		c.done[e.Ask] = n
		c.record(Record{Type: RecordAdmin, Actor: e.Actor, Provider: e.Provider, Outcome: "ok", Detail: "reconcile_now: " + e.Reason})
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

// adminAbandon drops the reservation of a move that the coordinator will not end.
func (c *orders) adminAbandon(e AdminAsked) {
	at := slices.IndexFunc(c.ctl.Reservations, func(r Reservation) bool { return r.Move == e.Move })
	if at < 0 {
		c.answer(e, CodeNotFound, "no reservation for this move", nil)
		return
	}
	r := c.ctl.Reservations[at]
	if !e.Check {
		c.coord.dropReservation(r.Move)
		c.takeBack(r.Move)
	}
	c.answer(e, CodeOK, "", r)
}

// takeBack makes the machines this shard's again that its view gives to the recipient of a move. A view names them from
// the reservation on, and the coordinator that could send another one may be gone.
func (c *orders) takeBack(move string) {
	given := func(x Exception) bool { return x.Move == move }
	if c.ctl.View == nil || !slices.ContainsFunc(c.ctl.View.Out, given) {
		return
	}
	v := c.coord.editView()
	v.Out = slices.DeleteFunc(v.Out, given)
	c.emit(c.coord.keepView())
	c.ownership.reownAll()
	c.trigger(triggerAdmin)
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

// keptCoordinator is what a checkpoint keeps of the coordinator as it is.
type keptCoordinator struct {
	Decommissioned bool                 `n:"1"`
	Disputed       bool                 `n:"2"`
	Plain          bool                 `n:"3"`  // a coordinator that does not partition has answered
	Alone          bool                 `n:"11"` // no coordinator has answered for so long that this shard is the only one (COORD-9.10)
	Text           string               `n:"4"`
	Address        string               `n:"5"`
	RepliedAt      int64                `n:"6"`
	Quotas         bool                 `n:"9"`
	Waiting        []pendingInstruction `n:"7"` // instructions that cannot be answered yet
}

// KeyRemoved is where the bucket "control" keeps that this shard was removed from the fleet.
const KeyRemoved = "removed"

// frozen reports that the coordinator said that this process must start nothing: the shard was removed, or another process with a
// higher epoch runs under its id.
func (c *coordinatorState) frozen() bool { return c.Decommissioned || c.Disputed }

// pendingInstruction is one whose answer waits for operations or Gets.
type pendingInstruction struct {
	Instruction Instruction `n:"1"`
	Deadline    int64       `n:"2"`
	Pending     []string    `n:"3"` // machines still to be looked at
	Taken       []string    `n:"4"`
}

// CoordinatorStatus describes the coordinator client's side of the core.
type CoordinatorStatus struct {
	Lineage        Lineage
	View           *View
	RepliedAt      int64
	Decommissioned bool
	Disputed       bool
	Text           string
	Address        string
	Error          string // of the last report; filled in by the shell
	Domains        []DomainRef
	Reservations   []Reservation
}

func (c *coordinatorState) coordStatus() CoordinatorStatus {
	return CoordinatorStatus{Lineage: c.ctl.Coordinator, View: c.ctl.View, RepliedAt: c.RepliedAt, Decommissioned: c.Decommissioned,
		Disputed: c.Disputed, Text: c.Text, Address: c.Address, Domains: c.ctl.Domains, Reservations: c.ctl.Reservations}
}

// How long a view may wait for operations on machines that it takes away (COORD-9.9f), and a transfer for its Gets.
const (
	viewPatience     = 10 * Minute
	transferPatience = Minute
)

// coordinatorReplied takes the answer to a report. A coordinator that is gone changes nothing (SHARD-2.2).
func (c *coordinatorState) coordinatorReplied(e CoordinatorReplied) {
	if e.Failed {
		if e.Decommissioned && !c.Decommissioned || e.EpochDisputed && !c.Disputed { // silence takes neither back (SHARD-21.7)
			c.Decommissioned, c.Disputed = c.Decommissioned || e.Decommissioned, c.Disputed || e.EpochDisputed
			c.Text = e.Text
			if e.Decommissioned {
				c.ctl.Removed = e.Text
				c.emit(Persist{Bucket: BucketControl, Key: KeyRemoved, Value: []byte(e.Text)})
			}
			c.record(Record{Type: RecordInstruction, Detail: e.Text})
			c.cycle.Redispatch = true
		}
		return
	}
	if e.Term != 0 && e.Term < c.ctl.Coordinator.Term {
		return // a reply of the past is dropped whole (COORD-7.12)
	}
	if c.frozen() {
		if c.ctl.Removed != "" {
			c.ctl.Removed = ""
			c.emit(Persist{Bucket: BucketControl, Key: KeyRemoved})
		}
		c.Decommissioned, c.Disputed, c.Text = false, false, ""
		c.cycle.Redispatch = true
		c.trigger(triggerAdmin)
	}
	c.ctl.Coordinator.Term = max(c.ctl.Coordinator.Term, e.Term)
	if e.UUID != "" {
		c.ctl.Coordinator.UUID = e.UUID
	}
	c.RepliedAt, c.Address = c.now, e.Address
	if plain := e.UUID == "" && c.ctl.Coordinator.UUID == ""; plain != c.Plain {
		c.Plain = plain
		c.ownership.reownAll()
	}
	for _, x := range e.Instructions {
		c.instruction(x)
	}
}

// instruction answers one order by the rules of COORD-8.4. Handlers are idempotent without the done set too.
func (c *coordinatorState) instruction(x Instruction) {
	switch i := slices.IndexFunc(c.ctl.Done, func(d DoneAck) bool { return d.ID == x.ID }); {
	case x.ID == "" || c.isWaiting(x.ID):
		return
	case i >= 0:
		again := c.ctl.Done[i] // the newest now: what is asked for again is forgotten last
		c.ctl.Done = append(slices.Delete(slices.Clone(c.ctl.Done), i, i+1), again)
		c.emit(AckInstruction{ID: x.ID, Term: x.Term, Outcome: InstructionAccepted, Reason: "duplicate", Machines: again.Machines})
		return
	case x.Term != 0 && x.Term < c.ctl.Coordinator.Term:
		c.reply(x, InstructionStale, "a higher term is known", nil)
		return
	case x.Invalid != "":
		c.reply(x, InstructionInvalid, x.Invalid, nil)
		return
	}
	switch {
	case x.SetView != nil:
		c.setView(x)
	case x.Assign != nil:
		c.assign(x, *x.Assign, true)
	case x.Unassign != nil:
		c.assign(x, *x.Unassign, false)
	case x.ReleaseCluster != "":
		c.releaseCluster(x)
	case x.Reserve != nil:
		c.reserve(x)
	case x.Transfer != nil:
		c.transfer(x)
	case x.CancelMove != "":
		c.cancelMove(x)
	default:
		c.reply(x, InstructionInvalid, "unsupported", nil)
	}
}

func (c *coordinatorState) isWaiting(id string) bool {
	return slices.ContainsFunc(c.Waiting, func(w pendingInstruction) bool { return w.Instruction.ID == id })
}

// reply answers an instruction. What must survive a restart is in the effect, and the shell stores it before the answer
// leaves.
func (c *coordinatorState) reply(x Instruction, o InstructionOutcome, reason string, machines []string, keep ...Persist) {
	a := AckInstruction{ID: x.ID, Term: x.Term, Outcome: o, Reason: reason, Machines: machines, Retryable: true, Store: keep}
	if o == InstructionAccepted {
		c.ctl.Done = append(slices.Clone(c.ctl.Done), DoneAck{ID: x.ID, Machines: machines})
		if n := len(c.ctl.Done) - instructionsDone; n > 0 {
			c.ctl.Done = c.ctl.Done[n:]
		}
		a.Store = append(a.Store, Persist{Bucket: BucketControl, Key: "done", Value: codec.Marshal(DoneSet{c.ctl.Done})})
	}
	c.sample(MetricInstructions, o.String(), 1)
	c.record(Record{Type: RecordInstruction, Outcome: o.String(), Detail: clipText(fmt.Sprintf("%s: %s %s", x.ID, x.kind(), reason))})
	c.emit(a)
}

func (o InstructionOutcome) String() string {
	return [...]string{"none", "accepted", "rejected_stale", "rejected_invalid", "failed"}[o]
}

func (x *Instruction) kind() string {
	switch {
	case x.SetView != nil:
		return "set_view"
	case x.Assign != nil:
		return "assign_domain"
	case x.Unassign != nil:
		return "unassign_domain"
	case x.ReleaseCluster != "":
		return "release_cluster"
	case x.Reserve != nil:
		return "reserve_machines"
	case x.Transfer != nil:
		return "transfer"
	case x.CancelMove != "":
		return "cancel_move"
	}
	return "unknown"
}

func newer(a, b *View) bool {
	return b == nil || cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index)) > 0
}

func (c *coordinatorState) keepView() Persist {
	return Persist{Bucket: BucketControl, Key: "view", Value: codec.Marshal(c.ctl.View)}
}

// setView obeys a newer view. The answer waits until no operation of ours is open on a machine that it takes away.
func (c *coordinatorState) setView(x Instruction) {
	if !newer(x.SetView, c.ctl.View) {
		c.reply(x, InstructionAccepted, "an equal or newer view is in force", nil)
		return
	}
	v := *x.SetView
	v.Under = c.cfg.ProviderAddress
	c.keepAdopted(&v)
	c.ownership.keepReturned(&v)
	c.ownership.keepHome(&v)
	c.ctl.View = &v
	c.record(Record{Type: RecordOwnership, Detail: fmt.Sprintf("view %d/%d: %d domains, default owner %v, only shard %v",
		v.Term, v.Index, len(v.Owned), v.DefaultOwner, v.OnlyShard)})
	c.emit(c.keepView())
	c.ownership.reownAll()
	c.ownership.endExceptions()
	c.rollups.releaseNewcomers()
	c.trigger(triggerAdmin)
	if lost := c.ownership.losing(); len(lost) > 0 {
		c.wait(pendingInstruction{Instruction: x, Deadline: c.now + viewPatience, Pending: lost})
		return
	}
	c.reply(x, InstructionAccepted, "", nil, c.keepView())
}

func (c *coordinatorState) wait(w pendingInstruction) {
	c.Waiting = append(c.Waiting, w)
	c.timers.add(w.Deadline, timerInstruction, w.Instruction.ID)
}

// retryInstructions looks again at the answers that wait: after an operation ended, a Get came, or a deadline passed.
func (c *coordinatorState) retryInstructions() {
	waiting := c.Waiting
	c.Waiting = nil
	for _, w := range waiting {
		if w.Instruction.SetView != nil {
			w.Pending = c.ownership.losing()
		}
		if w.Instruction.Reserve != nil {
			c.drainedFor(&w)
		}
		late := c.now >= w.Deadline
		switch {
		case w.Instruction.SetView != nil && len(w.Pending) == 0:
			c.ownership.reownAll()
			c.reply(w.Instruction, InstructionAccepted, "", nil, c.keepView())
		case w.Instruction.SetView != nil && late:
			c.reply(w.Instruction, InstructionFailed, "operations are still open on machines that the view takes away", w.Pending)
		case w.Instruction.Transfer != nil && (len(w.Pending) == 0 || late):
			c.adopted(w)
		case w.Instruction.Reserve != nil && (len(w.Pending) == 0 || late):
			c.evicted(w)
		default:
			c.Waiting = append(c.Waiting, w)
		}
	}
}

// assign changes the owned domains by one, for coordinators without views.
func (c *coordinatorState) assign(x Instruction, d DomainRef, add bool) {
	list := slices.DeleteFunc(slices.Clone(c.ctl.Domains), func(o DomainRef) bool { return o == d })
	if add {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b DomainRef) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
	})
	c.ctl.Domains = list
	c.ownership.reownAll()
	c.reply(x, InstructionAccepted, "", nil, Persist{Bucket: BucketControl, Key: "domains", Value: codec.Marshal(DomainSet{list})})
}

// releaseCluster lets go of a cluster that moved to another shard (COORD-10.5).
func (c *coordinatorState) releaseCluster(x Instruction) {
	cl := c.clusters.get(x.ReleaseCluster)
	if cl == nil {
		c.reply(x, InstructionAccepted, "", nil)
		return
	}
	if cl.connected() {
		c.reply(x, InstructionFailed, "the cluster has a live session here", nil)
		return
	}
	for _, o := range c.ops.ordered() {
		if o.Cluster == cl.Name {
			c.reply(x, InstructionFailed, "operations are open on the cluster's machines", []string{o.Machine})
			return
		}
	}
	delete(c.home, cl.Name)
	c.rollups.unstage(cl)
	c.world.Demand.Remove(cl.Name)
	cl.Known, cl.Hash, cl.Rows, cl.Totals, cl.GateOpen, cl.facts = false, "", 0, nil, false, true
	cl.changed()
	c.trigger(triggerAdmin)
	c.reply(x, InstructionAccepted, "", nil)
}

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

// frozen reports that the coordinator said that this process must start nothing: the shard was removed, or another process with a
// higher epoch runs under its id.
func (c *coordinatorState) frozen() bool { return c.Decommissioned || c.Disputed }

func (c *coordinatorState) coordStatus() CoordinatorStatus {
	return CoordinatorStatus{Lineage: c.ctl.Coordinator, View: c.ctl.View, RepliedAt: c.RepliedAt, Decommissioned: c.Decommissioned,
		Disputed: c.Disputed, Text: c.Text, Address: c.Address, Domains: c.ctl.Domains, Reservations: c.ctl.Reservations}
}

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

func newer(a, b *View) bool {
	return b == nil || cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index)) > 0
}

// sentence says what a view lets this shard own.
func (v *View) sentence() string {
	owned := "This shard owns "
	switch {
	case v.OnlyShard:
		owned += "all machines of its provider"
	case v.DefaultOwner && len(v.Owned) == 0:
		owned += "the machines that no other shard owns"
	default:
		owned += strconv.Itoa(len(v.Owned)) + " domain"
		if len(v.Owned) != 1 {
			owned += "s"
		}
		if v.DefaultOwner {
			owned += ", and the machines that no other shard owns"
		}
	}
	return fmt.Sprintf("%s now (view %d/%d).", owned, v.Term, v.Index)
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
	c.record(Record{Type: RecordOwnership, Detail: v.sentence()})
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
		c.reply(x, InstructionFailed, "the cluster has an open session with this shard", nil)
		return
	}
	for _, o := range c.ops.ordered() {
		if o.Cluster == cl.Name {
			c.reply(x, InstructionFailed, "operations are running on the cluster's machines", []string{o.Machine})
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

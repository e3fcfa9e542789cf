package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

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
	c.record(Record{Type: RecordInstruction, Outcome: o.String(), Detail: clipText(x.sentence(o, reason))})
	c.emit(a)
}

func (c *coordinatorState) isWaiting(id string) bool {
	return slices.ContainsFunc(c.Waiting, func(w pendingInstruction) bool { return w.Instruction.ID == id })
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
			c.reply(w.Instruction, InstructionFailed, "operations are still running on machines that the view assigns to another shard", w.Pending)
		case w.Instruction.Transfer != nil && (len(w.Pending) == 0 || late):
			c.adopted(w)
		case w.Instruction.Reserve != nil && (len(w.Pending) == 0 || late):
			c.evicted(w)
		default:
			c.Waiting = append(c.Waiting, w)
		}
	}
}

func (c *coordinatorState) keepView() Persist {
	return Persist{Bucket: BucketControl, Key: "view", Value: codec.Marshal(c.ctl.View)}
}

func (o InstructionOutcome) String() string {
	return [...]string{"none", "accepted", "rejected_stale", "rejected_invalid", "failed"}[o]
}

// sentence says what the coordinator wanted, and what the answer was.
func (x *Instruction) sentence(o InstructionOutcome, reason string) string {
	if reason != "" {
		reason = ", " + reason
	}
	return fmt.Sprintf("The coordinator asked this shard to %s: %s%s (%s).", x.kind(), strings.ReplaceAll(o.String(), "_", " "), reason, x.ID)
}

func (x *Instruction) kind() string {
	switch {
	case x.SetView != nil:
		return "own what the coordinator states"
	case x.Assign != nil:
		return "own a domain"
	case x.Unassign != nil:
		return "give up a domain"
	case x.ReleaseCluster != "":
		return "let a cluster go to another shard"
	case x.Reserve != nil:
		return "reserve machines for another shard"
	case x.Transfer != nil:
		return "hand machines over"
	case x.CancelMove != "":
		return "cancel a move"
	}
	return "do what it does not know"
}

// How long a view may wait for operations on machines that it takes away (COORD-9.9f), and a transfer for its Gets.
const (
	viewPatience     = 10 * Minute
	transferPatience = Minute
)

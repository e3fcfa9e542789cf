package sim

import (
	"fmt"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// Timeline keeps what happened, in words.
type Timeline struct {
	Lines []Line
	Max   int // oldest lines go first; 0: all are kept
	last  map[string]string
}

// Line is one thing that happened.
type Line struct {
	At, Step         int64
	Machine, Cluster string
	Text             string
	Dull             bool // says nothing new: what was already known, said again
}

func (t *Timeline) add(l Line) {
	t.Lines = append(t.Lines, l)
	if t.Max > 0 && len(t.Lines) > 2*t.Max {
		t.Lines = append(t.Lines[:0], t.Lines[len(t.Lines)-t.Max:]...)
	}
}

// About renders the last lines that concern a machine, a cluster, or all of them.
func (t *Timeline) About(machine, cluster string, most int) string {
	var keep []Line
	for _, l := range t.Lines {
		if l.Dull {
			continue
		}
		all := l.Machine == "" && l.Cluster == ""
		if all || machine != "" && l.Machine == machine || machine == "" && l.Cluster == cluster || l.Machine == "" && l.Cluster == cluster {
			keep = append(keep, l)
		}
	}
	keep = keep[max(0, len(keep)-most):]
	var b strings.Builder
	for _, l := range keep {
		fmt.Fprintf(&b, "%s  step %-6d %s\n", clock(l.At), l.Step, l.Text)
	}
	return b.String()
}

// dull marks the last line as saying nothing new if the subject was last said to be the same.
func (w *world) dull(subject, value string) {
	if w.log.last == nil {
		w.log.last = map[string]string{}
	}
	w.log.Lines[len(w.log.Lines)-1].Dull = w.log.last[subject] == value
	w.log.last[subject] = value
}

func (w *world) logEvent(p *process, e core.Event) {
	switch e := e.(type) {
	case core.SessionOpened:
		w.note("", e.Cluster, "> %s session %d of %s opened", p.name, e.Session, e.Cluster)
	case core.SessionClosed:
		w.note("", e.Cluster, "> %s session %d of %s closed: %s", p.name, e.Session, e.Cluster, e.Reason)
	case core.RollupArrived:
		if e.Reject != nil {
			w.note("", e.Cluster, "> roll-up of %s, malformed", e.Cluster)
		} else {
			w.note("", e.Cluster, "> roll-up of %s: %s", e.Cluster, rowsText(e.Rows))
			w.dull(e.Cluster, e.Hash)
		}
	case core.BootstrapAnswered:
		w.note("", e.Cluster, "> bootstrap answer %s of %s, ttl %s, error %q", e.Request, e.Cluster, clock(e.TTL), e.Error)
	case core.ReclaimAcked:
		w.note("", e.Cluster, "> ack of instruction %s by %s, %d nodes", e.Instruction, e.Cluster, e.NodesStarted)
	case core.NodeReported:
		w.note(e.Machine, e.Cluster, "> node of %s: present %v, ready %v", e.Machine, e.Present, e.Ready)
	case core.ListPage:
		for i := range e.Rows {
			m := &e.Rows[i].Machine
			w.note(m.ID, m.Cluster, "> List %d shows %s %s %s", e.List, m.ID, m.State, m.Cluster)
			w.dull(m.ID, m.State.String()+m.Cluster)
		}
	case core.ListDone:
		w.note("", "", "> List %d ends: failed %v, complete %v, removed %v", e.List, e.Failed, e.Complete, e.Removed)
		w.dull("list", fmt.Sprint(e.Failed, e.Removed))
	case core.GetDone:
		switch {
		case e.Row != nil:
			w.note(e.Machine, e.Row.Machine.Cluster, "> Get shows %s %s %s", e.Machine, e.Row.Machine.State, e.Row.Machine.Cluster)
		default:
			w.note(e.Machine, "", "> Get of %s: not found %v, %s", e.Machine, e.NotFound, e.Code)
		}
	case core.CommandDone:
		state := ""
		if e.Ack != nil {
			state = e.Ack.Machine.State.String()
		}
		w.note(e.Machine, "", "> %s of %s ends: %s %s, sent %v, ack %s %s", e.Op, e.Machine, e.Code, e.Detail, e.Sent, state, e.AckRejected)
	case core.AdminAsked:
		w.note(e.Machine, e.Cluster, "> person asks %s %s %s", e.Command, e.Machine, e.Cluster)
	case core.Stopping:
		w.note("", "", "> stopping")
	}
}

func (w *world) logEffect(p *process, x core.Effect) {
	switch x := x.(type) {
	case core.Command:
		w.note(x.Machine, x.Cluster, "< %s %s attempt %d: %s %s %s", p.name, x.Op, x.Attempt, x.RPC, x.Machine, x.Cluster)
	case core.PullBootstrap:
		w.note(x.Machine.ID, x.Cluster, "< pull %s of %s for %s", x.Request, x.Cluster, x.Machine.ID)
	case core.SendReclaim:
		w.note(x.Machine, x.Cluster, "< instruct %s: %s of %s, cancelled %v", x.Instruction, x.Machine, x.Cluster, x.Cancelled)
	case core.SendNodeState:
		w.note(x.Machine.ID, x.Cluster, "< tell %s: %s is %s, released %v", x.Cluster, x.Machine.ID, x.Machine.State, x.Released)
	case core.SendAck:
		if x.Rollup != nil {
			w.note("", x.Cluster, "< %s to %s: %s", x.Echo, x.Cluster, x.Rollup.Disposition)
			w.log.Lines[len(w.log.Lines)-1].Dull = x.Rollup.Disposition == core.DispositionUnchanged
		}
	case core.GetMachine:
		w.note(x.Machine, "", "< Get %s", x.Machine)
	case core.ListMachines:
		w.note("", "", "< List %d of %s, cursor %d bytes", x.List, x.Provider, len(x.Cursor))
		w.log.Lines[len(w.log.Lines)-1].Dull = true
	case core.Record:
		w.note(x.Machine, x.Cluster, "= %s %s %s %s %s [%s] %s %s", recordName(x.Type), x.Kind, x.Machine, x.Cluster, x.Cause, x.RowID, x.Outcome, x.Detail)
	case core.Superseded:
		w.note("", "", "< %s is superseded: %s", p.name, x.Evidence)
	}
}

func recordName(t core.RecordType) string {
	return [...]string{"", "started", "ended", "suppressed", "dry-run", "rollup-accepted", "rollup-held", "rollup-rejected", "gate-opened", "machine-rejected",
		"unexpected-edge", "binding-conflict", "machine-vanished", "machine-stuck", "machine-failed", "machine-recovered", "backoff-changed", "removals-held",
		"fence", "session-opened", "session-closed", "instruction", "admin", "ownership", "process", "interruption"}[t]
}

func rowsText(rows []demand.Row) string {
	var b strings.Builder
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, " %s(p%d", r.RowID, r.Profile.Priority)
		if r.Group != "" {
			b.WriteString(" gang")
		}
		for _, q := range r.Aggregate {
			if q.Name == "memory" {
				fmt.Fprintf(&b, " mem=%dGi", q.Milli/1000>>30)
			} else {
				fmt.Fprintf(&b, " %s=%dm", q.Name, q.Milli)
			}
		}
		b.WriteString(")")
	}
	return b.String()
}

package sim

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// ask gives the core an order of a person.
func (s *shard) ask(a core.AdminAsked) {
	w, p := s.w, s.proc
	if p == nil || p.frozen {
		return
	}
	w.asks++
	a.Ask, a.Actor, a.Reason = w.asks, "person", "simulated"
	s.open[a.Ask] = a
	w.after(millisecond, func() { p.step(a) })
}

// answered stores what an order changed for good.
func (s *shard) answered(p *process, x core.AdminAnswer) {
	a, known := s.open[x.Ask]
	delete(s.open, x.Ask)
	if !known || x.Code != core.CodeOK || !p.owns {
		return
	}
	switch a.Command {
	case core.AdminRetire:
		if !slices.Contains(s.disk.retired, a.Cluster) {
			s.disk.retired = append(s.disk.retired, a.Cluster)
			slices.Sort(s.disk.retired)
		}
	case core.AdminForget:
		if m := s.w.machine(a.Machine); m != nil {
			s.disk.forgotten = append(s.disk.forgotten, core.Forgotten{Machine: a.Machine, State: uint8(m.State)})
			slices.SortFunc(s.disk.forgotten, func(a, b core.Forgotten) int { return compare(a.Machine, b.Machine) })
		}
	case core.AdminRetry:
		s.disk.forgotten = slices.DeleteFunc(s.disk.forgotten, func(f core.Forgotten) bool { return f.Machine == a.Machine })
	}
}

func (w *world) strikePeople(f Fault, r *random) {
	s := w.struckShard(r)
	p := s.proc
	if p == nil || p.frozen {
		return
	}
	switch f {
	case AdminPause:
		s.pause(r)
	case AdminDryRun:
		w.struck(f, "", "", "dry run for a while")
		s.setDryRun(true)
		w.after(r.between(10*second, 5*minute), func() { s.setDryRun(false) })
	case AdminRetry, AdminForget:
		ids := p.core.Ids("", 1<<20)
		if len(ids) == 0 {
			return
		}
		id := pick(r, ids)
		w.struck(f, id, "", "%s", id)
		a := core.AdminAsked{Command: core.AdminRetry, Machine: id}
		if f == AdminForget {
			a.Command = core.AdminForget
		}
		s.ask(a)
	case AdminReconcile:
		w.struck(f, "", "", "all providers")
		s.ask(core.AdminAsked{Command: core.AdminReconcile})
	case AdminAccept:
		for _, c := range s.clusters {
			if !c.wiped { // a person looks before accepting
				w.struck(f, "", c.name, "%s", c.name)
				s.check.acceptedByPerson(c.name)
				s.ask(core.AdminAsked{Command: core.AdminAcceptRollup, Cluster: c.name})
				return
			}
		}
	case AdminClear:
		w.struck(f, "", "", "all pauses")
		s.clearBackoffs()
	case AdminRetire:
		s.retire(r)
	}
}

// pause stores a pause and then tells the core, in the order of SHARD-5.4.
func (s *shard) pause(r *random) {
	w := s.w
	ps := core.Pause{ID: fmt.Sprintf("pause-%d", w.steps), Reason: "simulated", Actor: "person", Created: w.wall()}
	switch r.intn(4) {
	case 0:
		ps.Cluster = s.clusters[r.intn(len(s.clusters))].name
	case 1:
		ps.Kinds = []core.Kind{core.KindReclaim}
	}
	d := r.between(10*second, 8*minute)
	if r.chance(.3) {
		ps.TTL, ps.Expires = d, w.wall()+d
	}
	w.struck(AdminPause, "", ps.Cluster, "%s for %s", ps.ID, clock(d))
	s.disk.pauses[ps.ID] = ps
	s.ask(core.AdminAsked{Command: core.AdminPause, Pause: &ps})
	if ps.TTL == 0 {
		w.after(d, func() { s.resume(ps.ID) })
	}
}

// resume ends a pause. A process that is frozen does not answer: the pause stays on disk, and who tidies up ends it.
func (s *shard) resume(id string) {
	if s.proc != nil && s.proc.frozen {
		return
	}
	delete(s.disk.pauses, id)
	s.ask(core.AdminAsked{Command: core.AdminResume, PauseID: id})
}

func (s *shard) setDryRun(on bool) {
	s.disk.dryRun = on
	s.ask(core.AdminAsked{Command: core.AdminDryRun, DryRun: on})
}

func (s *shard) clearBackoffs() {
	for _, p := range s.w.providers {
		s.ask(core.AdminAsked{Command: core.AdminClearBackoff, Provider: p.name})
	}
	for _, c := range s.clusters {
		s.ask(core.AdminAsked{Command: core.AdminClearBackoff, Cluster: c.name})
	}
}

// retire declares a cluster dead whose operator is away; a wrong count is refused, and so is a live cluster.
func (s *shard) retire(r *random) {
	w, c := s.w, s.clusters[r.intn(len(s.clusters))]
	n := int64(0)
	for _, p := range w.providers {
		for _, m := range p.order {
			if m.Cluster == c.name && bound(m.State) {
				n++
			}
		}
	}
	if r.chance(.2) {
		n += 5
	}
	w.struck(AdminRetire, "", c.name, "%s with %d machines", c.name, n)
	s.check.retireAsked(c.name)
	s.ask(core.AdminAsked{Command: core.AdminRetire, Cluster: c.name, Bound: n})
}

// peopleTidyUp is what people do once the trouble is over: nothing stays paused, forgotten or in a long backoff.
func (s *shard) peopleTidyUp() {
	s.setDryRun(false)
	for _, id := range sortedKeys(s.disk.pauses) {
		s.resume(id)
	}
	for _, f := range s.disk.forgotten {
		s.ask(core.AdminAsked{Command: core.AdminRetry, Machine: f.Machine})
	}
	s.clearBackoffs()
	s.w.after(10*minute, s.clearBackoffs)
}

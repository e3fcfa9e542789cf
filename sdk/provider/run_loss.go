package provider

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// losses counts rounds in which hosts were missing, and holds back what would be too many at once.
type losses struct {
	mu      sync.Mutex
	missing map[string]int  // rounds in a row, by machine
	hints   map[string]bool // reported gone by a definite answer
	held    []string        // machines whose loss the guard holds back
}

// hint notes a definite "gone"; the next complete round confirms it (PROV-17.4).
func (l *losses) hint(machine string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hints == nil {
		l.hints = map[string]bool{}
	}
	l.hints[machine] = true
}

func (l *losses) holding() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.held)
}

// judge returns the machines that are lost now. hosts is the number of hosts expected. present says whether a round saw the host
// of a machine, or cannot know. What the substrate itself called gone, and no round sees, is proven twice: the guard is
// about hosts that are merely missing (PROV-17.5).
func (l *losses) judge(absent map[string]bool, present func(id string) bool, hosts, rounds int) (lost []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, hints := map[string]int{}, map[string]bool{}
	for id := range l.hints {
		switch {
		case absent[id]:
			lost = append(lost, id)
		case !present(id):
			hints[id] = true // this round was too early to tell
		}
	}
	var missing []string
	for id := range absent {
		if l.hints[id] {
			continue
		}
		next[id] = l.missing[id] + 1
		if next[id] >= rounds {
			missing = append(missing, id)
		}
	}
	l.missing, l.hints, l.held = next, hints, nil
	if len(missing) > max(3, hosts/10) {
		slices.Sort(missing)
		l.held, missing = missing, nil
	}
	lost = append(lost, missing...)
	slices.Sort(lost)
	return lost
}

// lose fails the machines whose hosts are proven gone.
func (p *Provider) lose(v *view) error {
	absent, hosts := map[string]bool{}, 0
	for row := range p.inventory.All() {
		r := row.Record
		if !r.Host.Present() || !r.Loses() {
			continue
		}
		hosts++
		// A machine that changed after the round began may have a host that the round could not see.
		if !v.seen[r.ID] && r.ChangedAt.Before(v.began) {
			absent[r.ID] = true
		}
	}
	present := func(id string) bool {
		row := p.inventory.Get(id)
		return v.seen[id] || row == nil || !row.Record.Host.Present()
	}
	lost := p.losses.judge(absent, present, hosts, p.set.lossRounds)
	held := p.losses.holding()
	p.metrics.guard.Set(float64(len(held)))
	if len(held) > 0 {
		zones := map[string]int{}
		for _, id := range held {
			if row := p.inventory.Get(id); row != nil {
				zones[row.Record.Shape.Attributes().Zone]++
			}
		}
		message := fmt.Sprintf("%d of %d hosts are missing, by zone %v; none counts as lost until they return or an operator acknowledges the loss (AcknowledgeLoss)", len(held), hosts, zones)
		if p.rejected.news("guard", message) {
			p.log.Error("the loss guard holds", "detail", message)
		}
	}
	return p.giveUp(lost)
}

func (p *Provider) giveUp(ids []string) error {
	batch := p.newBatch()
	now := time.Now()
	for _, id := range ids {
		if err := batch.change(id, func(r *lifecycle.Record) (*lifecycle.Record, bool) {
			if r == nil {
				return nil, false
			}
			next, ok := lifecycle.Lose(r, fmt.Sprintf("%s no longer exists", r.Host.Ref), now)
			if !ok {
				return nil, false
			}
			return next, false
		}); err != nil {
			return err
		}
	}
	if err := batch.flush(); err != nil {
		return err
	}
	for _, id := range batch.done {
		p.metrics.lost.Inc()
		p.metrics.transitions.WithLabelValues("host", "lost").Inc()
		p.histories.add(transition{machine: id, result: lifecycle.Failed, began: now, ended: now, cause: "host lost"})
		p.log.Warn("host lost", "machine", id)
	}
	return nil
}

package publish

import (
	"maps"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/peers"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// kube-scheduler puts a Pod with required affinity only into domains in which the Pods run that it must be near. A row says so once such Pods run
// (OP-5.31). What a row says changes its profile for the shard, so it is said again only while some Pod of the row waits.

const (
	nearEvery   = 500 * time.Millisecond // between two looks
	nearSettle  = 2 * time.Second        // in which the other Pods of a gang follow the first onto its nodes
	nearKept    = time.Minute            // after the last Pod left a domain: it may be back
	nearForget  = 10 * time.Second       // labels of Nodes are read again
	nearMax     = 64                     // domains of a row; in more it is not confined
	nearRowsMax = 10_000                 // terms that are followed; further rows are not confined
)

// near is what decides when a row is confined again.
type near struct {
	rows    map[string]*confined // those that would be confined to other domains now
	looked  time.Time
	again   time.Time // when the next look is due; zero: when something changes
	forgot  time.Time
	changed chan struct{} // an answer of the index may have changed
}

type confined struct {
	since  time.Time            // that the domains differ
	absent map[string]time.Time // domains without the Pods, since when
}

// NearChanged hears that Pods run in other domains. It may be called with any lock held.
func (p *Publisher) NearChanged() {
	select {
	case p.near.changed <- struct{}{}:
	default:
	}
	p.signal()
}

// follow makes the index follow the terms of all rows, and confines new ones at once.
func (p *Publisher) follow(now time.Time) {
	if p.Peers == nil || !p.demand.NearMoved() {
		return
	}
	terms := map[string]peers.Term{}
	var fresh []string
	p.demand.NearRows(func(id string, n *aggregate.Near, _ []string, placed bool) {
		t, ok := peers.TermOf(n.Namespace, n.CoLocation)
		if !ok || len(terms) >= nearRowsMax {
			return
		}
		if terms[id] = t; !placed {
			fresh = append(fresh, id)
		}
	})
	p.Peers.Follow(terms)
	maps.DeleteFunc(p.near.rows, func(id string, _ *confined) bool { _, known := terms[id]; return !known })
	for _, id := range fresh {
		p.place(id, union(p.Peers.Values(id), p.ownDomains(id, terms[id].Key)))
	}
}

// confine confines rows to the domains of now, and returns when it is to be called again; zero: when something changes.
func (p *Publisher) confine(now time.Time) (next time.Time) {
	if p.Peers == nil {
		return time.Time{}
	}
	if now.Sub(p.near.forgot) >= nearForget {
		p.Peers.Forget()
		p.near.forgot = now
	}
	select {
	case <-p.near.changed:
		p.near.again = now
	default:
		if now.Sub(p.near.looked) >= nearForget {
			p.near.again = now
		}
	}
	if due := p.near.looked.Add(nearEvery); p.near.again.IsZero() || now.Before(due) || now.Before(p.near.again) {
		if !p.near.again.IsZero() && p.near.again.Before(due) {
			return due
		}
		return p.near.again
	}
	p.near.looked, p.near.again = now, time.Time{}
	var waits map[string]bool
	later := func(at time.Time) {
		if p.near.again.IsZero() || at.Before(p.near.again) {
			p.near.again = at
		}
	}
	var changes []func()
	p.demand.NearRows(func(id string, n *aggregate.Near, where []string, placed bool) {
		run := p.Peers.Values(id)
		if !placed || slices.Equal(run, where) {
			delete(p.near.rows, id)
			return
		}
		if waits == nil {
			waits = p.waitingRows()
		}
		c := p.differs(id, run, where, now)
		if later(now.Add(nearSettle)); !waits[id] {
			return
		}
		want := union(run, p.ownDomains(id, n.TopologyKey))
		for v, since := range c.absent {
			if at := since.Add(nearKept); now.Before(at) {
				want = union(want, []string{v})
				later(at)
			}
		}
		switch {
		case slices.Equal(want, where) || len(want) > nearMax && len(where) == 0:
		case now.Sub(c.since) < nearSettle:
			later(c.since.Add(nearSettle))
		default:
			changes = append(changes, func() { p.place(id, want) })
		}
	})
	for _, change := range changes {
		change()
		p.touch(true)
	}
	return p.near.again
}

// differs notes since when Pods run in other domains than those that a row is confined to.
func (p *Publisher) differs(id string, run, where []string, now time.Time) *confined {
	c := p.near.rows[id]
	if c == nil {
		c = &confined{since: now, absent: map[string]time.Time{}}
		p.near.rows[id] = c
	}
	for _, v := range where {
		_, noted := c.absent[v]
		switch runs := slices.Contains(run, v); {
		case runs:
			delete(c.absent, v)
		case !noted:
			c.absent[v] = now
		}
	}
	return c
}

// place confines a row.
func (p *Publisher) place(id string, where []string) {
	delete(p.near.rows, id)
	if len(where) > nearMax {
		where = nil
	}
	p.Log.Debug("a row is confined to the domains of the Pods that its own must be near", "row", id, "domains", where)
	p.demand.Place(id, where)
}

// waitingRows are the rows of which some request has no Pod on a node.
func (p *Publisher) waitingRows() map[string]bool {
	out := map[string]bool{}
	for _, pod := range p.Unbound() {
		if r, known := p.byPod[pod.UID]; known {
			out[p.demand.Row(r.key)] = true
		}
	}
	for key := range p.ahead {
		out[p.demand.Row(key)] = true
	}
	return out
}

// ownDomains are those in which Pods of the row run, which keep their nodes.
func (p *Publisher) ownDomains(id, key string) (out []string) {
	nodes := map[string]bool{}
	p.demand.Members(id, func(r *request.Request) bool {
		if _, uid, ok := r.Pod(); ok {
			if pod := p.pod(uid); pod != nil && pod.Node != "" {
				nodes[pod.Node] = true
			}
		}
		return true
	})
	for node := range nodes {
		if v, _ := p.Peers.Label(node, key); v != "" {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// union merges sorted lists.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Confined reports whether a row says in which domains its Pods may be.
func (p *Publisher) Confined(row string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.Placed(row)
}

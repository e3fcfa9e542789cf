package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// take finds n machines in a state that this behaviour does not use yet. They are the first by id, so that two runs with
// one seed make the same calls.
func (c *Case) take(state bigfleetv1alpha1.MachineState, n int) (ids []string) {
	list := c.list(&bigfleetv1alpha1.ListFilter{States: []bigfleetv1alpha1.MachineState{state}})
	machines := list.GetMachines()
	slices.SortFunc(machines, func(a, b *machine) int {
		// What can be given back comes first: bare metal and reserved machines are never deleted (WIRE-7.18).
		return cmp.Or(boolCompare(rented(b), rented(a)), cmp.Compare(a.GetId(), b.GetId()))
	})
	for _, m := range machines {
		if len(ids) == n {
			break
		}
		if _, mine := c.taken[m.GetId()]; !mine && m.GetState() == state {
			c.taken[m.GetId()] = state == speculative
			ids = append(ids, m.GetId())
		}
	}
	return ids
}

func rented(m *machine) bool {
	return m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_ON_DEMAND || m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// slots takes n machines in SPECULATIVE.
func (c *Case) slots(n int) []string {
	ids := c.take(speculative, n)
	if len(ids) < n {
		c.cannot("%d machines in SPECULATIVE are needed; %d were free", n, len(ids))
	}
	return ids
}

// idles takes n machines in IDLE, creating what is missing.
func (c *Case) idles(n int) []string {
	ids := c.take(idle, n)
	if len(ids) < n {
		more := c.take(speculative, n-len(ids))
		for _, id := range more {
			if _, err := c.create(id); err != nil {
				c.failf("Create of %s, a machine in SPECULATIVE: %v", id, err)
			}
		}
		for _, id := range more {
			c.settles(id, lifecycle.Create)
		}
		ids = append(ids, more...)
	}
	if len(ids) < n {
		c.cannot("%d machines in IDLE or SPECULATIVE are needed; %d were free", n, len(ids))
	}
	return ids
}

// bound takes n machines and configures them for the first cluster.
func (c *Case) bound(n int) []string {
	ids := c.idles(n)
	for _, id := range ids {
		c.mustConfigure(id, c.Clusters[0], map[string]string{"purpose": c.behaviour.name})
	}
	return ids
}

func (c *Case) slot() string { return c.slots(1)[0] }
func (c *Case) host() string { return c.idles(1)[0] }
func (c *Case) node() string { return c.bound(1)[0] }

func (c *Case) mustConfigure(id, cluster string, metadata map[string]string) *ack {
	a, err := c.configure(id, cluster, metadata)
	if err != nil {
		c.failf("Configure of %s, a machine in IDLE: %v", id, err)
	}
	c.settles(id, lifecycle.Configure)
	return a
}

func (c *Case) mustDrain(id string) *ack {
	a, err := c.drain(id, 0)
	if err != nil {
		c.failf("Drain of %s, a machine in CONFIGURED: %v", id, err)
	}
	c.settles(id, lifecycle.Drain)
	return a
}

func (c *Case) mustCreate(id string) *ack {
	a, err := c.create(id)
	if err != nil {
		c.failf("Create of %s, a machine in SPECULATIVE: %v", id, err)
	}
	c.settles(id, lifecycle.Create)
	return a
}

func (c *Case) mustDelete(id string) *ack {
	a, err := c.delete(id)
	if err != nil {
		c.failf("Delete of %s, a machine in IDLE: %v", id, err)
	}
	c.settles(id, lifecycle.Delete)
	return a
}

// settles waits until the operation ended well. Only its own in-flight state may be seen on the way (PROV-3.3).
func (c *Case) settles(id string, k kind) *machine {
	m := c.ends(id, k, c.Settle)
	if m.GetState() == failed {
		c.failf("%s of %s ended in FAILED: %s", k, id, m.GetLastError())
	}
	return m
}

// ends waits until the operation ended, well or in FAILED. The limit counts the pauses alone: where a look takes long, because the machine
// that runs suite and provider does other work, there are as many looks.
func (c *Case) ends(id string, k kind, limit time.Duration) *machine {
	edge := k.Edge()
	var paused time.Duration
	for pause := 20 * time.Millisecond; ; pause = min(pause*5/4, 500*time.Millisecond) {
		m := c.get(id)
		switch m.GetState() {
		case edge.To, failed:
			return m
		case edge.Through:
		default:
			c.failf("%s of %s: it was %s between %s and %s", k, id, name(m.GetState()), name(edge.From), name(edge.To))
		}
		if paused > limit {
			c.failf("%s of %s: still %s after %s", k, id, name(m.GetState()), limit)
		}
		c.sleep(pause)
		paused += pause
	}
}

func (c *Case) sleep(d time.Duration) {
	select {
	case <-c.ctx.Done():
		c.cannot("the run was stopped")
	case <-time.After(d):
	}
}

func name(s bigfleetv1alpha1.MachineState) string {
	return strings.TrimPrefix(s.String(), "MACHINE_STATE_")
}

// tidy undoes what the behaviour armed and brings its machines back to where they were (PROV-29.7). What stays FAILED is
// reported at the end of the run; anything else that cannot be brought back is returned.
func (c *Case) tidy() (left string) {
	_, _ = c.play(func(*Case) {
		for _, undo := range slices.Backward(c.undo) {
			undo()
		}
	})
	var lost []string
	for _, id := range slices.Sorted(maps.Keys(c.taken)) { // in one order, so that a seed replays the calls
		if _, why := c.play(func(c *Case) { c.bringBack(id, c.taken[id]) }); why != "" {
			lost = append(lost, id+": "+why)
		}
		c.faults = nil
	}
	slices.Sort(lost)
	return strings.Join(lost, "; ")
}

func (c *Case) bringBack(id string, wasSlot bool) {
	limit := c.Settle + min(c.suite.limit, limitMax) // what hangs ends with the provider's own limit
	const pause = 50 * time.Millisecond
	for paused := time.Duration(0); ; paused += pause { // as in ends
		m, err := c.read(id)
		if codeOf(err) == connect.CodeNotFound {
			return // retired by the provider's own janitor
		}
		if err != nil {
			c.failf("Get: %v", err)
		}
		switch state := m.GetState(); {
		case state == failed, state == speculative, state == idle && (!wasSlot || !c.claims(Cloud)):
			return
		case state == configured:
			_, err = c.drain(id, 0)
		case state == idle:
			_, err = c.delete(id)
		default:
			c.sleep(pause)
		}
		if err != nil && codeOf(err) != connect.CodeAborted && codeOf(err) != connect.CodeInternal {
			c.failf("it stays %s: %v", name(m.GetState()), err)
		}
		if paused > limit {
			c.failf("it stays %s", name(m.GetState()))
		}
	}
}

// refused checks that a call was refused, with another code than FAILED_PRECONDITION, and that the machine is as before.
func (c *Case) refused(what string, before *machine, err error) {
	switch codeOf(err) {
	case ok:
		c.check(false, "%s was accepted", what)
	case connect.CodeFailedPrecondition:
		c.check(false, "%s was rejected with FAILED_PRECONDITION, which means a stale token only", what)
	}
	c.same(what, before)
}

// same checks that nothing a reader can see of the machine changed.
func (c *Case) same(what string, before *machine) {
	if d := difference(before, c.get(before.GetId())); d != "" {
		c.check(false, "%s changed the machine: %s", what, d)
	}
}

package conformance

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

type filter = bigfleetv1alpha1.ListFilter

// needsCursors says whether the target honours since_revision: the revision is there and moves with a change. Below 10,000
// machines a provider may leave that out (PROV-10.7), and then what follows is not judged.
func (c *Case) needsCursors() {
	id := c.host()
	before := c.list(&filter{MaxResults: 1}).GetRevision()
	full := c.list(&filter{}).GetRevision()
	c.mustConfigure(id, c.Clusters[0], nil)
	after := c.list(&filter{}).GetRevision()
	if len(after) > 0 && !bytes.Equal(full, after) {
		return
	}
	if c.suite.inventory.machines > 10_000 {
		c.failf("the revision does not change with the inventory (%x, %x, %x); above 10,000 machines it must", before, full, after)
	}
	c.excused("the revision stays %x: no cursors, which is allowed below 10,000 machines", after)
}

func byID(l *bigfleetv1alpha1.MachineList) map[string]*machine {
	out := map[string]*machine{}
	for _, m := range l.GetMachines() {
		out[m.GetId()] = m
	}
	return out
}

func listBehaviours() []behaviour {
	return []behaviour{
		{
			name: "list/set", profile: Core, clauses: []string{"PROV-10.1", "PROV-9.1"},
			says: "list each machine once",
			do: func(c *Case) {
				l := c.list(&filter{})
				c.check(len(byID(l)) == len(l.GetMachines()), "%d rows for %d ids", len(l.GetMachines()), len(byID(l)))
				c.check(len(l.GetMachines()) > 0, "an empty list without an error means that there are no machines")
			},
		},
		{
			name: "list/states", profile: Core, hosts: 2, clauses: []string{"PROV-10.2"},
			says: "list exactly the machines in the given states, and ignore unknown state values without an error",
			do: func(c *Case) {
				hosts := c.idles(2)
				c.mustConfigure(hosts[0], c.Clusters[0], nil)
				all := byID(c.list(&filter{}))
				for _, states := range [][]bigfleetv1alpha1.MachineState{{idle}, {configured}, {speculative}, {idle, configured}, {creating}} {
					got := byID(c.list(&filter{States: states}))
					for id, m := range all {
						_, there := got[id]
						c.check(there == slices.Contains(states, m.GetState()), "states %v: %s, listed %v", states, describe(m), there)
					}
					c.check(len(got) <= len(all), "states %v lists machines in other states", states)
				}
				for _, states := range [][]bigfleetv1alpha1.MachineState{{0}, {99}, {-1, 1 << 20}} {
					c.check(len(c.list(&filter{States: states}).GetMachines()) == 0, "states %v lists machines", states)
				}
				got := byID(c.list(&filter{States: []bigfleetv1alpha1.MachineState{0, idle, 99}}))
				c.check(got[hosts[1]] != nil && got[hosts[0]] == nil, "unknown values beside a known state change the answer")
			},
		},
		{
			name: "list/cap", profile: Core, hosts: 1, clauses: []string{"PROV-10.3"},
			says: "never exceed max_results, and treat 0 or less as no limit",
			do: func(c *Case) {
				all := len(c.list(&filter{}).GetMachines())
				for _, n := range []int32{1, 2, int32(all), int32(all) + 5, 1 << 30} {
					got := len(c.list(&filter{MaxResults: n}).GetMachines())
					c.check(got <= int(n) && got >= min(int(n), all), "max_results %d: %d of %d", n, got, all)
				}
				for _, n := range []int32{0, -1, -1 << 31} {
					c.check(len(c.list(&filter{MaxResults: n}).GetMachines()) >= all, "max_results %d limits the answer", n)
				}
			},
		},
		{
			name: "list/delta", profile: Core, hosts: 3, clauses: []string{"PROV-10.7", "PROV-10.8", "PROV-10.10"},
			says: "answer a cursor with each machine that changed since it, once and as it is now, or with the full list",
			do: func(c *Case) {
				c.needsCursors()
				ids := c.idles(2)
				since := c.list(&filter{}).GetRevision()
				c.mustConfigure(ids[0], c.Clusters[0], nil)
				c.mustConfigure(ids[1], c.Clusters[0], map[string]string{"k": "v"})
				c.mustDrain(ids[1])
				l := c.list(&filter{SinceRevision: since})
				got := byID(l)
				c.check(len(got) == len(l.GetMachines()), "the delta lists a machine twice")
				for _, id := range ids {
					if got[id] == nil {
						c.check(false, "%s changed and is not in the delta", id)
						continue
					}
					c.check(difference(got[id], c.get(id)) == "", "the delta shows an old version of %s: %s", id, difference(got[id], c.get(id)))
				}
				if !l.GetComplete() {
					c.exact(got, ids)
				}
				filtered := byID(c.list(&filter{SinceRevision: since, States: []bigfleetv1alpha1.MachineState{configured}}))
				c.check(filtered[ids[0]] != nil && filtered[ids[1]] == nil, "states must filter a delta by the machines' current states")
			},
		},
		{
			name: "list/quiet", profile: Core, hosts: 2, clauses: []string{"PROV-10.8", "PROV-10.9", "PROV-6.1"},
			says: "keep the revision and return an empty delta while nothing visible changes, whatever is read, repeated or rejected",
			do: func(c *Case) {
				c.needsCursors()
				id := c.host()
				c.mustConfigure(id, c.Clusters[0], nil)
				before := c.list(&filter{})
				_, _ = c.create(id)                                                                       // refused
				_, _ = c.configure(id, c.Clusters[0], nil)                                                // repeated
				_, _ = c.send(request{kind: lifecycle.Drain, machine: id, fence: fence{c.shard, -1, -1}}) // stale
				_, _ = c.create("nobody-" + c.suite.run)
				c.sleep(c.Watch)
				l := c.list(&filter{SinceRevision: before.GetRevision()})
				for _, m := range l.GetMachines() {
					if was := byID(before)[m.GetId()]; was != nil && !l.GetComplete() {
						c.check(difference(was, m) != "" || was.GetPricePerHour() != m.GetPricePerHour() || was.GetInterruptionProbability() != m.GetInterruptionProbability(),
							"the delta lists %s, which did not change", m.GetId())
					}
				}
				if len(l.GetMachines()) == 0 {
					c.check(bytes.Equal(l.GetRevision(), before.GetRevision()), "the revision changed from %x to %x although no machine changed", before.GetRevision(), l.GetRevision())
				}
			},
		},
		{
			name: "list/old-cursors", profile: Core, hosts: 2, clauses: []string{"PROV-10.8", "PROV-10.7"},
			says: "accept each cursor, however old: its delta holds each machine that changed since",
			do: func(c *Case) {
				c.needsCursors()
				id := c.host()
				var cursors [][]byte
				for i := range 4 {
					cursors = append(cursors, c.list(&filter{}).GetRevision())
					if i%2 == 0 {
						c.mustConfigure(id, c.Clusters[0], nil)
					} else {
						c.mustDrain(id)
					}
				}
				for i, since := range cursors {
					c.check(byID(c.list(&filter{SinceRevision: since}))[id] != nil, "the delta of cursor %d of 4 misses a machine that changed after it", i+1)
				}
			},
		},
		{
			name: "list/junk-cursors", profile: Core, hosts: 1, clauses: []string{"PROV-10.11"},
			says: "answer each cursor that is not its own with the full list, without an error",
			do: func(c *Case) {
				all := c.list(&filter{})
				good := all.GetRevision()
				junk := [][]byte{
					[]byte("yesterday"), {0}, {0xff}, bytes.Repeat([]byte{0}, 8), bytes.Repeat([]byte{0xff}, 38), bytes.Repeat([]byte("junk"), 2500),
					append([]byte("x"), good...), append(slices.Clone(good), 'x'),
				}
				if len(good) > 8 { // flipping a bit of a short counter makes another counter
					flipped := slices.Clone(good)
					flipped[len(flipped)/2] ^= 0x40
					junk = append(junk, good[:len(good)-1], good[1:], flipped)
				}
				for range 5 {
					b := make([]byte, 1+c.random.IntN(60))
					for i := range b {
						b[i] = byte(c.random.Uint32())
					}
					junk = append(junk, b)
				}
				for _, b := range junk {
					got := byID(c.list(&filter{SinceRevision: b}))
					for id := range byID(all) {
						if got[id] == nil {
							c.check(false, "cursor %x: %d of %d machines; %s is missing", b[:min(len(b), 20)], len(got), len(all.GetMachines()), id)
							break
						}
					}
				}
			},
		},
		{
			name: "list/pages", profile: Core, hosts: 2, clauses: []string{"PROV-10.12", "PROV-10.3"},
			says: "list each machine when a caller pages with the cursors of limited answers, also while machines change",
			do: func(c *Case) {
				ids := c.idles(2)
				first := c.list(&filter{MaxResults: 3})
				if !first.GetComplete() && !first.GetMore() {
					c.excused("answers set neither complete nor more, so callers do not page this provider (PROV-10.12)")
				}
				want := byID(c.list(&filter{}))
				got := byID(first)
				cursor, turns := first.GetRevision(), 0
				for more := first.GetMore(); more; turns++ {
					if turns == 1 {
						c.mustConfigure(ids[0], c.Clusters[0], nil)
					}
					page := c.list(&filter{MaxResults: 1 + int32(len(want)/20), SinceRevision: cursor})
					for id, m := range byID(page) {
						got[id] = m
					}
					c.check(page.GetComplete() == first.GetComplete(), "a later page has complete = %v", page.GetComplete())
					cursor, more = page.GetRevision(), page.GetMore()
					if turns > len(want)+50 {
						c.failf("paging does not end")
					}
				}
				for id := range want {
					c.check(got[id] != nil, "%s was skipped", id)
				}
				if m := got[ids[0]]; turns > 1 && m != nil {
					c.check(difference(m, c.get(ids[0])) == "", "an old version of %s was listed, and the current one was not", ids[0])
				}
				c.check(len(c.list(&filter{SinceRevision: cursor, MaxResults: 5}).GetMachines()) == 0, "the cursor of the last page does not point to the end")
			},
		},
		{
			name: "list/cut", profile: Core, hosts: 3, clauses: []string{"PROV-10.4", "PROV-10.1"},
			says: "list each machine exactly once while machines change state",
			do: func(c *Case) {
				ids := c.idles(3)
				want := slices.Sorted(maps.Keys(byID(c.list(&filter{}))))
				var stop atomic.Bool
				var wait sync.WaitGroup
				for range 3 {
					wait.Go(func() {
						for !stop.Load() {
							outcome, why := c.play(func(*Case) {
								l := c.list(&filter{})
								got := slices.Sorted(maps.Keys(byID(l)))
								c.check(len(got) == len(l.GetMachines()), "one list has a machine twice")
								c.check(slices.Equal(got, want), "a list has %d machines while machines change state; there are %d", len(got), len(want))
							})
							if outcome != Pass {
								stop.Store(true)
								c.check(false, "%s", why)
							}
						}
					})
				}
				for round := 0; round < 4 && !stop.Load(); round++ {
					for _, id := range ids {
						c.mustConfigure(id, c.Clusters[round%2], nil)
					}
					for _, id := range ids {
						c.mustDrain(id)
					}
				}
				stop.Store(true)
				wait.Wait()
			},
		},
		{
			name: "list/extensions", profile: Core, clauses: []string{"PROV-10.14", "PROV-10.15"},
			says: "if it marks answers as complete: mark each list without a cursor, mark no delta, and set more only where max_results cut the answer",
			do: func(c *Case) {
				full := c.list(&filter{})
				c.check(!full.GetMore(), "an answer without max_results sets more")
				if !full.GetComplete() {
					c.excused("complete is not set: the provider does not implement the extension")
				}
				delta := c.list(&filter{SinceRevision: full.GetRevision()})
				c.check(!delta.GetComplete(), "a delta is marked as complete")
				c.check(c.list(&filter{States: []bigfleetv1alpha1.MachineState{idle}}).GetComplete(), "a filtered list without a cursor is not marked as complete")
			},
		},
	}
}

// exact checks that a delta holds nothing else.
func (c *Case) exact(got map[string]*machine, want []string) {
	for id, m := range got {
		_, mine := c.taken[id]
		c.check(mine || slices.Contains(want, id) || m.GetPricePerHour() > 0 && m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT,
			"the delta lists %s, which nobody changed", id)
	}
}

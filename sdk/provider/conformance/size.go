package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

type provider = bigfleetv1alpha1connect.CapacityProviderClient

func sizeBehaviours() []behaviour {
	return []behaviour{
		{
			name: "size/full-list", profile: Scale, clauses: []string{"PROV-25.11", "PROV-10.1", "PROV-10.7"},
			says: "list the whole inventory in one answer within 3 s",
			do: func(c *Case) {
				want := max(10_000, c.Size)
				var all []*machine
				c.ceiling("the full list", 3*time.Second, func() []*machine { return all }, func(client provider) time.Duration {
					l, took := c.listBy(client, &filter{})
					all = l.GetMachines()
					c.check(len(l.GetMachines()) >= want, "%d machines are listed; profile scale requires %d", len(l.GetMachines()), want)
					c.note("%d machines in %s", len(l.GetMachines()), took)
					return took
				})
			},
		},
		{
			name: "size/exact-deltas", profile: Scale, hosts: 3, slots: 35, clauses: []string{"PROV-10.7", "PROV-10.8", "PROV-10.12"},
			says: "return exactly the machines that changed, from a large inventory",
			do: func(c *Case) {
				c.needsCursors()
				since := c.list(&filter{}).GetRevision()
				ids, first := c.unused(35)
				var wait sync.WaitGroup
				for _, id := range ids {
					wait.Go(func() {
						if _, err := c.mutate(first, id); err != nil {
							c.check(false, "%s of %s: %v", first, id, err)
						}
					})
				}
				wait.Wait()
				for _, id := range ids {
					c.settles(id, first)
				}
				l := c.list(&filter{SinceRevision: since})
				got := byID(l)
				for _, id := range ids {
					c.check(got[id] != nil, "%s changed and is not in the delta", id)
				}
				c.check(!l.GetComplete() && len(got) < c.suite.inventory.machines/2, "the delta of 35 changed machines has %d machines, complete = %v", len(got), l.GetComplete())
				c.exact(got, ids)
			},
		},
		{
			name: "size/pages", profile: Scale, clauses: []string{"PROV-10.12", "PROV-25.11"},
			says: "list the whole inventory in pages of 700, each within 2 s (p99), and skip no machine",
			do: func(c *Case) {
				c.ceiling("a page (p99)", 2*time.Second, func() []*machine { return c.list(&filter{MaxResults: 700}).GetMachines() }, func(client provider) time.Duration {
					if client == c.client {
						return c.percentile99("a page", c.scan(700))
					}
					return c.percentile99("a page of a bare handler", times(c.suite.inventory.machines/700+1, func(int) { c.listBy(client, &filter{}) }))
				})
			},
		},
		{
			name: "size/ceilings", profile: Scale, hosts: 1, slots: 50 * ceilingRounds, clauses: []string{"PROV-25.11"},
			says: "answer Get and Create, or Configure in a pool without slots, within 250 ms (p99) at the tested size",
			do: func(c *Case) {
				sample, first := func() []*machine { return c.list(&filter{MaxResults: 1}).GetMachines() }, lifecycle.Create
				if c.suite.inventory.slots() == 0 {
					first = lifecycle.Configure
				}
				var moved []string
				c.ceiling(first.String()+" (p99)", 250*time.Millisecond, sample, func(client provider) time.Duration {
					if client != c.client { // the bare handler, which has one mutation
						return c.percentile99("Create of a bare handler", times(50, func(int) {
							if _, err := client.Create(c.ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{})); err != nil {
								c.cannot("the bare handler: %v", err)
							}
						}))
					}
					ids, _ := c.unused(50)
					moved = append(moved, ids...)
					return c.percentile99(first.String(), times(len(ids), func(i int) {
						if _, err := c.mutate(first, ids[i]); err != nil {
							c.failf("%s: %v", first, err)
						}
					}))
				})
				for _, id := range moved {
					c.settles(id, first)
				}
				c.ceiling("Get (p99)", 250*time.Millisecond, sample, func(client provider) time.Duration {
					return c.percentile99("Get", times(50, func(i int) {
						if _, err := client.Get(c.ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: moved[i%len(moved)]})); err != nil {
							c.failf("Get: %v", err)
						}
					}))
				})
			},
		},
		{
			name: "size/churn", profile: Scale, hosts: 3, slots: 60, clauses: []string{"PROV-10.4", "PROV-13.3", "PROV-13.5"},
			says: "list each machine exactly once while many machines change state",
			do: func(c *Case) {
				ids, first := c.unused(60)
				count := c.suite.inventory.machines
				done := make(chan struct{})
				var wait sync.WaitGroup
				wait.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						begin := time.Now()
						outcome, why := c.play(func(*Case) {
							l := c.list(&filter{})
							c.check(len(byID(l)) == len(l.GetMachines()), "one list has a machine twice")
							c.check(len(l.GetMachines()) == count, "a list during the changes has %d machines; there are %d", len(l.GetMachines()), count)
						})
						if outcome != Pass {
							c.check(false, "%s", why)
							return
						}
						time.Sleep(max(50*time.Millisecond, time.Since(begin))) // room for the machines to move: lists take at most half of the time
					}
				})
				var movers sync.WaitGroup
				for i, id := range ids {
					movers.Go(func() {
						outcome, why := c.play(func(*Case) {
							if first == lifecycle.Create {
								c.mustCreate(id)
							}
							c.mustConfigure(id, c.Clusters[i%2], map[string]string{"i": fmt.Sprint(i)})
							m := c.get(id)
							c.check(m.GetShardMetadata()["i"] == fmt.Sprint(i), "%s shows the metadata of another machine", id)
							c.mustDrain(id)
						})
						if outcome != Pass {
							c.check(false, "%s: %s", id, why)
						}
					})
				}
				movers.Wait()
				close(done)
				wait.Wait()
				idleOnes := byID(c.list(&filter{States: []bigfleetv1alpha1.MachineState{idle}}))
				for _, id := range ids {
					c.check(idleOnes[id] != nil, "%s is not in IDLE after the changes", id)
				}
			},
		},
	}
}

// scan pages through the whole inventory and returns how long each page took.
func (c *Case) scan(page int32) (times []time.Duration) {
	want := byID(c.list(&filter{}))
	var cursor []byte
	got := map[string]bool{}
	for {
		l, took := c.listTimed(&filter{MaxResults: page, SinceRevision: cursor})
		times = append(times, took)
		for _, m := range l.GetMachines() {
			got[m.GetId()] = true
		}
		if !l.GetComplete() && !l.GetMore() && len(times) == 1 {
			c.excused("answers set neither complete nor more, so callers do not page this provider (PROV-10.12)")
		}
		if cursor = l.GetRevision(); !l.GetMore() {
			break
		}
		if len(times) > len(want) {
			c.failf("paging does not end")
		}
	}
	for id := range want {
		if !got[id] {
			c.check(false, "%s was skipped", id)
		}
	}
	return times
}

// unused takes n machines that nothing uses, and says which transition they begin with: slots with Create, and in a pool without slots hosts
// with Configure.
func (c *Case) unused(n int) (ids []string, first kind) {
	if c.suite.inventory.slots() == 0 {
		return c.idles(n), lifecycle.Configure
	}
	return c.slots(n), lifecycle.Create
}

// times makes n calls one after the other.
func times(n int, call func(i int)) (out []time.Duration) {
	for i := range n {
		begin := time.Now()
		call(i)
		out = append(out, time.Since(begin))
	}
	return out
}

// percentile99 notes and returns the p99 of times.
func (c *Case) percentile99(what string, times []time.Duration) time.Duration {
	slices.Sort(times)
	p99 := times[len(times)*99/100]
	c.note("%s: %d calls, p50 %s, p99 %s", what, len(times), times[len(times)/2], p99)
	return p99
}

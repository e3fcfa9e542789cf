package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

func sizeBehaviours() []behaviour {
	return []behaviour{
		{
			name: "size/full-list", profile: Scale, clauses: []string{"PROV-25.11", "PROV-10.1", "PROV-10.7"},
			says: "list the whole inventory in one answer within 3 s",
			do: func(c *Case) {
				want := max(10_000, c.Size)
				l, took := c.listTimed(&filter{})
				c.check(len(l.GetMachines()) >= want, "%d machines, profile scale wants %d", len(l.GetMachines()), want)
				c.ceiling("the full list", took, 3*time.Second)
				c.note("%d machines in %s", len(l.GetMachines()), took)
			},
		},
		{
			name: "size/exact-deltas", profile: Scale, hosts: 3, slots: 35, clauses: []string{"PROV-10.7", "PROV-10.8", "PROV-10.12"},
			says: "give exactly the machines that changed, out of a large inventory",
			do: func(c *Case) {
				c.needsCursors()
				since := c.list(&filter{}).GetRevision()
				ids := c.slots(35)
				var wait sync.WaitGroup
				for _, id := range ids {
					wait.Go(func() {
						if _, err := c.create(id); err != nil {
							c.check(false, "Create of %s: %v", id, err)
						}
					})
				}
				wait.Wait()
				for _, id := range ids {
					c.settles(id, lifecycle.Create)
				}
				l := c.list(&filter{SinceRevision: since})
				got := byID(l)
				for _, id := range ids {
					c.check(got[id] != nil, "%s changed and is not in the delta", id)
				}
				c.check(!l.GetComplete() && len(got) < c.suite.inventory.machines/2, "a delta of 35 has %d machines, complete %v", len(got), l.GetComplete())
				c.exact(got, ids)
			},
		},
		{
			name: "size/pages", profile: Scale, clauses: []string{"PROV-10.12", "PROV-25.11"},
			says: "page through the whole inventory, 700 at a time, none skipped, each page within 2 s (p99)",
			do: func(c *Case) {
				want := byID(c.list(&filter{}))
				var cursor []byte
				var times []time.Duration
				got := map[string]bool{}
				for {
					l, took := c.listTimed(&filter{MaxResults: 700, SinceRevision: cursor})
					times = append(times, took)
					for _, m := range l.GetMachines() {
						got[m.GetId()] = true
					}
					if !l.GetComplete() && !l.GetMore() && len(times) == 1 {
						c.excused("answers carry neither complete nor more: callers do not page this provider (PROV-10.12)")
					}
					if cursor = l.GetRevision(); !l.GetMore() {
						break
					}
					if len(times) > len(want) {
						c.failf("the scan does not end")
					}
				}
				for id := range want {
					if !got[id] {
						c.check(false, "%s was skipped", id)
					}
				}
				slices.Sort(times)
				p99 := times[len(times)*99/100]
				c.ceiling("a page (p99)", p99, 2*time.Second)
				c.note("%d pages, p50 %s, p99 %s", len(times), times[len(times)/2], p99)
			},
		},
		{
			name: "size/ceilings", profile: Scale, hosts: 1, slots: 50, clauses: []string{"PROV-25.11"},
			says: "answer Get and Create within 250 ms (p99) at the tested size",
			do: func(c *Case) {
				ids := c.slots(50)
				var gets, creates []time.Duration
				for _, id := range ids {
					begin := time.Now()
					c.get(id)
					gets = append(gets, time.Since(begin))
					begin = time.Now()
					if _, err := c.create(id); err != nil {
						c.failf("Create: %v", err)
					}
					creates = append(creates, time.Since(begin))
				}
				for _, id := range ids {
					c.settles(id, lifecycle.Create)
				}
				for what, times := range map[string][]time.Duration{"Get": gets, "Create": creates} {
					slices.Sort(times)
					p99 := times[len(times)*99/100]
					c.ceiling(what+" (p99)", p99, 250*time.Millisecond)
					c.note("%s: p50 %s, p99 %s", what, times[len(times)/2], p99)
				}
			},
		},
		{
			name: "size/churn", profile: Scale, hosts: 3, slots: 60, clauses: []string{"PROV-10.4", "PROV-13.3", "PROV-13.5"},
			says: "keep the number of machines, and miss or double none in lists, while many machines move",
			do: func(c *Case) {
				ids := c.slots(60)
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
						outcome, why := c.play(func(*Case) {
							l := c.list(&filter{})
							c.check(len(byID(l)) == len(l.GetMachines()), "a machine is twice in one list")
							c.check(len(l.GetMachines()) == count, "%d machines in a list during churn, there are %d", len(l.GetMachines()), count)
						})
						if outcome != Pass {
							c.check(false, "%s", why)
							return
						}
						time.Sleep(50 * time.Millisecond) // room for the machines to move
					}
				})
				var movers sync.WaitGroup
				for i, id := range ids {
					movers.Go(func() {
						outcome, why := c.play(func(*Case) {
							c.mustCreate(id)
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
					c.check(idleOnes[id] != nil, "%s is not in IDLE after the churn", id)
				}
			},
		},
	}
}

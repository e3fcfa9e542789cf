package conformance

import (
	"math"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// another is a client on a connection of its own.
func (c *Case) another() bigfleetv1alpha1connect.CapacityProviderClient {
	return c.suite.dialer.another(c.TLS)
}

// burst sends n of one mutation at once on three connections. Tokens race, so some may be stale; the answers that are OK
// must agree.
func (c *Case) burst(k kind, id string, n int) (operation string) {
	clients := []bigfleetv1alpha1connect.CapacityProviderClient{c.client, c.another(), c.another()}
	acks, errs := make([]*ack, n), make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { acks[i], errs[i] = c.sendBy(clients[i%3], c.ordinary(k, id, c.fresh())) })
	}
	wait.Wait()
	ids := map[string]int{}
	for i := range n {
		switch codeOf(errs[i]) {
		case ok:
			ids[acks[i].GetOperationId()]++
		case connect.CodeFailedPrecondition: // overtaken by a newer token
		default:
			c.check(false, "one of %d parallel calls of %s: %v", n, k, errs[i])
		}
	}
	c.check(len(ids) == 1, "%d parallel calls of %s have %d operation ids", n, k, len(ids))
	for one := range ids {
		operation = one
	}
	return operation
}

func raceBehaviours() []behaviour {
	return []behaviour{
		{
			name: "race/burst", racing: true, profile: Core, hosts: 1, clauses: []string{"PROV-13.1", "PROV-7.5"},
			says: "run parallel identical calls as one operation, for each kind",
			do: func(c *Case) {
				id := ""
				if c.claims(Cloud) {
					id = c.slot()
					c.burst(lifecycle.Create, id, 40)
					c.settles(id, lifecycle.Create)
				} else {
					id = c.host()
				}
				seen := map[string]bool{}
				for range 2 {
					for _, k := range []kind{lifecycle.Configure, lifecycle.Drain} {
						operation := c.burst(k, id, 40)
						c.check(!seen[operation], "operation id %s was used twice", operation)
						seen[operation] = true
						c.settles(id, k)
					}
				}
				if c.claims(Cloud) {
					c.burst(lifecycle.Delete, id, 40)
					c.settles(id, lifecycle.Delete)
				}
			},
		},
		{
			name: "race/one-effect", racing: true, profile: Core, also: []Profile{Fault}, hosts: 1, clauses: []string{"PROV-7.5", "PROV-7.9", "PROV-13.1"},
			says: "cause one effect at the substrate for parallel identical calls",
			do: func(c *Case) {
				id := c.host()
				for _, k := range []kind{lifecycle.Configure, lifecycle.Drain} {
					before := c.effects(k.String(), id)
					c.burst(k, id, 40)
					c.settles(id, k)
					c.check(c.effects(k.String(), id)-before == 1, "40 parallel calls of %s had %d effects at the substrate", k, c.effects(k.String(), id)-before)
				}
			},
		},
		{
			name: "race/conflict", racing: true, profile: Core, hosts: 1, clauses: []string{"PROV-13.2", "PROV-4.3", "PROV-4.6"},
			says: "serialise conflicting calls, and end in one legal state with fields that match it",
			do: func(c *Case) {
				id := c.node()
				for range 6 {
					var wait sync.WaitGroup
					for i := range 12 {
						q := c.ordinary([]kind{lifecycle.Drain, lifecycle.Configure, lifecycle.Create}[i%3], id, c.fresh())
						q.cluster = c.Clusters[i%2]
						wait.Go(func() { _, _ = c.send(q) })
					}
					wait.Wait()
					m := c.rests(id)
					c.check(m.GetState() == idle || m.GetState() == configured, "after the race: %s", describe(m))
					if m.GetState() == idle {
						c.mustConfigure(id, c.Clusters[0], nil)
					}
				}
			},
		},
		{
			name: "race/independent", profile: Core, hosts: 3, clauses: []string{"PROV-13.3", "PROV-7.4"},
			says: "keep machines separate under parallel calls: each has its own operation ids and fields",
			do: func(c *Case) {
				ids := c.idles(3)
				acks := make([]*ack, len(ids))
				var wait sync.WaitGroup
				for i, id := range ids {
					wait.Go(func() {
						acks[i], _ = c.send(request{kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: c.Clusters[i%2], metadata: map[string]string{"mine": id}})
					})
				}
				wait.Wait()
				seen := map[string]bool{}
				for i, id := range ids {
					if acks[i] == nil {
						c.failf("Configure of %s failed", id)
					}
					c.check(!seen[acks[i].GetOperationId()], "two machines have operation id %s", acks[i].GetOperationId())
					seen[acks[i].GetOperationId()] = true
					m := c.settles(id, lifecycle.Configure)
					c.check(m.GetShardMetadata()["mine"] == id && m.GetCluster() == c.Clusters[i%2], "%s shows the binding of another machine", id)
				}
			},
		},
		{
			name: "race/zombie", racing: true, profile: Core, hosts: 1, clauses: []string{"PROV-6.13", "PROV-6.4"},
			says: "accept no older epoch after a newer one was accepted, when both race on one machine",
			do: func(c *Case) {
				id, shard := c.node(), c.own(0)
				var mu sync.Mutex
				newPassed := false
				var wait sync.WaitGroup
				places := make(chan struct{}, 32)
				for i := range 400 {
					old := i%2 == 0
					f := fence{shard, 2, int64(i)}
					if old {
						f = fence{shard, 1, math.MaxInt64 - 500 + int64(i)}
					}
					places <- struct{}{}
					wait.Go(func() {
						defer func() { <-places }()
						mu.Lock()
						after := newPassed
						mu.Unlock()
						stale := c.probe(id, f)
						if old {
							c.check(stale || !after, "a token of the old epoch was accepted after one of the new epoch")
						} else if !stale {
							mu.Lock()
							newPassed = true
							mu.Unlock()
						}
					})
				}
				wait.Wait()
			},
		},
		{
			name: "race/slow-one", profile: Core, spends: 1, also: []Profile{Fault}, hosts: 2, clauses: []string{"PROV-13.4"},
			says: "delay no ack, read or transition while another machine's substrate call hangs",
			do: func(c *Case) {
				c.limited() // only the limit ends the stuck call
				ids := c.idles(2)
				c.fault(behave("Configure", ids[0], hang))
				if _, err := c.configure(ids[0], c.Clusters[0], nil); err != nil {
					c.failf("Configure: %v", err)
				}
				begun := time.Now()
				c.mustConfigure(ids[1], c.Clusters[0], nil)
				c.mustDrain(ids[1])
				if stuck := c.get(ids[0]); stuck.GetState() != configuring {
					c.failf("the other machine was served only after %s, when the hanging call had ended: %s", time.Since(begun), describe(stuck))
				}
			},
		},
	}
}

// rests waits until a machine is in no in-flight state.
func (c *Case) rests(id string) *machine {
	m := c.get(id)
	if k := lifecycle.InFlight(m.GetState()); k != 0 {
		return c.ends(id, k, c.Settle)
	}
	return m
}

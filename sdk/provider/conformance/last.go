package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// restart ends the provider and starts it again. between runs while it is down.
func (c *Case) restart(gently bool, between func()) {
	h := c.Hooks
	end := h.Kill
	if gently {
		end = h.Stop
	}
	if end == nil || h.Start == nil {
		c.cannot("hooks kill, stop and start are not given, so the provider cannot be restarted")
	}
	if err := end(c.ctx); err != nil {
		c.cannot("hook kill or stop: %v", err)
	}
	if between != nil {
		between()
	}
	addr, err := h.Start(c.ctx)
	if err != nil {
		c.failf("the provider does not start again: %v", err)
	}
	c.dialogue.add("-- killed and started again at " + addr)
	if addr == "" {
		addr = c.suite.dialer.addr
	}
	c.suite.dialer.move(addr)
	c.client = c.suite.dialer.another(c.TLS)
	c.suite.mu.Lock()
	c.suite.dialer.mu.Lock()
	c.suite.dialer.plain = nil
	clear(c.suite.dialer.byTLS)
	c.suite.dialer.mu.Unlock()
	c.suite.mu.Unlock()
	// Until the inventory is known, reads are UNAVAILABLE (PROV-10.5).
	deadline := time.Now().Add(c.Settle)
	for {
		ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
		_, err := c.client.List(ctx, connect.NewRequest(&filter{MaxResults: 1}))
		cancel()
		if err == nil {
			return
		}
		if codeOf(err) != connect.CodeUnavailable && codeOf(err) != connect.CodeDeadlineExceeded || time.Now().After(deadline) {
			c.failf("List after the restart: %v", err)
		}
		c.sleep(20 * time.Millisecond)
	}
}

func lastBehaviours() []behaviour {
	out := []behaviour{
		{
			name: "last/rest", profile: Durable, hosts: 3, clauses: []string{"PROV-12.1", "PROV-12.2", "PROV-12.3", "PROV-8.2"},
			says: "show the same machines, states, bindings and metadata after kill -9",
			do: func(c *Case) {
				ids := c.idles(3)
				c.mustConfigure(ids[0], c.Clusters[0], hostile())
				c.mustConfigure(ids[1], c.Clusters[1], map[string]string{"k": "v"})
				before := byID(c.list(&filter{}))
				for _, gently := range []bool{false, true} {
					c.restart(gently, nil)
					after := byID(c.list(&filter{}))
					c.check(len(before) == len(after), "%d machines before the restart, %d after it", len(before), len(after))
					for id, m := range before {
						if m.GetState() == failed || lifecycle.InFlight(m.GetState()) != 0 {
							continue // not ours: its provider may end it meanwhile
						}
						if after[id] == nil {
							c.check(false, "%s is gone", id)
						} else {
							c.check(difference(m, after[id]) == "", "%s: %s", id, difference(m, after[id]))
						}
					}
				}
			},
		},
		{
			name: "last/marks", profile: Durable, hosts: 1, clauses: []string{"PROV-6.14", "PROV-12.4", "PROV-6.5"},
			says: "keep all marks across kill -9, also those of rejected calls and unknown machines, and accept a new shard's low token",
			do: func(c *Case) {
				id, shard, nobody := c.node(), c.own(0), "nobody-"+c.suite.run+"-last"
				c.check(!c.probe(id, fence{shard, 5, 5}) && !c.probe(nobody, fence{shard, 6, 6}), "the first token of a shard is called stale")
				c.restart(false, nil)
				c.check(c.probe(id, fence{shard, 5, 5}) && c.probe(id, fence{shard, 4, 9}), "a stale token is accepted after the restart")
				c.check(c.probe(nobody, fence{shard, 6, 6}), "a stale token for an unknown machine is accepted after the restart")
				c.check(!c.probe(id, fence{shard, 5, 6}), "a fresh token is called stale after the restart")
				c.check(!c.probe(id, fence{c.own(1), 0, 1}), "a new shard's first token is called stale after the restart")
			},
		},
		{
			name: "last/claims", racing: true, profile: Durable, hosts: 1, clauses: []string{"PROV-6.18"},
			says: "keep a claimed epoch across kill -9",
			do: func(c *Case) {
				id, shard := c.node(), c.own(0)
				if err := c.claim(shard, 7); err != nil {
					c.failf("the claim: %v", err)
				}
				c.restart(false, nil)
				c.check(c.probe(id, fence{shard, 6, 1}), "epoch 6 is accepted after the restart")
				c.check(!c.probe(id, fence{shard, 7, 1}), "the claimed epoch is rejected after the restart")
			},
		},
		{
			name: "last/repeats", profile: Durable, hosts: 1, clauses: []string{"PROV-12.4", "PROV-7.4"},
			says: "answer a repeat after kill -9 with the earlier operation id, and give new cycles new ids",
			do: func(c *Case) {
				id := c.host()
				first := c.mustConfigure(id, c.Clusters[0], map[string]string{"purpose": c.behaviour.name})
				c.restart(false, nil)
				again, err := c.mutate(lifecycle.Configure, id)
				c.repeated("after the restart", lifecycle.Configure, first, again, err)
				drained := c.mustDrain(id)
				c.restart(false, nil)
				again, err = c.drain(id, 0)
				c.repeated("after the restart", lifecycle.Drain, drained, again, err)
				c.check(c.mustConfigure(id, c.Clusters[0], nil).GetOperationId() != first.GetOperationId(), "a new cycle has an old operation id")
			},
		},
		{
			name: "last/cursors", profile: Durable, hosts: 2, clauses: []string{"PROV-10.13", "PROV-12.4"},
			says: "accept cursors across kill -9, and continue the revision",
			do: func(c *Case) {
				c.needsCursors()
				id := c.host()
				since := c.list(&filter{}).GetRevision()
				c.mustConfigure(id, c.Clusters[0], nil)
				now := c.list(&filter{}).GetRevision()
				c.restart(false, nil)
				c.check(byID(c.list(&filter{SinceRevision: since}))[id] != nil, "the delta from a cursor of before the restart misses a machine")
				c.check(len(c.list(&filter{}).GetRevision()) > 0, "the revision is empty after the restart")
				l := c.list(&filter{SinceRevision: now})
				c.check(l.GetComplete() || len(l.GetMachines()) == 0, "after a restart without changes the delta holds %d machines", len(l.GetMachines()))
			},
		},
		{
			name: "last/store-loss", profile: Durable, hosts: 1, clauses: []string{"PROV-10.11", "PROV-10.13"},
			says: "answer each old cursor with the full list after its store was lost",
			do: func(c *Case) {
				if c.Hooks.LoseStore == nil {
					c.excused("hook lose-store is not given")
				}
				before := c.list(&filter{})
				c.restart(false, func() {
					if err := c.Hooks.LoseStore(c.ctx); err != nil {
						c.cannot("hook lose-store: %v", err)
					}
				})
				after := c.list(&filter{SinceRevision: before.GetRevision()})
				full := c.list(&filter{})
				c.check(len(after.GetMachines()) == len(full.GetMachines()), "an old cursor gives %d of %d machines", len(after.GetMachines()), len(full.GetMachines()))
				c.suite.mu.Lock()
				clear(c.suite.marks) // forgotten, and rightly so
				clear(c.suite.operations)
				c.suite.mu.Unlock()
			},
		},
		{
			name: "last/random-kills", racing: true, profile: Durable, spends: 3, hosts: 3, clauses: []string{"PROV-12.1", "PROV-12.3", "PROV-12.5", "PROV-13.5", "PROV-6.14"},
			says: "lose no acknowledged fact and list no machine twice when it is killed at random moments under load",
			do:   randomKills,
		},
	}
	prepare := map[kind]func(*Case) string{
		lifecycle.Create: (*Case).slot, lifecycle.Configure: (*Case).host, lifecycle.Drain: (*Case).node, lifecycle.Delete: (*Case).host,
	}
	for _, k := range lifecycle.Kinds() {
		also := []Profile{Fault}
		if k == lifecycle.Delete {
			also = append(also, Cloud)
		}
		out = append(out, behaviour{
			name: "last/cut-off-" + k.Label(), profile: Durable, spends: 1, also: also, slots: boolInt(k == lifecycle.Create), hosts: boolInt(k != lifecycle.Create), needsSlots: k == lifecycle.Create,
			clauses: []string{"PROV-12.5", "PROV-12.1", "PROV-12.4"},
			says:    "show a " + k.String() + " that kill -9 interrupted as FAILED from the first answer on, or finish it under the same operation id",
			do: func(c *Case) {
				id := prepare[k](c)
				c.slow(k.String(), id, 30*time.Second)
				a, err := c.mutate(k, id)
				if err != nil {
					c.failf("%s: %v", k, err)
				}
				c.restart(false, nil)
				_ = c.Hooks.Faults.Clear(c.ctx) // where the substrate outlived the provider
				m := c.get(id)
				switch m.GetState() {
				case failed:
					f := m.GetFailure()
					c.check(f == 0 || f == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED, "failure is %s", f)
				case k.Edge().Through, k.Edge().To: // taken up again (PROV-12.6)
					c.check(k != lifecycle.Configure || m.GetState() != k.Edge().Through, "a Configure continues although its boot data is gone")
					again, err := c.mutate(k, id)
					c.repeated("after the restart", k, a, again, err)
					c.ends(id, k, c.Settle)
				default:
					c.check(false, "after the restart: %s", describe(m))
				}
			},
		})
	}
	return out
}

// randomKills keeps a shard's worth of calls going, kills at random moments, and compares what was acked with what is
// there.
func randomKills(c *Case) {
	ids := c.idles(3)
	count := len(c.list(&filter{}).GetMachines())
	for round := range 8 {
		type fact struct {
			kind      kind
			operation string
			cluster   string
			at        fence
		}
		var mu sync.Mutex
		facts := map[string]fact{} // newest ack per machine
		ctx, cancel := context.WithCancel(c.ctx)
		var wait sync.WaitGroup
		for i, id := range ids {
			wait.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					k := []kind{lifecycle.Configure, lifecycle.Drain}[n%2]
					q := c.ordinary(k, id, c.fresh())
					q.cluster = c.Clusters[i%2]
					a, err := c.sendIn(ctx, c.client, q)
					if err != nil {
						if errors.Is(ctx.Err(), context.Canceled) || codeOf(err) == connect.CodeUnavailable || codeOf(err) == connect.CodeUnknown {
							return
						}
						n-- // the machine is not there yet
					} else {
						mu.Lock()
						facts[id] = fact{k, a.GetOperationId(), q.cluster, q.fence}
						mu.Unlock()
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration(1+n%7) * time.Millisecond):
					}
				}
			})
		}
		c.sleep(time.Duration(5+c.random.IntN(150)) * time.Millisecond)
		c.restart(false, cancel)
		wait.Wait()
		cancel()
		for id, f := range facts {
			m := c.get(id)
			stale, err := c.send(request{kind: f.kind, machine: id, fence: f.at, cluster: f.cluster})
			c.check(codeOf(err) == connect.CodeFailedPrecondition, "round %d: the token of an acknowledged %s is accepted again on %s (%v)", round, f.kind, id, stale)
			switch m.GetState() {
			case failed:
			case f.kind.Edge().To, f.kind.Edge().Through:
				c.check(f.kind != lifecycle.Configure || m.GetCluster() == f.cluster, "round %d: %s lost its binding", round, id)
			default: // a later call that was not acked may have been accepted
				c.check(lifecycle.InFlight(m.GetState()) != 0 || m.GetState() == configured || m.GetState() == idle, "round %d: %s", round, describe(m))
			}
		}
		after := c.list(&filter{})
		c.check(len(byID(after)) == len(after.GetMachines()), "round %d: two machines have the same id", round)
		c.check(len(after.GetMachines()) == count, "round %d: %d machines are listed, %d were there before", round, len(after.GetMachines()), count)
		for i, id := range ids { // a cut-off machine is FAILED for good: another one takes its place
			if m := c.rests(id); m.GetState() == failed {
				more := c.take(idle, 1)
				if len(more) == 0 {
					more = c.take(speculative, 1)
					if len(more) == 0 {
						c.note("%d of 8 rounds ran, then no machine was left", round+1)
						return
					}
					c.mustCreate(more[0])
				}
				ids[i] = more[0]
				delete(c.taken, id)
			} else if m.GetState() == configured {
				c.mustDrain(id)
			}
		}
	}
	c.note("%s", fmt.Sprintf("8 kills under load, %d machines", count))
}

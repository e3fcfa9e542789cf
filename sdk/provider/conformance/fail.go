package conformance

import (
	"context"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

const (
	hang    = bigfleetv1alpha1.FaultKind_FAULT_KIND_HANG
	refuse  = bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR
	late    = bigfleetv1alpha1.FaultKind_FAULT_KIND_LATE_SUCCESS
	partial = bigfleetv1alpha1.FaultKind_FAULT_KIND_PARTIAL
	never   = bigfleetv1alpha1.FaultKind_FAULT_KIND_NEVER_READY
)

// behave is a fault for one machine.
func behave(call, machine string, fault bigfleetv1alpha1.FaultKind) *bigfleetv1alpha1.Behaviour {
	return &bigfleetv1alpha1.Behaviour{
		Call: call, Fault: fault, ErrorClass: "permanent", Selector: &bigfleetv1alpha1.MachineSelector{MachineIds: []string{machine}},
	}
}

// fault arms a fault and takes it away again at the end of the behaviour.
func (c *Case) fault(b *bigfleetv1alpha1.Behaviour) {
	if c.Hooks.Faults == nil {
		c.cannot("hook faults is not given, so no fault can be injected")
	}
	if err := c.Hooks.Faults.Set(c.ctx, b); err != nil {
		c.cannot("hook faults: %v", err)
	}
	if len(c.undo) == 0 {
		c.undo = append(c.undo, func() { _ = c.Hooks.Faults.Clear(context.WithoutCancel(c.ctx)) })
	}
}

// slow adds latency to one call of one machine.
func (c *Case) slow(call, machine string, latency time.Duration) {
	b := behave(call, machine, bigfleetv1alpha1.FaultKind_FAULT_KIND_UNSPECIFIED)
	b.LatencyMillis = latency.Milliseconds()
	c.fault(b)
}

func (c *Case) slowIfPossible(call, machine string) {
	if c.Hooks.Faults != nil {
		c.slow(call, machine, 300*time.Millisecond)
	}
}

func (c *Case) effects(call, machine string) int {
	n, err := c.Hooks.Faults.Effects(c.ctx, call, machine)
	if err != nil {
		c.cannot("hook faults: %v", err)
	}
	return n
}

// final checks that a FAILED machine stays as it is, whatever is called (PROV-11.4, 11.5).
func (c *Case) final(m *machine) {
	c.check(m.GetState() == failed && m.GetLastError() != "", "it ended in %s, last_error %q", name(m.GetState()), m.GetLastError())
	for _, k := range c.kinds() {
		_, err := c.mutate(k, m.GetId())
		if codeOf(err) == connect.CodeNotFound {
			return // the provider's own janitor has taken it away meanwhile
		}
		c.refused(k.String()+" on FAILED", m, err)
	}
	listed := c.listed(m.GetId())
	c.check(listed.GetLastError() == m.GetLastError(), "List says %q and Get says %q", listed.GetLastError(), m.GetLastError())
}

func failBehaviours() []behaviour {
	var out []behaviour
	prepare := map[kind]func(*Case) string{
		lifecycle.Create: (*Case).slot, lifecycle.Configure: (*Case).host, lifecycle.Drain: (*Case).node, lifecycle.Delete: (*Case).host,
	}
	for _, k := range lifecycle.Kinds() {
		also, clauses := []Profile{Core}, []string{"PROV-5.8", "PROV-11.2", "PROV-11.4", "PROV-11.5", "PROV-11.9", "PROV-3.5"}
		switch k {
		case lifecycle.Delete:
			also = []Profile{Cloud}
		case lifecycle.Drain:
			clauses = append(clauses, "PROV-11.12")
		}
		out = append(out, behaviour{
			name: "fail/" + k.Label() + "-error", profile: Fault, spends: 1, also: also, slots: boolInt(k == lifecycle.Create), hosts: boolInt(k != lifecycle.Create), needsSlots: k == lifecycle.Create,
			clauses: clauses,
			says:    "end a " + k.String() + " that the substrate refuses in FAILED with a last_error, for good; the ack itself is OK",
			do: func(c *Case) {
				id := prepare[k](c)
				c.fault(behave(k.String(), id, refuse))
				a, err := c.mutate(k, id)
				if err != nil {
					c.failf("%s: %v; an error of the substrate must not become the code of an accepted mutation", k, err)
				}
				c.checkAck(a, id, k)
				m := c.ends(id, k, c.Settle)
				c.check(strings.HasPrefix(m.GetLastError(), k.Label()+": "), "last_error %q does not begin with %q", m.GetLastError(), k.Label()+": ")
				if k == lifecycle.Drain { // PROV-11.12
					c.check(m.GetCluster() != "" && len(m.GetShardMetadata()) > 0, "the failed Drain lost the binding")
				}
				c.final(m)
			},
		})
	}
	return append(out,
		behaviour{
			name: "fail/hang", profile: Fault, spends: 1, hosts: 1, clauses: []string{"PROV-11.1", "PROV-11.4"},
			says: "end a Configure in FAILED at its time limit when its substrate call hangs",
			do: func(c *Case) {
				id := c.host()
				c.limited()
				c.fault(behave("Configure", id, hang))
				if _, err := c.configure(id, c.Clusters[0], nil); err != nil {
					c.failf("Configure: %v", err)
				}
				c.final(c.ends(id, lifecycle.Configure, c.suite.limit+c.Settle))
			},
		},
		behaviour{
			name: "fail/late-success", profile: Fault, spends: 1, slots: 1, needsSlots: true, clauses: []string{"PROV-11.3"},
			says: "ignore a completion that comes after the time limit: the machine stays FAILED",
			do: func(c *Case) {
				id := c.slot()
				c.limited()
				c.fault(behave("Create", id, late))
				if _, err := c.create(id); err != nil {
					c.failf("Create: %v", err)
				}
				m := c.ends(id, lifecycle.Create, c.suite.limit+c.Settle)
				c.sleep(c.Watch)
				if now, err := c.read(id); err == nil {
					c.check(now.GetState() == failed && now.GetLastError() == m.GetLastError(), "after the late completion: %s", describe(now))
				}
			},
		},
		behaviour{
			name: "fail/drain-without-grace", profile: Fault, spends: 1, hosts: 1, clauses: []string{"PROV-11.6"},
			says: "end a Drain with grace 0 in IDLE or FAILED when the substrate hangs, and never return to CONFIGURED",
			do: func(c *Case) {
				id := c.node()
				c.limited()
				c.fault(behave("Drain", id, hang))
				if _, err := c.drain(id, 0); err != nil {
					c.failf("Drain: %v", err)
				}
				c.ends(id, lifecycle.Drain, c.suite.limit+c.Settle)
			},
		},
		behaviour{
			name: "fail/stock-out", profile: Fault, spends: 1, slots: 1, needsSlots: true, clauses: []string{"PROV-11.11", "PROV-11.2"},
			says: "end a Create that finds no stock in FAILED without a host, with failure CAPACITY if the provider fills that field",
			do: func(c *Case) {
				id := c.slot()
				b := behave("Create", id, refuse)
				b.ErrorClass = "out_of_capacity"
				c.fault(b)
				if _, err := c.create(id); err != nil {
					c.failf("Create: %v", err)
				}
				m := c.ends(id, lifecycle.Create, c.Settle)
				c.check(m.GetState() == failed && m.GetHost().GetRef() == "", "after a stock-out: %s, host %v", describe(m), m.GetHost())
				f := m.GetFailure()
				c.check(f == 0 || f == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY, "failure is %s", f)
			},
		},
		behaviour{
			name: "fail/transient", profile: Fault, hosts: 1, clauses: []string{"PROV-11.1"},
			says: "retry transient errors of the substrate until the call succeeds",
			do: func(c *Case) {
				id := c.host()
				b := behave("Configure", id, refuse)
				b.ErrorClass, b.Times = "transient", 2
				c.fault(b)
				c.mustConfigure(id, c.Clusters[0], nil)
			},
		},
		behaviour{
			name: "fail/partial", profile: Fault, slots: 1, needsSlots: true, clauses: []string{"PROV-7.9"},
			says: "launch only once when a launch succeeded but was reported as failed",
			do: func(c *Case) {
				id := c.slot()
				b := behave("Create", id, partial)
				b.ErrorClass, b.Times = "transient", 1
				c.fault(b)
				before := c.effects("Create", id)
				c.mustCreate(id)
				c.check(c.effects("Create", id)-before == 1, "%d hosts were launched", c.effects("Create", id)-before)
			},
		},
		behaviour{
			name: "fail/rest-is-unharmed", profile: Fault, hosts: 2, clauses: []string{"PROV-13.4", "PROV-3.4"},
			says: "keep the state of settled machines while the substrate does not answer at all",
			do: func(c *Case) {
				ids := c.idles(2)
				c.mustConfigure(ids[0], c.Clusters[0], nil)
				before := []*machine{c.get(ids[0]), c.get(ids[1])}
				c.fault(&bigfleetv1alpha1.Behaviour{Fault: bigfleetv1alpha1.FaultKind_FAULT_KIND_OUTAGE})
				for end := time.Now().Add(2 * c.Watch); time.Now().Before(end); c.sleep(100 * time.Millisecond) {
					for _, m := range before {
						c.same("an outage of the substrate", m)
					}
				}
			},
		},
	)
}

// limitMax is the longest time limit that the suite waits for.
const limitMax = 2 * time.Minute

// limited says that a behaviour waits for the provider's own time limit.
func (c *Case) limited() {
	if c.suite.limit > limitMax {
		c.cannot("the provider's time limit is %s; start it with time limits of at most %s for this run", c.suite.limit, limitMax)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func readyBehaviours() []behaviour {
	return []behaviour{
		{
			name: "ready/gate", profile: Fault, spends: 1, hosts: 1, clauses: []string{"PROV-14.1", "PROV-14.6"},
			says: "report CONFIGURED once the node is Ready, and never before",
			do: func(c *Case) {
				if c.Hooks.Readiness == nil {
					c.limited() // only the limit ends the wait
				}
				id := c.host()
				release := c.holdReadiness(id)
				c.configuresUnready(id)
				for end := time.Now().Add(2 * c.Watch); time.Now().Before(end); c.sleep(20 * time.Millisecond) {
					m := c.get(id)
					if m.GetState() == failed && time.Now().After(end) {
						if release != nil {
							release()
						}
						return // this process was held up beyond the limit: ready/never
					}
					if m.GetState() != configuring {
						c.failf("%s although its node is not Ready", describe(m))
					}
				}
				if release == nil {
					return // only the limit ends it: ready/never
				}
				release()
				c.settles(id, lifecycle.Configure)
			},
		},
		{
			name: "ready/never", profile: Fault, spends: 1, hosts: 1, clauses: []string{"PROV-14.1", "PROV-11.1"},
			says: "end in FAILED at the time limit when the node never becomes Ready, without ever being CONFIGURED",
			do: func(c *Case) {
				id := c.host()
				c.limited()
				if release := c.holdReadiness(id); release != nil {
					c.undo = append(c.undo, release)
				}
				c.configuresUnready(id)
				m := c.ends(id, lifecycle.Configure, c.suite.limit+c.Settle)
				c.check(m.GetState() == failed, "%s although its node was never Ready", describe(m))
				f := m.GetFailure()
				c.check(f == 0 || f == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_NOT_READY || f == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT, "failure is %s", f)
			},
		},
	}
}

// configuresUnready configures a machine whose node cannot be Ready: already the ack must not say that it is.
func (c *Case) configuresUnready(id string) {
	a, err := c.configure(id, c.Clusters[0], nil)
	if err != nil {
		c.failf("Configure: %v", err)
	}
	c.check(a.GetMachine().GetState() != configured, "the ack says %s although its node is not Ready", describe(a.GetMachine()))
}

// holdReadiness keeps nodes from becoming Ready. release lets them; nil where only the fault knows a "never".
func (c *Case) holdReadiness(id string) (release func()) {
	if c.Hooks.Readiness == nil {
		c.fault(behave("Ready", id, never))
		return nil
	}
	if err := c.Hooks.Readiness(c.ctx, false); err != nil {
		c.cannot("hook readiness: %v", err)
	}
	return func() {
		if err := c.Hooks.Readiness(context.WithoutCancel(c.ctx), true); err != nil {
			c.cannot("hook readiness: %v", err)
		}
	}
}

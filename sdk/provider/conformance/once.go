package conformance

import (
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

func onceBehaviours() []behaviour {
	repeat := func(k kind, prepare func(*Case) string) func(*Case) {
		return func(c *Case) {
			id := prepare(c)
			first, err := c.mutate(k, id)
			if err != nil {
				c.failf("%s: %v", k, err)
			}
			early, err := c.mutate(k, id) // in flight, or just settled
			c.repeated("right after the first call", k, first, early, err)
			c.settles(id, k)
			before := c.get(id)
			for range 3 {
				late, err := c.mutate(k, id)
				c.repeated("after it settled", k, first, late, err)
				if late != nil {
					c.check(late.GetMachine().GetState() == k.Edge().To, "a repeat of %s after it settled shows %s", k, name(late.GetMachine().GetState()))
				}
				c.same("a repeat of "+k.String(), before)
			}
		}
	}
	return []behaviour{
		{
			name: "once/repeat-create", profile: Core, slots: 1, needsSlots: true, clauses: []string{"PROV-7.1", "PROV-7.2", "PROV-7.6"},
			says: "answer a repeated Create with the first operation id, and start nothing", do: repeat(lifecycle.Create, (*Case).slot),
		},
		{
			name: "once/repeat-configure", profile: Core, hosts: 1, clauses: []string{"PROV-7.1", "PROV-7.2", "PROV-7.6"},
			says: "answer a repeated Configure with the first operation id, and start nothing", do: repeat(lifecycle.Configure, (*Case).host),
		},
		{
			name: "once/repeat-drain", profile: Core, hosts: 1, clauses: []string{"PROV-7.1", "PROV-7.2", "PROV-7.6"},
			says: "answer a repeated Drain with the first operation id, and start nothing", do: repeat(lifecycle.Drain, (*Case).node),
		},
		{
			name: "once/repeat-delete", profile: Cloud, slots: 1, clauses: []string{"PROV-7.1", "PROV-7.2", "PROV-7.6"},
			says: "answer a repeated Delete with the first operation id, and start nothing",
			do: repeat(lifecycle.Delete, func(c *Case) string {
				id := c.slot()
				c.mustCreate(id)
				return id
			}),
		},
		{
			name: "once/new-cycle-new-id", profile: Core, hosts: 1, clauses: []string{"PROV-7.3", "PROV-7.4"},
			says: "use a new operation id for each cycle: Configure, Drain and Configure have three, and a repeat returns the third",
			do: func(c *Case) {
				id := c.host()
				first, drained, second := c.mustConfigure(id, c.Clusters[0], nil), c.mustDrain(id), c.mustConfigure(id, c.Clusters[0], nil)
				ids := map[string]bool{first.GetOperationId(): true, drained.GetOperationId(): true, second.GetOperationId(): true}
				c.check(len(ids) == 3, "Configure %s, Drain %s, Configure %s", first.GetOperationId(), drained.GetOperationId(), second.GetOperationId())
				again, err := c.mutate(lifecycle.Configure, id)
				c.repeated("of the second Configure", lifecycle.Configure, second, again, err)
			},
		},
		{
			name: "once/create-and-drain-differ", profile: Core, slots: 1, needsSlots: true, clauses: []string{"PROV-7.1", "PROV-7.3"},
			says: "distinguish Create from Drain, which both end in IDLE: a repeat is one of the same machine and kind",
			do: func(c *Case) {
				id := c.slot()
				created := c.mustCreate(id)
				before := c.get(id)
				if a, err := c.drain(id, 0); err == nil && a.GetOperationId() == created.GetOperationId() {
					c.check(false, "Drain on a machine that was just created returns Create's operation id")
				}
				c.same("Drain on IDLE", before)
				c.mustConfigure(id, c.Clusters[0], nil)
				drained := c.mustDrain(id)
				again, err := c.create(id)
				c.repeated("Create after a Drain", lifecycle.Create, created, again, err)
				if again != nil {
					c.check(again.GetOperationId() != drained.GetOperationId(), "Create returns Drain's operation id")
				}
			},
		},
		{
			name: "once/conflict", profile: Core, hosts: 1, clauses: []string{"PROV-7.7"},
			says: "reject Configure of a bound machine for another cluster with ALREADY_EXISTS, and keep the binding and the operation id",
			do: func(c *Case) {
				id := c.host()
				first := c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "v"})
				before := c.get(id)
				_, err := c.configure(id, c.Clusters[1], map[string]string{"other": "x"})
				c.check(codeOf(err) == connect.CodeAlreadyExists, "Configure for another cluster: %s, not ALREADY_EXISTS", codeName(codeOf(err)))
				c.same("a Configure for another cluster", before)
				again, err := c.configure(id, c.Clusters[0], map[string]string{"k": "v"})
				c.repeated("for the first cluster", lifecycle.Configure, first, again, err)
			},
		},
		{
			name: "once/first-values-stay", profile: Core, hosts: 1, clauses: []string{"PROV-7.8", "PROV-8.5"},
			says: "treat a Configure for the same cluster with other metadata as a repeat, and keep the first metadata",
			do: func(c *Case) {
				id := c.host()
				first := c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "first"})
				before := c.get(id)
				a, err := c.send(request{
					kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: c.Clusters[0],
					metadata: map[string]string{"k": "second", "more": "x"}, blob: []byte("another"),
				})
				c.repeated("with other metadata", lifecycle.Configure, first, a, err)
				c.same("a repeat with other metadata", before)
			},
		},
		{
			name: "once/other-connections", profile: Core, hosts: 1, clauses: []string{"PROV-7.5"},
			says: "recognise a repeat on another connection",
			do: func(c *Case) {
				id := c.host()
				first := c.mustConfigure(id, c.Clusters[0], nil)
				for range 3 {
					again, err := c.sendBy(c.another(), c.ordinary(lifecycle.Configure, id, c.fresh()))
					c.repeated("on another connection", lifecycle.Configure, first, again, err)
				}
			},
		},
	}
}

// repeated checks that an answer is the known operation.
func (c *Case) repeated(what string, k kind, first, again *ack, err error) {
	if err != nil {
		c.check(false, "a repeat of %s %s: %v", k, what, err)
		return
	}
	c.check(again.GetOperationId() == first.GetOperationId(), "a repeat of %s %s has operation id %q, the first had %q", k, what, again.GetOperationId(), first.GetOperationId())
}

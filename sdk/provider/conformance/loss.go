package conformance

import (
	"context"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
)

func lossBehaviours() []behaviour {
	return []behaviour{
		{
			name: "loss/returns", profile: Fault, spends: 1, hosts: 2, clauses: []string{"PROV-3.4", "PROV-11.8"},
			says: "end a machine whose host is proven gone in FAILED or leave it, and never change another machine",
			do: func(c *Case) {
				ids := c.idles(2)
				c.mustConfigure(ids[0], c.Clusters[0], nil)
				other := c.get(ids[1])
				if c.Hooks.Faults == nil {
					c.cannot("hook faults is not given, so no host can be lost")
				}
				if err := c.Hooks.Faults.Lose(c.ctx, ids[0]); err != nil {
					c.cannot("hook faults: %v", err)
				}
				c.undo = append(c.undo, func() { _ = c.Hooks.Faults.Return(context.WithoutCancel(c.ctx), ids[0]) })
				for end := time.Now().Add(4 * c.Watch); time.Now().Before(end); c.sleep(100 * time.Millisecond) {
					c.same("the loss of another host", other)
					m, err := c.read(ids[0])
					if codeOf(err) == connect.CodeNotFound {
						return // lost, and taken away by the janitor
					}
					if err != nil {
						c.failf("Get: %v", err)
					}
					switch m.GetState() {
					case configured:
					case failed:
						f := m.GetFailure()
						c.check(f == 0 || f == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST, "failure is %s", f)
						return
					default:
						c.failf("%s after its host was lost", describe(m))
					}
				}
				c.excused("the loss was not noticed within %s; to notice it is optional (tier B)", 4*c.Watch)
			},
		},
		{
			name: "loss/everything-at-once", profile: Fault, hosts: 5, clauses: []string{"PROV-1.7", "PROV-3.4"},
			says: "keep its machines when the substrate lists no hosts for a moment",
			do: func(c *Case) {
				ids := c.idles(5)
				for _, id := range ids[:3] {
					c.mustConfigure(id, c.Clusters[0], nil)
				}
				if c.Hooks.Faults == nil {
					c.cannot("hook faults is not given, so no host can be lost")
				}
				// Hosts that vanish and return within one look of the provider are not lost.
				if err := c.Hooks.Faults.Lose(c.ctx); err != nil {
					c.cannot("hook faults: %v", err)
				}
				back := func() { _ = c.Hooks.Faults.Return(context.WithoutCancel(c.ctx)) }
				c.undo = append(c.undo, back)
				c.sleep(2 * c.Watch)
				back()
				c.sleep(c.Watch)
				for _, id := range ids {
					m := c.get(id)
					c.check(m.GetState() != failed, "%s was given up as lost: %s", id, m.GetLastError())
				}
			},
		},
	}
}

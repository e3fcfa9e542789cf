package conformance

import (
	"context"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

func lifeBehaviours() []behaviour {
	return []behaviour{
		{
			name: "life/create", profile: Core, slots: 1, needsSlots: true, clauses: []string{"PROV-1.4", "PROV-3.2", "PROV-3.3", "PROV-4.6", "PROV-9.9", "PROV-9.12"},
			says: "acknowledge Create at once with a complete record in CREATING, end in IDLE with a host, and keep all labels",
			do: func(c *Case) {
				id := c.slot()
				before := c.get(id)
				a := c.mustCreate(id)
				c.checkAck(a, id, lifecycle.Create)
				after := c.get(id)
				c.check(after.GetHost().GetProvider() != "", "host.provider is empty")
				for k, v := range before.GetLabels() {
					c.check(after.GetLabels()[k] == v, "label %s was %q on the slot and is %q on the host", k, v, after.GetLabels()[k])
				}
				c.check(after.GetZone() != "" && (before.GetZone() == "" || before.GetZone() == after.GetZone()), "zone went from %q to %q", before.GetZone(), after.GetZone())
				c.check(after.GetCapacityType() == before.GetCapacityType() && after.GetInstanceType() == before.GetInstanceType(), "Create changed the instance type or the capacity type")
			},
		},
		{
			name: "life/configure", profile: Core, hosts: 1, clauses: []string{"PROV-1.4", "PROV-3.2", "PROV-3.3", "PROV-4.6", "PROV-8.1"},
			says: "acknowledge Configure at once in CONFIGURING with the binding, and end in CONFIGURED",
			do: func(c *Case) {
				id := c.host()
				a := c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "v"})
				c.checkAck(a, id, lifecycle.Configure)
				c.check(a.GetMachine().GetCluster() == c.Clusters[0] && a.GetMachine().GetShardMetadata()["k"] == "v", "the ack does not show the binding")
				m := c.get(id)
				c.check(m.GetCluster() == c.Clusters[0] && m.GetShardMetadata()["k"] == "v", "CONFIGURED does not show the binding")
			},
		},
		{
			name: "life/drain", profile: Core, hosts: 1, clauses: []string{"PROV-1.4", "PROV-3.2", "PROV-3.3", "PROV-4.6", "PROV-8.4", "PROV-11.6"},
			says: "acknowledge Drain at once in DRAINING with the binding, and end in IDLE without it",
			do: func(c *Case) {
				id := c.node()
				host := c.get(id).GetHost()
				a := c.mustDrain(id)
				c.checkAck(a, id, lifecycle.Drain)
				c.check(a.GetMachine().GetCluster() == c.Clusters[0] && len(a.GetMachine().GetShardMetadata()) > 0, "the ack of Drain no longer shows the binding")
				m := c.get(id)
				c.check(m.GetCluster() == "" && len(m.GetShardMetadata()) == 0, "IDLE still shows cluster %q and %d keys", m.GetCluster(), len(m.GetShardMetadata()))
				c.check(m.GetHost().GetProvider() == host.GetProvider(), "host.provider changed")
			},
		},
		{
			name: "life/reset", profile: Core, hosts: 1, clauses: []string{"PROV-11.13", "PROV-11.7"},
			says: "reset a machine on Drain without waiting for the rest of the grace once nothing runs on it, so that another cluster can use it",
			do: func(c *Case) {
				id := c.node()
				if _, err := c.drain(id, 3600); err != nil {
					c.failf("Drain: %v", err)
				}
				c.settles(id, lifecycle.Drain)
				c.mustConfigure(id, c.Clusters[1%len(c.Clusters)], nil)
			},
		},
		{
			name: "life/delete", profile: Cloud, hosts: 1, slots: 1, clauses: []string{"PROV-1.4", "PROV-3.2", "PROV-3.3", "PROV-3.6", "PROV-3.9", "PROV-4.6"},
			says: "acknowledge Delete at once in DELETING, and keep the record, which ends in SPECULATIVE without host, cluster and metadata",
			do: func(c *Case) {
				id := c.slot()
				c.mustCreate(id)
				a := c.mustDelete(id)
				c.checkAck(a, id, lifecycle.Delete)
				m := c.get(id)
				c.check(m.GetHost().GetRef() == "" && m.GetHost().GetProvider() == "", "a deleted machine still has a host")
			},
		},
		{
			name: "life/cycles", profile: Core, hosts: 1, clauses: []string{"PROV-3.8", "PROV-7.3", "PROV-8.5"},
			says: "allow any number of Configure and Drain cycles, each with its own operation ids and a clean IDLE",
			do: func(c *Case) {
				id := c.host()
				seen := map[string]bool{}
				for round := range 5 {
					for _, a := range []*ack{c.mustConfigure(id, c.Clusters[round%2], map[string]string{"round": string(rune('a' + round))}), c.mustDrain(id)} {
						c.check(!seen[a.GetOperationId()], "operation id %s was used twice", a.GetOperationId())
						seen[a.GetOperationId()] = true
					}
				}
			},
		},
		{
			name: "life/full-circle", profile: Cloud, slots: 1, clauses: []string{"PROV-3.2", "PROV-3.6", "PROV-7.3"},
			says: "take one machine through its whole life twice, with one machine id and new operation ids",
			do: func(c *Case) {
				id := c.slot()
				seen := map[string]bool{}
				for range 2 {
					for _, a := range []*ack{c.mustCreate(id), c.mustConfigure(id, c.Clusters[0], nil), c.mustDrain(id), c.mustDelete(id)} {
						c.check(!seen[a.GetOperationId()], "operation id %s was used twice", a.GetOperationId())
						seen[a.GetOperationId()] = true
					}
				}
			},
		},
		{
			name: "life/rest", profile: Core, hosts: 2, clauses: []string{"PROV-1.6", "PROV-1.7", "PROV-3.4", "PROV-6.1"},
			says: "keep the state of settled machines while only reads arrive",
			do: func(c *Case) {
				hosts := c.idles(2)
				c.mustConfigure(hosts[0], c.Clusters[0], map[string]string{"k": "v"})
				before := []*machine{c.get(hosts[0]), c.get(hosts[1])}
				for end := time.Now().Add(c.Watch); time.Now().Before(end); c.sleep(50 * time.Millisecond) {
					for _, m := range before {
						c.same("time alone", m)
					}
				}
			},
		},
		{
			name: "life/caller-goes-away", profile: Core, hosts: 1, clauses: []string{"PROV-1.5"},
			says: "finish accepted work when the caller disconnects",
			do: func(c *Case) {
				id := c.host()
				ctx, cancel := context.WithCancel(c.ctx)
				a, err := c.sendIn(ctx, c.client, c.ordinary(lifecycle.Configure, id, c.fresh()))
				cancel()
				if err != nil {
					c.failf("Configure of %s: %v", id, err)
				}
				c.settles(id, lifecycle.Configure)
				// Hanging up before the answer leaves it open whether it was accepted; it must not leave it half-way.
				ctx, cancel = context.WithTimeout(c.ctx, 500*time.Microsecond)
				defer cancel()
				_, _ = c.sendIn(ctx, c.client, request{kind: lifecycle.Drain, machine: id, fence: c.fresh()})
				c.sleep(100 * time.Millisecond)
				if m := c.get(id); m.GetState() != configured {
					c.settles(id, lifecycle.Drain)
				}
				c.check(a.GetOperationId() != "", "the ack carries no operation id")
			},
		},
		{
			name: "life/in-flight-only-its-own", profile: Core, also: []Profile{Fault}, hosts: 1, clauses: []string{"PROV-3.3", "PROV-5.5", "PROV-13.2"},
			says: "reject all other kinds while one is in flight, and show only its in-flight state",
			do: func(c *Case) {
				id := c.host()
				c.slow("Configure", id, 700*time.Millisecond)
				if _, err := c.configure(id, c.Clusters[0], nil); err != nil {
					c.failf("Configure: %v", err)
				}
				kinds := []kind{lifecycle.Create, lifecycle.Drain}
				if c.claims(Cloud) {
					kinds = append(kinds, lifecycle.Delete)
				}
				for _, k := range kinds {
					_, err := c.mutate(k, id)
					c.check(err != nil && codeOf(err) != connect.CodeFailedPrecondition, "%s during CONFIGURING: %s", k, codeName(codeOf(err)))
				}
				c.settles(id, lifecycle.Configure)
			},
		},
	}
}

// checkAck checks a first ack (PROV-4.6).
func (c *Case) checkAck(a *ack, id string, k kind) {
	c.check(a.GetOperationId() != "", "%s: the ack carries no operation id", k)
	m := a.GetMachine()
	if m == nil {
		c.check(false, "%s: the ack carries no machine", k)
		return
	}
	c.check(m.GetId() == id, "%s: the ack shows machine %q", k, m.GetId())
	c.check(m.GetState() == k.Edge().Through, "%s: the first ack shows %s, not %s; the answer must not wait for the work", k, name(m.GetState()), name(k.Edge().Through))
	c.check(m.GetInstanceType() != "" && m.GetCapacityType() != 0, "%s: the machine in the ack is incomplete", k)
}

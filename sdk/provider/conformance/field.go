package conformance

import (
	"fmt"
	"strings"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"google.golang.org/protobuf/proto"
)

func fieldBehaviours() []behaviour {
	return []behaviour{
		{
			name: "field/inventory", profile: Core,
			clauses: []string{"PROV-9.1", "PROV-9.2", "PROV-9.3", "PROV-9.5", "PROV-9.6", "PROV-9.7", "PROV-9.8", "PROV-9.9", "PROV-9.10"},
			says:    "obey the field rules in each record of the inventory",
			do: func(c *Case) {
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
					for _, why := range c.suite.faultsOf(m) {
						c.check(false, "%s: %s", m.GetId(), why)
					}
				}
			},
		},
		{
			name: "field/get-and-list-agree", profile: Core, hosts: 1, clauses: []string{"PROV-9.9", "PROV-4.6"},
			says: "return the same record from Get and List",
			do: func(c *Case) {
				id := c.host()
				c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "v"})
				got, listed := c.get(id), c.listed(id)
				c.check(difference(got, listed) == "", "Get and List differ: %s", difference(got, listed))
			},
		},
		{
			name: "field/spot", profile: Spot, clauses: []string{"PROV-9.6"},
			says: "declare an interruption probability above 0 for every SPOT machine",
			do: func(c *Case) {
				seen := 0
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
					if m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT {
						seen++
						p := m.GetInterruptionProbability()
						c.check(p > 0 && p <= 1, "%s has probability %v", m.GetId(), p)
						c.check(m.GetPricePerHour() > 0, "%s is billed by the hour and has price %v", m.GetId(), m.GetPricePerHour())
					}
				}
				if seen == 0 {
					c.failf("profile spot is claimed, but no machine is SPOT")
				}
				c.note("%d SPOT machines", seen)
			},
		},
		{
			name: "field/no-unclaimed-spot", profile: Core, unless: []Profile{Spot}, clauses: []string{"PROV-9.6"},
			says: "list no SPOT machine unless profile spot is claimed",
			do: func(c *Case) {
				c.check(!c.suite.inventory.spot, "SPOT machines are listed; claim profile spot so that their fields are tested")
			},
		},
		{
			name: "field/billed-has-a-price", profile: Core, unless: []Profile{BareMetal}, clauses: []string{"PROV-9.5"},
			says: "give each ON_DEMAND and SPOT machine a price above 0",
			do: func(c *Case) {
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
					c.check(!rented(m) || m.GetPricePerHour() > 0, "%s (%s) has no price", m.GetId(), m.GetCapacityType())
				}
			},
		},
		{
			name: "field/bare-metal", profile: BareMetal, hosts: 1, clauses: []string{"PROV-3.11"},
			says: "list its hosts in IDLE from the start",
			do: func(c *Case) {
				found := false
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
					owned := m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_BARE_METAL || m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_RESERVED
					c.check(owned, "%s is %s in a fixed pool; BigFleet would try to delete it, which the pool does not support", m.GetId(), m.GetCapacityType())
					found = found || m.GetState() != speculative && m.GetState() != creating
				}
				c.check(found, "no machine has a host")
			},
		},
		{
			name: "field/wire", profile: Core, hosts: 1, clauses: []string{"PROV-4.6", "PROV-9.10"},
			says: "send records with fields of the contract only, and with valid UTF-8 text",
			do: func(c *Case) {
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{MaxResults: 50}).GetMachines() {
					c.check(len(m.ProtoReflect().GetUnknown()) == 0, "%s carries unknown fields", m.GetId())
					for k, v := range m.GetLabels() {
						c.check(strings.ToValidUTF8(k+v, "") == k+v, "%s has a label that is not UTF-8", m.GetId())
					}
					again, err := proto.Marshal(m)
					c.check(err == nil && len(again) > 0, "%s cannot be encoded: %v", m.GetId(), err)
				}
			},
		},
	}
}

// describe is a machine for a sentence.
func describe(m *machine) string { return fmt.Sprintf("%s is %s", m.GetId(), name(m.GetState())) }

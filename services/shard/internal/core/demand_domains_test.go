package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-10.14, SHARD-6.9: nothing is bought for rows whose topology key tells more machines apart than make domains, and they say so. What follows from the machines ends with
// them: as soon as they have fewer values, the rows are served.
func TestKeysThatTellMachinesApartAreNoTopology(t *testing.T) {
	machines := slotsOf(inventory.DomainsMax + 1)
	for i := range machines {
		machines[i].Labels = []inventory.Label{{Key: "serial", Value: fmt.Sprint(i)}}
	}
	w := newWorld(t, func(c *Config) { c.ReconcileInterval = Minute }, machines...)
	w.tampered = true // no replay: the machines are many
	w.connect("red")
	rows := needs(0, 4, 4, 4)
	rows[0].Profile.Requirements = []demand.Requirement{{Key: "serial", Op: demand.Same}}
	rows[1].Profile.Spread = []demand.Spread{{Key: "serial", MaxSkew: 1}}
	for i := range rows {
		rows[i].Group = fmt.Sprint(i)
		rows[i].Seal()
	}
	w.rollup("red", rows)
	w.run(2 * Second)
	said := 0
	for _, b := range w.c.pub.list {
		for i := range b.Rows {
			if r := &b.Rows[i]; r.Detail() == DetailTooManyDomains {
				said++
				if !strings.Contains(r.Text(), "more than 65536 values of the topology key serial") || r.Remedy() == "" {
					t.Errorf("%q, %q", r.Text(), r.Remedy())
				}
			}
		}
	}
	if n := len(w.called(RPCCreate)); said != 2 || n != 1 {
		t.Errorf("%d rows say that their key has too many values, want 2; %d machines are bought, want that of the third row", said, n)
	}
	last := machines[inventory.DomainsMax]
	last.Labels = []inventory.Label{{Key: "serial", Value: "0"}}
	w.provider[last.ID] = &last
	w.run(2 * Minute)
	if n := len(w.called(RPCCreate)); n != 1+1+4 { // one for the gang, and one for each of the four Pods that spread
		t.Errorf("%d machines are bought when the key has as many values as make domains, want 6", n)
	}
}

package planner_test

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ENG-6.5b: rows that name values of labels that are different on every machine make classes of what they name, and not of all machines. What they match is the
// same, also when machines and rows come later.
func TestRowsNameAFewOfManyHosts(t *testing.T) {
	const machines, named = 2 * inventory.WideMin, 12
	w := newScript().w
	put := func(i int) {
		w.Inventory.Put(inventory.Machine{ID: fmt.Sprint("m", i), State: inventory.Speculative, Provider: "p", Price: int64(1000 - i%7), Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}},
			Labels: []inventory.Label{{Key: "host", Value: fmt.Sprint("h", i)}, {Key: "slot", Value: fmt.Sprint(i)}}})
	}
	for i := range machines {
		put(i)
	}
	rows := func(from int) (out []demand.Row) {
		cpu := []resource.Quantity{{Name: "cpu", Milli: 4000}}
		for i := from; i < from+named; i++ {
			host, many := fmt.Sprint("h", i), []string{"nowhere"}
			for k := range named {
				many = append(many, fmt.Sprint("h", from+k))
			}
			for _, q := range [][]demand.Requirement{
				{{Key: "host", Op: demand.In, Values: []string{host}}},
				{{Key: "host", Op: demand.NotIn, Values: []string{host}}},
				{{Key: "host", Op: demand.NotIn, Values: many}, {Key: "slot", Op: demand.Gt, Values: []string{fmt.Sprint(10 * i)}}},
				{{Key: "host", Op: demand.Exists}, {Key: "slot", Op: demand.Lt, Values: []string{fmt.Sprint(i)}}},
			} {
				out = append(out, demand.Row{Profile: demand.Profile{Requirements: q}, Group: fmt.Sprint(i), RowID: fmt.Sprint(len(out)), Aggregate: cpu, MinUnit: cpu})
			}
		}
		return out
	}
	pl := planner.NewPlanner()
	for step, change := range []func(){
		func() { w.Demand.Replace("red", rows(0), nil, 1) },
		func() { put(machines); put(machines + 1) },
		func() { w.Demand.Replace("red", rows(machines-named+2), nil, 2) },
		func() { w.Demand.Replace("red", rows(5)[:1], nil, 3) },
		func() { w.Demand.Replace("blue", rows(7)[:3], nil, 3) },
	} {
		change()
		in := engine.Input{World: w}
		sameBytes(t, w, pl.Plan(in), reference.Plan(in))
		if n := liveClasses(w.Inventory); n > 7*(4*named) {
			t.Errorf("step %d: %d classes", step, n)
		}
	}
	if n := liveClasses(w.Inventory); n > 7*10 {
		t.Errorf("%d classes for rows that name 3 hosts and a number", n)
	}
}

// ENG-6.5b: the values of one long list are one, whatever else names some of them: a row that lists each rack makes no class of each.
func TestRowsThatListManyValuesMakeFewClasses(t *testing.T) {
	const racks = 2 * inventory.WideMin
	w := newScript().w
	var all []string
	for i := range 2 * racks {
		w.Inventory.Put(inventory.Machine{ID: fmt.Sprintf("m%04d", i), State: inventory.Speculative, Provider: "p", Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}},
			Labels: []inventory.Label{{Key: "rack", Value: fmt.Sprint(i / 2)}}})
		all = append(all, fmt.Sprint(i/2))
	}
	cpu := []resource.Quantity{{Name: "cpu", Milli: 4000}}
	var rows []demand.Row
	for i, r := range []demand.Requirement{{Op: demand.In, Values: all[:racks]}, {Op: demand.NotIn, Values: all}, {Op: demand.In, Values: all[racks/2 : racks+9]}, {Op: demand.In, Values: []string{"17"}},
		{Op: demand.Gt, Values: []string{"50"}}} {
		r.Key = "rack"
		rows = append(rows, demand.Row{Profile: demand.Profile{Requirements: []demand.Requirement{r}}, Group: fmt.Sprint(i), RowID: fmt.Sprint(i), Aggregate: cpu, MinUnit: cpu})
	}
	pl := planner.NewPlanner()
	for n := range rows {
		w.Demand.Replace("red", rows[:n+1], nil, int64(n))
		in := engine.Input{World: w}
		sameBytes(t, w, pl.Plan(in), reference.Plan(in))
		if got := liveClasses(w.Inventory); got > 12 {
			t.Errorf("%d rows: %d classes", n+1, got)
		}
	}
}

func liveClasses(inv *inventory.Table) (n int) {
	for id := range inv.Classes() {
		if inv.Class(uint32(id)).Serial != 0 {
			n++
		}
	}
	return n
}

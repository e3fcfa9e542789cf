package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-28.3, 4.7: the step in which a segment of the decision log begins, in a shard of 500,000 machines, 5,000 clusters
// and 50,000 needs; copy is the one that hands out the state, which only a gap in the log asks for, and spell is what the log
// makes of it.
func BenchmarkCheckpoint(b *testing.B) {
	c := New(nil)
	at := At{Mono: Second, Wall: Second}
	step := func(e Event) { at.Mono += Millisecond; c.Step(at, e) }
	step(Started{Epoch: 1, Config: Config{ShardID: "s", Providers: []string{"p"}}})
	const machines, clusters, rows = 500_000, 5_000, 10
	var page []Fact
	for i := range machines {
		m := host(fmt.Sprintf("machine-%06d", i), inventory.Configured, fmt.Sprintf("cluster-%04d", i%clusters))
		page = append(page, Fact{Machine: m})
		if len(page) == 4096 {
			step(ListPage{List: 1, Rows: page})
			page = page[:0:0]
		}
	}
	step(ListPage{List: 1, Rows: page})
	step(ListDone{List: 1, Complete: true, Seen: machines})
	for i := range clusters {
		name := fmt.Sprintf("cluster-%04d", i)
		step(SessionOpened{Cluster: name, Session: int64(i + 1), Features: []string{"need-status"}})
		var list []demand.Row
		for n := range rows {
			list = append(list, rowOf(40, int32(n)))
		}
		step(RollupArrived{Cluster: name, Session: int64(i + 1), Arrival: int64(i + 1), Rows: list, RowCount: rows, Hash: name})
	}
	for i := range machines {
		cluster := i % clusters
		step(NodeReported{Cluster: fmt.Sprintf("cluster-%04d", cluster), Session: int64(cluster + 1), Machine: fmt.Sprintf("machine-%06d", i),
			Node: fmt.Sprintf("node-%06d", i), Present: true, Ready: true})
	}
	at.Mono += Second
	step(Tick{})
	b.Run("study", func(b *testing.B) { // the copy for Explain and Plan
		for b.Loop() {
			b.StopTimer()
			room := inventory.NewFreezeBuffer(machines)
			b.StartTimer()
			c.Freeze(room)
		}
	})
	b.Run("thaw", func(b *testing.B) { // off the loop
		for b.Loop() {
			b.StopTimer()
			f := c.Freeze(inventory.NewFreezeBuffer(machines))
			b.StartTimer()
			f.Thaw()
		}
	})
	b.Run("spell", func(b *testing.B) { // off the loop
		for b.Loop() {
			b.StopTimer()
			x := c.freeze()
			b.StartTimer()
			x.Snapshot()
		}
	})
	for _, full := range []bool{false, true} {
		b.Run(map[bool]string{false: "mark", true: "copy"}[full], func(b *testing.B) {
			for b.Loop() {
				step(CheckpointAsked{Full: full})
			}
		})
	}
}

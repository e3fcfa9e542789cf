package shard

import (
	"context"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// compare plans from nothing, now and then, what the core planned from memory (SHARD-6.10). It does so beside the loop, on a copy of the
// columns that the loop takes into memory made ready here. One comparison runs at a time.
func (s *shell) compare(ctx context.Context) error {
	tick := time.NewTicker(compareLook)
	defer tick.Stop()
	var due core.CompareCadence
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-s.comparisons:
			where := x.Difference()
			s.meter.PlanCompared()
			if where != "" && !s.beside.Push(ctx, core.PlanDiffered{Cycle: x.Cycle, Where: where}) {
				return nil
			}
		case <-tick.C:
			view := s.view.Load()
			if !due.Due(s.loop.Now().Mono, view.Status.Cycle) {
				continue
			}
			room := inventory.NewFreezeBuffer(view.Status.Machines)
			if !s.beside.Visit(ctx, func() { s.core.CompareNext(room) }) {
				return nil
			}
		}
	}
}

// compareLook is how often it is looked whether a comparison is due.
const compareLook = time.Second

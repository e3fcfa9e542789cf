package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// columns are what the core itself keeps for each machine, by Index: in blocks, so that a step that meets one machine more
// never moves those of half a million (SHARD-4.7).
type columns [][]column

const columnBlock = 4096

type column struct {
	mutation     int64 // value of the mutation counter at the last local change
	listed       int64 // number of the List that last showed the machine
	absent       absence
	subscriber   uint32 // number of the subscriber that was shown the machine
	subscriberAt uint32 // place in it
}

// absence counts the full Lists a machine was missing from, for the removal guard.
type absence struct {
	lists int32
	since int64
}

func (l *columns) grow(n int) {
	for len(*l)*columnBlock < n {
		*l = append(*l, make([]column, columnBlock))
	}
}

func (l columns) clone() columns {
	out := make(columns, len(l))
	for k, block := range l {
		out[k] = slices.Clone(block)
	}
	return out
}

func (l columns) at(i inventory.Index) *column { return &l[i/columnBlock][i%columnBlock] }

func (l *columns) mutationOf(i inventory.Index) int64 {
	if int(i) < len(*l)*columnBlock {
		return l.at(i).mutation
	}
	return 0
}

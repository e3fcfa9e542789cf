package role

import (
	"os"
	"runtime"
	"runtime/debug"
	heap "runtime/metrics"
	"sync"
)

const (
	// livingHeapGrowth is GOGC for a large heap that lives for long (ADR 0130).
	livingHeapGrowth = 50
	// heapRoom is by how much a heap may grow between two collections, however small it is (ADR 0237): half of five megabytes
	// would be filled hundreds of times in a burst of a thousand Pods.
	heapRoom = 32 << 20
	// heapGrowthMax is GOGC for a heap of which hardly anything is alive.
	heapGrowthMax = 1000
	// Collections take much of the processor from the first share of the time that is used, until they take less than the second; GOGC is busyGrowthMax at most
	// then (ADR 1002).
	busyFrom, busyUntil = 0.1, 0.03
	busyGrowthMax       = 200
)

// growth is GOGC for that many live bytes, of a heap that may grow by room while collections take much of the processor.
func growth(live, room uint64) int {
	live = max(live, 1)
	least := min(max(heapRoom*100/live, livingHeapGrowth), heapGrowthMax)
	return int(max(least, min(room*100/live, busyGrowthMax)))
}

// collector sets GOGC after each collection, by what that one found alive and what collections cost.
type collector struct {
	room uint64 // while they cost much

	mu    sync.Mutex
	now   int
	spent spent
	busy  bool
	ended bool
}

// spent is processor time since the start of the process, in seconds.
type spent struct{ collecting, all float64 }

// since is the share of collections in what was used since an earlier moment.
func (s spent) since(was spent) float64 {
	return (s.collecting - was.collecting) / max(s.all-was.all, 0.001)
}

// livingHeap starts a collector, unless the environment sets GOGC. The caller must call end, which sets GOGC to what it was.
func livingHeap(room uint64) (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	alive, spent := measure()
	c := &collector{room: room, now: growth(alive, 0), spent: spent}
	was := debug.SetGCPercent(c.now)
	c.arm()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
		debug.SetGCPercent(was)
	}
}

// arm leaves an object that the next collection finds dead.
func (c *collector) arm() {
	sentinel := new(*collector) // a pointer in it, so that it is not part of a block of small objects
	runtime.AddCleanup(sentinel, func(c *collector) { c.collected() }, c)
}

func (c *collector) collected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	alive, spent := measure()
	share, room := spent.since(c.spent), uint64(0)
	c.spent = spent
	if c.busy = share > busyFrom || c.busy && share > busyUntil; c.busy {
		room = c.room
	}
	// Setting it stops the world for a moment, so it is set when it makes a difference.
	if want := growth(alive, room); want < c.now || want > c.now+c.now/8 {
		debug.SetGCPercent(want)
		c.now = want
	}
	c.arm()
}

// measure reads what the last collection found alive, and what collections and everything have cost until then.
func measure() (alive uint64, s spent) {
	const total, idle = "/cpu/classes/total:cpu-seconds", "/cpu/classes/idle:cpu-seconds"
	m := []heap.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: total}, {Name: idle}}
	heap.Read(m)
	return m[0].Value.Uint64(), spent{m[1].Value.Float64(), m[2].Value.Float64() - m[3].Value.Float64()}
}

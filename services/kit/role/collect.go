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
)

// growth is GOGC for that many live bytes.
func growth(live uint64) int {
	return int(min(max(heapRoom*100/max(live, 1), livingHeapGrowth), heapGrowthMax))
}

// collector sets GOGC after each collection, by what that one found alive.
type collector struct {
	mu    sync.Mutex
	now   int
	ended bool
}

// livingHeap starts a collector, unless the environment sets GOGC. The caller must call end, which sets GOGC to what it was.
func livingHeap() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	c := &collector{now: growth(live())}
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
	// Setting it stops the world for a moment, so it is set when it makes a difference.
	if want := growth(live()); want < c.now || want > c.now+c.now/8 {
		debug.SetGCPercent(want)
		c.now = want
	}
	c.arm()
}

func live() uint64 {
	s := []heap.Sample{{Name: "/gc/heap/live:bytes"}}
	heap.Read(s)
	return s[0].Value.Uint64()
}

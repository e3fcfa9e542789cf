package provider

import (
	"math"
	"os"
	"runtime/debug"
	heap "runtime/metrics"
	"time"
)

// Marking 100,000 machines occupies two cores for a tenth of a second, which delays every ack. So
// a program collects seldom (docs/adr/0206).
const (
	// heapRoom is what a heap may grow to before it is collected. The chart's limit of 1 GiB has room for it twice.
	heapRoom = 512 << 20
	// growthMin is GOGC for a fleet that leaves no such room, growthMax for one that is small: its marking is short.
	growthMin, growthMax = 200, 600
	// growthEvery is how often the size of the heap is looked at. A fleet grows for minutes, while machines are offered.
	growthEvery = 10 * time.Second
)

// collectSeldom sets GOGC by what is alive, for as long as the process lives, unless the environment sets it. Under GOMEMLIMIT, which
// the charts set, the runtime collects earlier when memory is scarce.
func collectSeldom() {
	keepRoom()
	if os.Getenv("GOGC") != "" {
		return
	}
	now := growthMin
	debug.SetGCPercent(now)
	for range time.Tick(growthEvery) {
		live := []heap.Sample{{Name: "/gc/heap/live:bytes"}}
		heap.Read(live)
		// Setting it stops the world for a moment, so it is set when it makes a difference.
		if want := growth(live[0].Value.Uint64()); want < now || want > now+now/8 {
			debug.SetGCPercent(want)
			now = want
		}
	}
}

// keepRoom lowers the limit of GOMEMLIMIT by a fifth. The charts set it to nearly all that the container may have; the program's own pages and
// what arrives while the collector runs come on top.
func keepRoom() {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit - limit/5)
	}
}

// growth is GOGC for that many live bytes.
func growth(live uint64) int {
	if live >= heapRoom {
		return growthMin
	}
	return int(min(max((heapRoom-live)*100/max(live, 1), growthMin), growthMax))
}

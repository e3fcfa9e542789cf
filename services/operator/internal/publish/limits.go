package publish

import "time"

// BytesSoft and RowsSoft are what a roll-up may hold without a warning: the shard's documented soft limit (OP-5.5, WIRE-4.4).
const (
	BytesSoft = 1 << 20
	RowsSoft  = 1000
)

const (
	debounceDefault = 250 * time.Millisecond
	heartbeatEvery  = 10 * time.Second
	spacing         = time.Second      // between two roll-ups, on average (OP-5.1)
	saved           = 30               // roll-ups not sent in quiet time that a burst may send without the spacing
	rebuildEvery    = 10 * time.Minute // full rebuild (OP-5.9)
	hardBytes       = 16 << 20         // limit of a shard that states none (WIRE-4.4)
	hardBytesMost   = 256 << 20        // whatever a shard states
	bytesPerSecond  = 8 << 20          // of roll-ups above the soft limit (OP-5.5)
	stuckAfter      = time.Minute      // beyond a heartbeat: the process asks to be restarted (OP-3.5)
	batchesMax      = 4096             // roll-ups with requests that wait for the shard's acknowledgement; older ones merge
)

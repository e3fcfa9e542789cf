package session

import "time"

const (
	// FrameBytesMax is the size of one frame, each way (WIRE-4.4). Four times the largest roll-up: a library default of a
	// few MiB would turn one large roll-up into a silent loop of reconnect and resend (OP-4.15).
	FrameBytesMax = 64 << 20
	// SentBytesMax is the size of one frame to a shard that accepts the largest roll-ups (OP-5.5).
	SentBytesMax = 272 << 20
	// ResponsesMax are responses that wait to be sent; bigfleet_operator_outbox_dropped_total (OP-4.8). A response behind
	// 256 others comes too late for the shard.
	ResponsesMax = 256
	// ReportsMax are subjects with a report that waits; beyond it new subjects wait for the next full set. Twice the
	// machines of the largest cluster we know of.
	ReportsMax = 20_000

	rollupWaitMax  = 100 * time.Millisecond // how long a roll-up waits behind responses and reports (OP-4.9)
	helloWait      = 20 * time.Second       // for the acknowledgement of Hello; a shard that never answers is not a shard
	stopWait       = 2 * time.Second        // to flush responses at a stop (OP-3.4)
	backoffMin     = 500 * time.Millisecond
	backoffMax     = 30 * time.Second
	healthyAfter   = 60 * time.Second // a session this old resets the backoff
	pingInterval   = 15 * time.Second
	pingTimeout    = 10 * time.Second // so a dead peer is found within 25 s (OP-4.3)
	featureVersion = "/1"
)

// KeepaliveInterval and KeepaliveTimeout are the settings of the connection under the stream (OP-4.3).
const (
	KeepaliveInterval = pingInterval
	KeepaliveTimeout  = pingTimeout
)

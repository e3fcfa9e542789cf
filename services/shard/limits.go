package shard

import "time"

// Limits of the process (SHARD-32, WIRE-4.4). Unlimited is not a value. Limits that are flags stand in Config; those of
// the core stand beside it, in internal/core/core_config.go.
const (
	// FrameBytesMax bounds one frame of a session, or --max-rollup-bytes and 16 MiB do if that is more.
	// bigfleet_shard_frames_oversize_total counts streams that ended for it.
	FrameBytesMax = 64 << 20
	// RollupBytesTop is the most that --max-rollup-bytes may be.
	RollupBytesTop = 256 << 20
	// ProviderBytesMax bounds an answer of a provider: 500,000 machines are about 200 MiB, and larger ones are paged.
	ProviderBytesMax = 256 << 20
	// BlobBytesMax bounds bootstrap data. Cloud providers take far less; larger counts as an error of the operator.
	BlobBytesMax = 1 << 20
	// OutboxEssentialFrames and OutboxBytes bound what waits for one operator. A session over them is a slow consumer
	// (bigfleet_shard_outbox_slow_closed_total).
	OutboxEssentialFrames = 1024
	OutboxBytes           = 32 << 20
	// SlowConsumerAfter is how long one write to an operator or a reader may take.
	SlowConsumerAfter = 30 * time.Second
	// FastFramesMax bounds the answers and reports of one session that wait for the core; a full one slows that session.
	FastFramesMax = 256
	// ReadsMax bounds reads at a time, ReadStreamsMax the streams that are being sent; more are refused, not queued. Each caller
	// may have a part of them.
	ReadsMax       = 8
	ReadStreamsMax = 128
	// StopTimeout bounds the whole stop, 5 s under the usual 30 s of a Pod.
	StopTimeout = 25 * time.Second
	// StalledAfter is how long the loop may finish no step while events wait before liveness fails.
	StalledAfter = 60 * time.Second
)

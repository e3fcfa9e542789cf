// Package session keeps the operator's one stream to its shard.
//
// Client.Run dials, says Hello, sends and receives until either side ends the stream, and dials again after a
// jittered backoff; there is never more than one stream. A Link is one stream that is open: it carries the newest
// roll-up (one slot, a newer one replaces it), a bounded queue of responses (when full the newest is dropped, because the
// shard asks again), and the newest report of each subject. Nothing that is handed to a Link ever blocks its caller.
//
// The package knows frames, not their meaning: what arrives is given to a Receiver, which must only route. Nothing that
// must outlive a stream lives here. Term and epoch of acknowledgements are logged and decide nothing (OP-4.5).
//
// Start at Client.Run, then link.go. Tests cite the operator specification as OP-n.n.
package session

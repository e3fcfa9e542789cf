// Package publish decides when the demand of the cluster is sent, and what an answer to it means.
//
// A Publisher holds the aggregate of all CapacityRequests. It sends a roll-up at once when a session opens, a short
// debounce after a change, and as a heartbeat; each one is the complete demand. It sends only what it built from a cache
// that was synchronised once, it never sends a truncated roll-up, and while the API server is away it repeats what it
// knew: silence is never "no demand" (OP-1.3).
//
// The Publisher hands requests to an Acknowledger once the shard has them. It writes nothing itself. Changes come in
// through Set and Delete, from the handlers of the cache; they take microseconds.
//
// Start at Publisher.Run. Tests cite the operator specification as OP-n.n.
package publish

// Package session is the shard's end of the stream that each cluster opens.
//
// Handler serves Shard.Session: it checks the first frame and the identity, installs the session (the newest wins),
// routes what the operator sends to the core, and writes what the core sends from one outbox per session. Roll-ups are
// decoded and gated in a pool of workers beside the receive loop, so a large one never delays the answers behind it.
//
// The package owns streams, outboxes, roll-up slots and the secret bytes of bootstrap answers (Blobs). It decides
// nothing: dispositions, replays and instructions come from the core as effects. Producers never block on a tenant.
// Start at Handler.Session. Tests cite SHARD-7, SHARD-8, SHARD-9 and WIRE-6.
package session

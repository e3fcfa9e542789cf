// Package coordclient finds the leading coordinator and keeps finding it (COORD-6.3).
//
// A Client is given one or more addresses. Each call is tried at the cached leader, at the leader that the last
// NotLeader answer named, then at every address, each name resolved again in every round, until an answer comes or the
// caller's deadline ends. FAILED_PRECONDITION means "not the leader" on every coordinator service and nothing else;
// UNAVAILABLE and transport errors mean "ask another"; any other code is the answer. A call may therefore reach two
// replicas: every order of the coordinator is idempotent, so that repeating one is safe.
//
// The Client also keeps to one lineage: it pins the cluster UUID it was given or saw first, and refuses answers of
// another group unless they list the pinned one as previous and carry a higher term (COORD-6.3.4). Under mTLS the
// server must be a coordinator (COORD-6.3.5).
//
// Shards, the CLI, the console and joining replicas use it. It depends on generated code and package rpc alone, never
// on the coordinator. It decides nothing about answers, persists nothing (see Config.OnPin) and starts no goroutine.
//
// Start at New, then Client.Report for shards and Client.Do for other callers.
package coordclient

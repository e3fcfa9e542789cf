// Package console serves the web UI of BigFleet and the RPCs behind it: who waits and why, what the fleet has, what it costs, and
// what happened when.
//
// It reads the coordinator and the shards with a read identity, follows each shard once however many people look (package sources),
// and forwards an allow-list of read RPCs from browsers (package serve). It decides nothing and keeps nothing: a console may be
// stopped, started and doubled at any time.
//
// It must never call an RPC that changes something, and never show a guess in the place of a source that is silent.
//
// Start at Config, then Run.
//
// web/test has the browser tests; e2e/console runs them on real fleets.
package console

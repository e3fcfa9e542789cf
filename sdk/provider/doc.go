// Package provider makes a BigFleet capacity provider out of a backend of four methods.
//
// A provider hands machines to BigFleet: it turns quota into hosts, joins hosts to clusters, empties them and gives them
// back. What is special about a cloud, a hypervisor or a rack is the Backend. Everything else is here and the same for
// all: the six RPCs on one port in gRPC, gRPC-Web and Connect (so curl works), fencing of stale callers, idempotent
// operation ids, background work with limits and retries, a store that survives kill -9, cursors and paging, echo of the
// binding, the readiness gate, mTLS, health, reflection, metrics and logs.
//
// It never decides which cluster gets a machine, reads no meaning into shard_metadata, never dials BigFleet, and knows
// nothing about Kubernetes: module sdk/nodeready watches Nodes for those who want that.
//
// Start at Backend, then New and Provider.Run; or Main, which is a whole program with flags. docs/providers.md is the
// guide from nothing to a certified provider, package conformance is the certificate. A Provider is safe for concurrent
// use; several can live in one process.
//
// Stability: the module follows semantic versioning. Within a major version, exported names keep their meaning, a Backend
// that compiles keeps compiling (new abilities are optional interfaces), and a newer version reads the store of every
// older one. Packages under internal promise nothing. Link gen/go only once: two generated copies of the proto package
// bigfleet.v1alpha1 cannot live in one binary.
//
// # Files
//
// What a third party writes against has a file of its own: backend.go (Backend and its optional parts), offering.go (what it offers),
// call.go (one call of it), batcher.go (many calls in one), option.go and limits.go (settings), readiness.go (when a Node is Ready), and
// provider.go (New, Run). A prefix names the rest:
//
//   - program_*: program.go is Main, a whole program: flags, config, catalogue, traces.
//   - run_*: what happens while a Provider runs. run_mutate.go, run_queue.go and run_transition.go carry out what BigFleet asks for;
//     run_reconcile.go, run_janitor.go and run_loss.go follow what the backend lists; run_offers.go, run_prices.go and run_stockout.go say
//     what can be bought; run_claims.go fences stale callers; run_admin.go, run_history.go and run_metrics.go are for people.
//
// Clauses are cited as PROV-n.m of docs/spec/provider.md.
package provider

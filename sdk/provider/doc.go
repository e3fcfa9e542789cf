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
// Clauses are cited as PROV-n.m of docs/spec/provider.md.
package provider

// Package server is the RPC port of a provider: transport, identity, encoding and the codes of refusals.
//
// It serves CapacityProvider and ProviderAdmin in gRPC, gRPC-Web and Connect on one port, with health and reflection. It
// checks who calls before anything else (PROV-2.6 to 2.10), encodes large lists without copying rows, recovers panics,
// and turns a refusal of package lifecycle into a status code.
//
// It holds no machine and decides nothing about one: Machines and the admin handler do. Safe for concurrent use. Start at
// New. Clauses are those of docs/spec/provider.md.
package server

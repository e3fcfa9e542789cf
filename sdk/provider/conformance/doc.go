// Package conformance certifies capacity providers: it plays a shard against a running provider, in any language, and
// says which clauses of docs/spec/provider.md it keeps.
//
// Execute runs the suite and returns a Report; Run does it inside a Go test; Command is the program that needs no Go. The
// suite is a black box: it speaks CapacityProvider, and SubstrateControl or ProviderAdmin only where a hook says so. Each
// behaviour has a stable name such as fence/stale-token, cites its clauses, picks its own machines and brings them back,
// so the suite can run on one provider again and again.
//
// A behaviour of a claimed profile ends as pass, fail or could not judge; the last one is never a pass, and there is no
// silent skip. The verdict is CONFORMANT, NOT CONFORMANT or INCOMPLETE.
//
// It owns no provider and starts none: hooks do that. It never calls Delete on a provider that does not claim profile
// cloud, except to see UNIMPLEMENTED. Start at Target, Run and behaviours.go.
package conformance

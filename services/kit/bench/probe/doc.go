// Package probe measures the floor: the least that a piece of work can cost on this machine, without any code of ours.
//
// Each probe does what its description says and no less, on memory that was written before, with fresh data where old
// data would be sorted or cached, and it keeps its result, so that the compiler cannot drop the work. A probe is a
// measure.Floor; measure.Sum and measure.Repeat combine them (P-sort + P-claim + 2 P-scan). Making a floor slower needs
// the same evidence as making a subject faster.
//
// It must never import a service or a package that a subject uses. It is test gear: a dependency test keeps it out of
// every binary. P-kube is with the end-to-end benchmarks, because it needs an API server.
//
// Start at the probe that the table of the benchmark programme names: Scan, Sort, Claim, Domain, Copy, Unmarshal,
// Marshal, Hash, Call, ServeConns, Fsync, RTT, FlatBytes.
package probe

// Command peer measures BigFleet beside Karpenter (B14): the same workloads on one control plane, each side in its turn.
//
// Karpenter is its own main for kwok, built from the module that karpenter/go.mod pins; nothing of it is linked here. Both sides buy
// from one catalogue with equal prices and equal room on each node, and give machines back after equal delays. The other side is stopped,
// and the cluster is empty, when a turn begins.
//
// `make peer` runs it and writes the page under docs/benchmarks. Start at run, then scenarios.go.
package main

// Package scenario tests the line from a pending Pod to a running one and back, on real control planes with real processes.
//
// Each test starts its own fixture and asserts what a user of the cluster or of the shard's ports sees.
package scenario

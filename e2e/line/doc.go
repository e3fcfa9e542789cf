// Package line tests the line from a pending Pod to a running one and back, on real control planes with real processes.
//
// Each test starts its own stack and asserts what a user of the cluster or of the shard's ports sees.
package line

// Package operator tests the operator and the pod controller on real control planes, against a shard that the test plays.
//
// Both run as libraries in the test's process, with the rights of their charts and nothing more; the shard is a real
// Connect server that records every frame and sends what a scenario needs. Each test names the clause or the scenario of
// the operator specification that it shows.
//
// Start at world_test.go.
package operator

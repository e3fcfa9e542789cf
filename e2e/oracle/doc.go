// Package oracle lets the real kube-scheduler judge what BigFleet buys.
//
// Each seed makes a random world: a catalogue, nodes that others made, and apps whose Pods use what kube-scheduler reads. The whole
// line serves it on a real control plane. Then two judges speak:
//
//   - kube-scheduler: BigFleet is stopped and nodes of every offering that still has stock are added. A Pod that waited and is bound now
//     should have had a machine: it is a miss.
//   - a packing: the cheapest set of machines that a search finds for the Pods that run, under the same constraints.
//
// The test runs a few seeds; `make oracle SEEDS=n` runs more and lists every miss. Start at world_test.go.
package oracle

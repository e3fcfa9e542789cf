// Package burst measures B6b: what a user waits, from a Pod created to its Node Ready, when many Pods come at once.
//
// The subject is the whole of BigFleet as its own programs on a real control plane, with the kwok provider and no machine
// delay; the floor is a plain client that creates the same Pods and, right after each four of them, the Node that holds
// them. Both are seen through the same watches by the same process. It says where the time goes, hop by hop, and counts
// the writes at the API server.
//
// A wait begins when the API server has answered the creation of the Pod, by the clock of the client that creates it.
//
// The test runs a small burst; BIGFLEET_B6B_PODS=1000 runs the published one, and BIGFLEET_BENCH_RESULTS records it. That one has
// four control planes, one after the other, in the order floor, subject, subject, floor; BIGFLEET_B6B_ROUNDS makes more of it.
package burst

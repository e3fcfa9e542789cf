// Package keeper keeps one CapacityRequest per Pod for the Pod's whole active life.
//
// The handlers of the cache pass Pods, Nodes and CapacityRequests to a Keeper. It reconciles each Pod that may have changed:
// it creates, updates or deletes the request of the Pod, or finds nothing to do. The name of a request follows
// from its Pod, so that a stale cache cannot create two; a request that an earlier producer made for the same Pod is
// adopted and kept. It writes no status.
//
// Counting only pending Pods would make bound machines look surplus and the fleet oscillate: a bound Pod counts like a
// pending one (OP-15.1). Start at Keeper.SetPod, then look.go. Tests cite the operator specification as OP-n.n.
package keeper

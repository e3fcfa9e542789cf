// Package podcontroller makes one CapacityRequest per Pod: the producer of demand for clusters that have no other.
//
// It watches Pods and keeps, for each of them that is active and may run on a BigFleet node, one CapacityRequest with
// what the scheduler would count, for the Pod's whole active life. It is optional: any other producer may write
// CapacityRequests, beside it or in its place.
//
// It must never schedule or change a Pod, write a status, or drop the demand of a Pod that runs because something cannot
// be expressed. With the controller gone, requests stay as they are.
//
// Run is the whole of it, as a library; NewCommand is the program. Start at Run; internal/translate says what a Pod asks
// for, internal/keeper keeps the objects in step. Tests cite the operator specification as OP-n.n.
package podcontroller

// Package translate says what a Pod asks for in the words of a CapacityRequest.
//
// Spec is a pure function of the Pod, its Node's labels and a few defaults. Amounts are the scheduler's own arithmetic,
// from its library. What a CapacityRequest cannot express is reduced by fixed rules, and every reduction is named, so
// that the owner of the Pod can be told; demand of a Pod that runs is never dropped, because that would take its node.
//
// Why says whether a Pod gets a request at all. Unmanaged nodes are named positively by the caller; that a label is
// missing never means "not ours".
//
// The package does no I/O and keeps nothing. Start at Why and Spec. Tests cite the operator specification as OP-n.n.
package translate

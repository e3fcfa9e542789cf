// Package translate turns a Pod into the spec of its CapacityRequest.
//
// Spec is a pure function of the Pod, its Node's labels and a few defaults. Amounts are the scheduler's own arithmetic,
// from its library. What a CapacityRequest cannot express is reduced by fixed rules, and every reduction is named, so
// that the owner of the Pod can read why; demand of a Pod that runs is never dropped, because that would take its node.
//
// Eligible says whether a Pod gets a request at all.
//
// The package does no I/O and keeps nothing. Start at Eligible and Spec. Tests cite the operator specification as OP-n.n.
package translate

// Package gangs recognises Pods that run together or not at all, as the projects of the ecosystem write them (OP-15.30).
//
// It owns the shapes of Pods, the members of each gang, and what the objects say that define one. It imports none of those projects: it
// reads labels, annotations and fields, and their objects as plain JSON. Nothing is asked of the API server before a Pod has a shape whose
// object matters, and nothing is watched that the API server does not serve. It never writes, and never decides what capacity is.
package gangs

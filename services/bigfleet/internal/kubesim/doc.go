// Package kubesim is an in-memory Kubernetes API server for simulated clusters.
//
// It stores the few kinds that BigFleet's own controllers and the models of a simulated cluster touch, and answers them over
// the real REST protocol: discovery, get, list, watch with resumption, bookmarks and streaming lists, create, update, merge,
// JSON and strategic patches, the status subresource, graceful deletion, owner-reference garbage collection, and eviction
// under disruption budgets. The operator and the pod controller therefore run unchanged against it (OPS-5.2).
//
// It is a model, not a Kubernetes: it validates nothing but names, has no admission, no defaulting beyond Pod phase and
// CapacityRequest status, no authorisation, and treats server-side apply as a merge. What must hold on a real API server is
// tested on a real one, in e2e.
//
// Server serves HTTP; Store is the same state for models that live in the process. Start at Server.
package kubesim

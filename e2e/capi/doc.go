// Package capi runs the provider of services/providers/clusterapi against the real controllers of Cluster API v1.14, on a
// real API server. The infrastructure is the in-memory one of Cluster API's own tests: a server is an object, and a workload
// cluster is an API server in this process.
//
// It is a module of its own, outside of go.work, because Cluster API's tree is large. `make capi` runs it, `make capi MACHINES=500` with that many machines, and CERTIFY=1 lets the conformance suite judge the provider, too.
package capi

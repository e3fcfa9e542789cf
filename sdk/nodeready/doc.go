// Package nodeready tells a provider when a Node is Ready, by watching the Nodes of each target cluster.
//
// A Source is the provider.NodeSource of readiness mode "nodes": one shared watch per cluster, begun when the cluster is
// first named and kept; nothing is polled. A machine is matched by spec.providerID equal to its host reference, else by the
// node name equal to its id. Kubeconfigs says how clusters are reached: by a map, by a directory with a file per cluster
// id, or one default for all; changes are picked up without a restart.
//
// It needs get, list and watch on nodes and nothing else. It never writes, never decides that a host is lost, and reads
// a cluster that does not answer as "not ready yet" (PROV-14.6).
//
// It is a module of its own so that sdk/provider stays free of Kubernetes. Safe for concurrent use. Start at NewSource.
package nodeready

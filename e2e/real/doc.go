// Package real runs containers on nodes that BigFleet made: real kubelets and containerd on hosts that are Linux namespaces of this
// machine, real control planes, the hosts provider with its agents, and the operators' own boot data.
//
// Start gives a fleet of clusters and hosts; Missing says why this machine cannot have one. Everything of a host, containers
// included, lives in its namespaces and ends with it. Start at Start, then host.go for what a host is.
package real

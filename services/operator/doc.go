// Package operator is BigFleet's agent in one managed cluster: the demand edge.
//
// It turns the cluster's CapacityRequests into one roll-up and sends it to the shard over the one stream that it opens;
// it turns what the shard decides into UpcomingNodes and AvailableCapacities, and empties the nodes that the shard takes
// back. It decides nothing about capacity. Nothing ever connects to the cluster: the only port is the one for metrics.
//
// What it must never do: send a roll-up that it did not build from a complete cache, read silence as "no demand",
// evict from a node that no instruction names, delete a Pod, or write a secret to a log. With the operator gone, nodes
// stay.
//
// Run is the whole of it, as a library: several operators run in one process without sharing state. NewCommand is the
// program. Start at Run, then router.go; each internal package owns one concern. Tests cite the operator specification
// as OP-n.n.
package operator

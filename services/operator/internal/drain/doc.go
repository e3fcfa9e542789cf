// Package drain empties nodes that the shard takes back.
//
// A Drainer cordons the nodes that an instruction names, says truthfully which of them are cordoned, and then empties
// each one in a task of its own until its own deadline: through the eviction API alone, so that disruption budgets hold,
// and never by deleting a Pod. A drain lives outside the session that ordered it, and its state stands in an annotation
// of the Node, so that a successor of this process continues with the same deadline.
//
// It never picks a node by itself (OP-9.1), and it starts nothing because the shard is silent. A person who uncordons a
// node is obeyed; a drain that is taken back leaves the node as it was.
//
// Start at Drainer.Instruct, then task.go. Tests cite the operator specification as OP-n.n.
package drain

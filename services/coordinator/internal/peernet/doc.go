// Package peernet carries Raft between replicas (COORD-13.1, 13.10, 14.1, 14.5).
//
// A Layer is a raft.StreamLayer. Every connection begins with a handshake that says which group and which node is at
// each end: a replica of another group, a second process with one node id, or a name that leads to the wrong node is
// turned away before Raft reads a byte. With TLS the certificate must name the node that the handshake names. Names
// are resolved at each dial, so a group whose members all come back elsewhere finds itself again.
//
// It owns the connections: Close ends every one of them, accepted or dialled, because a peer that keeps one to a node
// that stopped would wait for an answer that never comes. It must never decide who belongs to the group beyond what the
// handshake says; that is Raft's configuration. Start at Listen, then Probe.
package peernet

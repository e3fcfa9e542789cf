// Package rpc serves and dials every RPC surface of BigFleet.
//
// A Server answers Connect, gRPC and gRPC-Web over HTTP/1.1 and HTTP/2, cleartext or mTLS, on one listener, together
// with the gRPC health and reflection services (WIRE-2.3, WIRE-4.1). A Client speaks the gRPC protocol over HTTP/2 to
// one host:port (WIRE-4.2). Both send HTTP/2 pings, so that a peer that vanished without a FIN is noticed (WIRE-4.5),
// and both refuse to be made without message limits, since connect's own default is none (WIRE-4.4).
//
// The package owns what is equal for all services: limits, keepalive, who the peer is, the table of who may call
// which RPC, request validation, panic recovery, logs, traces, and the order of a stop. It holds no decision of any
// service, never retries (WIRE-4.3), never validates an answer (WIRE-3.12), and has no state outside its values: two
// servers in one process share nothing.
//
// What a handler finds in its context: Peer (PeerFrom), and the end of the server: a stream's context ends with cause
// ErrStopping when a stop begins, a unary call's when the time for the stop is over. A blocked Receive returns then too.
//
// Start at NewServer and Service, or NewClient and Stub. NewMemListener carries the same bytes inside one process.
package rpc

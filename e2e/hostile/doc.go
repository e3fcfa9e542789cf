// Package hostile tests the worst that a caller with a certificate of the fleet can do to the servers of BigFleet: coordinator, shard, and a
// provider of the SDK with its control port. The real programs run with certificates, as their charts run them.
//
// TestWhoMayCallWhat has the one table of who may call which RPC, and fails when the protos have an RPC that it does not name.
// TestHostileCallers sends generated calls to every RPC as every identity. No program may end, panic, answer INTERNAL, need more memory than its
// chart allows, or stop answering others. CI runs ten
// minutes of it at 30 calls a second beside other tests, and 10,000 calls and 45 s of as many as the servers answer; `make hostile` runs ten
// minutes of the latter, `make hostile-hour` an hour. A failure names its seed.
package hostile

// Package substrate is a simulated cloud: hosts, launch tokens, tags, stock, prices, boots, and a journal of every call.
//
// A Cloud implements provider.Backend and all of its optional interfaces, so it is a whole provider's backend without a
// cloud behind it. Authors use it as the fake of their own provider (--use-fake-backend), the provider `sim` is built on
// it, and the conformance suite injects faults into it: latency, errors by class, hangs, late and partial successes,
// throttling, outages, stale descriptions, lost hosts, nodes that never become Ready.
//
// Every draw depends only on (seed, machine id, call name, how often that call was made for that machine), so outcomes do
// not depend on timing or parallelism (PROV-24.6). Hosts live in memory; at start the Cloud takes those that the provider's
// books name, as a real cloud would still have them.
//
// A provider on a real backend must not serve Control (PROV-24.4). Safe for concurrent use. Start at New; Control serves
// SubstrateControl.
package substrate

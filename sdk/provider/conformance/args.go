package conformance

import (
	"math"
	"strings"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// Boot data that every provider takes, and the least that one may state where its substrate takes less (PROV-8.7).
const (
	blobBytes      = 1 << 20
	leastBlobBytes = 16 << 10
)

func argsBehaviours() []behaviour {
	return []behaviour{
		{
			name: "args/empty-id", profile: Core, clauses: []string{"PROV-5.2", "PROV-4.1"},
			says: "reject an empty machine id with INVALID_ARGUMENT",
			do: func(c *Case) {
				_, err := c.read("")
				c.check(codeOf(err) == connect.CodeInvalidArgument, "Get: %s", codeName(codeOf(err)))
				for _, k := range c.kinds() {
					_, err := c.mutate(k, "")
					c.check(codeOf(err) == connect.CodeInvalidArgument, "%s: %s", k, codeName(codeOf(err)))
				}
			},
		},
		{
			name: "args/unknown-machine", profile: Core, clauses: []string{"PROV-5.2", "PROV-4.4"},
			says: "answer NOT_FOUND for an unknown machine, and create no machine",
			do: func(c *Case) {
				for _, id := range []string{
					"no-such-machine-" + c.suite.run, "a/b/c-" + c.suite.run, "\x00" + c.suite.run, "ünïcode-" + c.suite.run,
					strings.Repeat("x", 5000) + c.suite.run, " ", "../" + c.suite.run,
				} {
					_, err := c.read(id)
					c.check(codeOf(err) == connect.CodeNotFound, "Get %s: %s", short(id), codeName(codeOf(err)))
					for _, k := range c.kinds() {
						_, err := c.mutate(k, id)
						c.check(codeOf(err) == connect.CodeNotFound, "%s %s: %s", k, short(id), codeName(codeOf(err)))
					}
					_, err = c.read(id)
					c.check(codeOf(err) == connect.CodeNotFound, "Get %s after the mutations: %s", short(id), codeName(codeOf(err)))
				}
				for _, m := range c.list(&bigfleetv1alpha1.ListFilter{}).GetMachines() {
					c.check(!strings.Contains(m.GetId(), c.suite.run), "machine %q appeared", m.GetId())
				}
			},
		},
		{
			name: "args/empty-cluster", profile: Core, hosts: 1, clauses: []string{"PROV-8.9", "PROV-4.4"},
			says: "reject Configure without a cluster with INVALID_ARGUMENT, and bind nothing",
			do: func(c *Case) {
				before := c.get(c.host())
				_, err := c.configure(before.GetId(), "", map[string]string{"k": "v"})
				c.check(codeOf(err) == connect.CodeInvalidArgument, "%s", codeName(codeOf(err)))
				c.same("Configure without a cluster", before)
			},
		},
		{
			name: "args/grace", profile: Core, hosts: 1, clauses: []string{"PROV-11.7", "PROV-11.6"},
			says: "reject a negative grace or treat it as 0, accept the largest grace, and end in IDLE",
			do: func(c *Case) {
				id := c.node()
				before := c.get(id)
				_, err := c.drain(id, -1)
				switch codeOf(err) {
				case connect.CodeInvalidArgument:
					c.same("Drain with a negative grace", before)
					if _, err := c.drain(id, math.MaxInt64); err != nil {
						c.failf("Drain with the largest grace: %v", err)
					}
				case ok:
				default:
					c.failf("Drain with a negative grace: %s", codeName(codeOf(err)))
				}
				c.settles(id, lifecycle.Drain)
			},
		},
		{
			name: "args/request-of-4-mib", profile: Core, hosts: 1, clauses: []string{"PROV-2.2", "PROV-8.6", "PROV-8.7"},
			says: "accept requests of 4 MiB on the port, and store their metadata completely or reject it with INVALID_ARGUMENT",
			do: func(c *Case) {
				id := c.host()
				before := c.get(id)
				large := map[string]string{"large": strings.Repeat("m", 3<<20), "": "", "k": "v"}
				a, err := c.configure(id, c.Clusters[0], large)
				switch codeOf(err) {
				case ok:
					c.sameMetadata("the ack", large, a.GetMachine())
					c.sameMetadata("CONFIGURED", large, c.settles(id, lifecycle.Configure))
					c.mustDrain(id)
				case connect.CodeInvalidArgument:
					c.same("a refused Configure", before)
				default:
					c.check(false, "metadata of 3 MiB: %s; the provider may store it completely or answer INVALID_ARGUMENT", codeName(codeOf(err)))
					c.same("a refused Configure", before)
				}
				before = c.get(id)
				_, err = c.send(request{kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: c.Clusters[0], blob: make([]byte, 3<<20+1)})
				switch codeOf(err) {
				case ok:
					c.settles(id, lifecycle.Configure)
				case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
					c.same("a refused Configure", before)
				default:
					c.check(false, "a blob of 3 MiB: %s", codeName(codeOf(err)))
				}
			},
		},
		{
			name: "args/too-large", profile: Core, hosts: 1, clauses: []string{"PROV-8.6", "PROV-8.7", "PROV-5.6", "PROV-4.4"},
			says: "apply no part of a Configure that is too large",
			do: func(c *Case) {
				id := c.host()
				before := c.get(id)
				for _, q := range []request{
					{metadata: map[string]string{"k": "v", "large": strings.Repeat("m", 20<<20)}},
					{blob: make([]byte, 20<<20), metadata: map[string]string{"k": "v"}},
				} {
					q.kind, q.machine, q.fence, q.cluster = lifecycle.Configure, id, c.fresh(), c.Clusters[0]
					a, err := c.send(q)
					if err == nil {
						c.sameMetadata("the ack", q.metadata, a.GetMachine())
						c.sameMetadata("CONFIGURED", q.metadata, c.settles(id, lifecycle.Configure))
						c.mustDrain(id)
						continue
					}
					c.refused("a Configure of 20 MiB", before, err)
				}
				c.mustConfigure(id, c.Clusters[0], nil)
			},
		},
		{
			name: "args/blob-of-1-mib", profile: Core, hosts: 1, clauses: []string{"PROV-8.7"},
			says: "accept boot data of 1 MiB, or of the size that GetProvider states, which must be at least 16 KiB",
			do: func(c *Case) {
				c.check(c.suite.blobBytes >= leastBlobBytes, "GetProvider states %d bytes of boot data; the minimum is %d", c.suite.blobBytes, leastBlobBytes)
				id := c.host()
				_, err := c.send(request{kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: c.Clusters[0], blob: make([]byte, c.suite.blobBytes)})
				if err != nil {
					c.failf("Configure: %v", err)
				}
				c.ends(id, lifecycle.Configure, c.Settle)
			},
		},
		{
			name: "args/wrong-state", profile: Core, hosts: 1, clauses: []string{"PROV-5.4", "PROV-5.5", "PROV-5.1", "PROV-4.4"},
			says: "reject a call that is not allowed in the machine's state, never with FAILED_PRECONDITION, and change nothing",
			do: func(c *Case) {
				id := c.host()
				before := c.get(id)
				// A drained machine answers a Drain as a repeat, so the machine must not come from a Drain.
				if _, err := c.drain(id, 0); err != nil || c.get(id).GetState() != idle {
					c.refused("Drain on IDLE", before, err)
				}
				c.mustConfigure(id, c.Clusters[0], map[string]string{"k": "v"})
				before = c.get(id)
				for _, k := range c.kinds() {
					if k == lifecycle.Configure || k == lifecycle.Drain {
						continue
					}
					_, err := c.mutate(k, id)
					c.refused(k.String()+" on CONFIGURED", before, err)
				}
			},
		},
		{
			name: "args/wrong-state-of-a-slot", profile: Core, slots: 1, needsSlots: true, clauses: []string{"PROV-5.4", "PROV-5.5", "PROV-5.1", "PROV-4.4"},
			says: "reject Configure and Drain on SPECULATIVE, never with FAILED_PRECONDITION, and bind nothing",
			do: func(c *Case) {
				before := c.get(c.slot())
				for _, k := range []kind{lifecycle.Configure, lifecycle.Drain} {
					_, err := c.mutate(k, before.GetId())
					c.refused(k.String()+" on SPECULATIVE", before, err)
				}
				if !c.claims(Cloud) {
					return
				}
				_, err := c.delete(before.GetId())
				c.check(codeOf(err) != connect.CodeFailedPrecondition, "Delete on SPECULATIVE: FAILED_PRECONDITION")
				c.same("Delete on SPECULATIVE", before) // it may also be an OK that does nothing
			},
		},
		{
			name: "args/delete-unsupported", profile: Core, unless: []Profile{Cloud}, clauses: []string{"PROV-5.3", "PROV-3.10"},
			says: "answer UNIMPLEMENTED to each Delete, whatever its id and token, and change no fencing mark",
			do: func(c *Case) {
				if _, err := c.delete("no-such-machine"); codeOf(err) != connect.CodeUnimplemented {
					// Nothing more is sent: a Delete that works would take a machine away.
					c.failf("Delete of an unknown machine: %s; a provider that supports Delete must claim profile cloud", codeName(codeOf(err)))
				}
				id, f := c.host(), c.fresh()
				for _, q := range []request{
					{machine: id, fence: f}, {machine: id, fence: fence{f.shard, math.MaxInt64, math.MaxInt64}}, {machine: "", fence: f},
					{machine: "no-such-machine"}, {machine: "no-such-machine", fence: f},
				} {
					q.kind = lifecycle.Delete
					_, err := c.send(q)
					c.check(codeOf(err) == connect.CodeUnimplemented, "Delete of %q: %s", q.machine, codeName(codeOf(err)))
				}
				// Had the largest token become the mark, this one would be stale.
				c.mustConfigure(id, c.Clusters[0], nil)
			},
		},
		{
			name: "args/delete-works", profile: Cloud, slots: 1, clauses: []string{"PROV-3.9"},
			says: "support Delete, because profile cloud is claimed",
			do: func(c *Case) {
				id := c.slot()
				c.mustCreate(id)
				_, err := c.delete(id)
				if codeOf(err) == connect.CodeUnimplemented {
					c.failf("Delete is UNIMPLEMENTED, but profile cloud is claimed")
				}
				if err != nil {
					c.failf("Delete of %s, a machine in IDLE: %v", id, err)
				}
				c.settles(id, lifecycle.Delete)
			},
		},
		{
			name: "args/random", profile: Core, clauses: []string{"PROV-4.4", "PROV-5.1", "PROV-5.2"},
			says: "answer any request about an unknown machine with a correct code, and keep running",
			do: func(c *Case) {
				for range 100 {
					q := request{
						kind: c.kinds()[c.random.IntN(len(c.kinds()))], machine: "nobody-" + c.suite.run + "-" + c.text(30), cluster: c.text(50),
						grace: int64(c.random.Uint64()), fence: fence{c.shard, c.suite.epoch, c.suite.seq.Add(1)},
						metadata: map[string]string{c.text(20): c.text(100)},
					}
					_, err := c.send(q)
					c.check(codeOf(err) == connect.CodeNotFound, "%s: %s", q.kind, codeName(codeOf(err)))
				}
			},
		},
	}
}

// kinds are those that the target serves.
func (c *Case) kinds() []kind {
	all := []kind{lifecycle.Create, lifecycle.Configure, lifecycle.Drain}
	if c.claims(Cloud) {
		all = append(all, lifecycle.Delete)
	}
	return all
}

// text is random, valid UTF-8 with hostile characters.
func (c *Case) text(max int) string {
	letters := []rune("abcXYZ019-_./:@ \x00\n\t\"'\\%$é漢🙂\u202e\ufeff")
	out := make([]rune, c.random.IntN(max+1))
	for i := range out {
		out[i] = letters[c.random.IntN(len(letters))]
	}
	return string(out)
}

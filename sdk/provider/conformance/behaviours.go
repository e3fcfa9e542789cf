package conformance

import (
	"slices"
)

// behaviours lists everything the suite judges, in the order of the run: cheap and telling ones first, kills and floods
// last, and the two that look back over the whole run at the very end.
func behaviours() []behaviour {
	return slices.Concat(
		fieldBehaviours(), argsBehaviours(), lifeBehaviours(), onceBehaviours(), fenceBehaviours(), metaBehaviours(), listBehaviours(),
		raceBehaviours(), walkBehaviours(), whoBehaviours(), failBehaviours(), readyBehaviours(), lossBehaviours(), lastBehaviours(),
		sizeBehaviours(), afterwards(),
	)
}

// afterwards judge what the whole run has seen.
func afterwards() []behaviour {
	return []behaviour{
		{
			name: "field/every-record-seen", profile: Core, clauses: []string{"PROV-3.1", "PROV-3.7", "PROV-9.1", "PROV-9.2", "PROV-9.5", "PROV-9.10"},
			says: "send only records that obey the rules of sections 3 and 9, in all answers of the run",
			do: func(c *Case) {
				c.suite.mu.Lock()
				defer c.suite.mu.Unlock()
				c.faults = append(c.faults, c.suite.violations...)
			},
		},
		{
			name: "fence/code-means-stale", profile: Core, clauses: []string{"PROV-5.1", "PROV-6.3", "PROV-6.6"},
			says: "answer FAILED_PRECONDITION to stale tokens only, in the whole run",
			do: func(c *Case) {
				c.suite.mu.Lock()
				defer c.suite.mu.Unlock()
				c.faults = append(c.faults, c.suite.miscoded...)
			},
		},
		{
			name: "once/ids-are-unique", profile: Core, clauses: []string{"PROV-7.3", "PROV-7.4"},
			says: "never use one operation id for two machines or two kinds, in the whole run",
			do: func(c *Case) {
				c.suite.mu.Lock()
				defer c.suite.mu.Unlock()
				c.faults = append(c.faults, c.suite.collisions...)
				c.check(c.suite.operations[""] == "", "an ack carried an empty operation id")
			},
		},
	}
}

// unseen lists the (M) clauses of sections 2 to 14 that cannot be seen from outside, each with the reason. A test fails
// for a clause that is neither here nor cited by a behaviour.
func unseen() map[string]string {
	return map[string]string{
		"PROV-2.3":   "the SDK serves health and reflection; other providers need not",
		"PROV-2.4":   "flags of the program; the tests of the SDK cover them",
		"PROV-2.5":   "reload of files; the tests of the SDK cover it",
		"PROV-2.10":  "a setting; who/* tests the default",
		"PROV-3.10":  "what the provider leaves out is not visible; args/delete-unsupported tests the answer",
		"PROV-4.5":   "how checks are built is not visible; args and fence test their order",
		"PROV-5.7":   "a defect cannot be provoked from outside",
		"PROV-6.16":  "memory use is not visible; fence/unknown-machines tests the marks",
		"PROV-6.17":  "takes a day",
		"PROV-7.9":   "visible only in the journal of a simulated cloud; race/one-effect reads it where there is one",
		"PROV-7.10":  "memory use is not visible",
		"PROV-8.10":  "a reason, not a rule",
		"PROV-9.4":   "whether hardware is rented is not visible",
		"PROV-9.11":  "start of the program; the tests of the SDK cover it",
		"PROV-10.5":  "needs a slow start; the tests of the SDK cover it",
		"PROV-10.6":  "needs more than 256 MiB of machines; the tests of the SDK cover it",
		"PROV-10.18": "the content of a cursor is opaque",
		"PROV-10.20": "locks are not visible; the benchmarks of the SDK measure mutations while lists run",
		"PROV-12.7":  "needs a broken disk; the tests of the SDK cover it",
		"PROV-12.8":  "needs a damaged file; the tests of the SDK cover it",
		"PROV-14.2":  "configuration",
		"PROV-14.3":  "configuration",
	}
}

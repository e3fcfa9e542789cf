package bench

import (
	"regexp"
	"slices"
	"strings"
)

// Part is one program run of the programme: the benchmarks of one package, or one that is a test or a command of its own.
type Part struct {
	Benches []string // B1, ...: what it records
	Module  string   // folder of its go.mod
	Package string
	Bench   string // -bench; empty for a test
	Run     string // -run, for a test
	Program bool   // Package is a command, which gets Args
	Args    []string
	Env     []string // beside the ones that everything gets
	CPUs    string   // GOMAXPROCS of a full run, when it is not that of all: "2"
	CI      bool     // part of the short run
	Nightly bool     // part of the nightly run alone
}

// Suite is the whole programme, in the order in which it runs.
func Suite() []Part {
	engine := func(n string) Part {
		return Part{Benches: []string{n}, Module: "services/shard", Package: "./internal/engine/planner", Bench: "^Benchmark" + n + "$", CI: true}
	}
	// The provider is a process of its own with two processors; callers with one would measure themselves.
	provider := func(bench string, ci bool, clauses ...string) Part {
		return Part{Benches: clauses, Module: "e2e", Package: "./bench/provider", Bench: "^Benchmark" + bench + "$", CPUs: "2", CI: ci}
	}
	return []Part{
		engine("B1"), engine("B2"), engine("B3"), engine("B4"), engine("B5"), engine("B8"), engine("B12"),
		{Benches: []string{"B10"}, Module: "services/shard", Package: "./internal/actuator", Bench: "^BenchmarkB10", CI: true},
		{Benches: []string{"B7"}, Module: "services/operator", Package: "./internal/aggregate", Bench: "^BenchmarkB7", CI: true},
		{Benches: []string{"B11"}, Module: "services/coordinator", Package: "./internal/replica", Bench: "^BenchmarkB11$", CI: true},
		{Benches: []string{"B11"}, Module: "e2e", Package: "./coordinator", Run: "^(TestLeaderKilledUnderLoad|TestLeaderRestartedGracefullyUnderLoad)$", Env: []string{"BIGFLEET_COORDINATOR_KILLS=50"}},
		{Benches: []string{"B6a"}, Module: "e2e", Package: "./bench/cmd/shardload", Program: true, Args: []string{"-bench", "B6a"}},
		{Benches: []string{"B6b"}, Module: "e2e", Package: "./bench/burst", Run: "^TestB6b$", Env: []string{"BIGFLEET_B6B_PODS=1000"}, Nightly: true},
		{Benches: []string{"B9"}, Module: "e2e", Package: "./bench/cmd/shardload", Program: true, Args: []string{"-bench", "B9", "-sessions", "10000"}, Nightly: true},
		provider("Lists", true, "PROV-25.3", "PROV-25.4", "PROV-25.5"), provider("Get", true, "PROV-25.6"), provider("Memory", true, "PROV-25.9"),
		provider("Acks", true, "PROV-25.1"), provider("AcksByFleet", true, "PROV-25.2"), provider("AcksWhileListing", true, "PROV-25.7"),
		provider("Start", true, "PROV-25.8"), provider("Reconcile", true, "PROV-25.10"),
	}
}

// Select returns the parts that record any of the named benchmarks: B6 names B6a and B6b as well, PROV all of the provider's. No
// name selects all.
func Select(parts []Part, names []string) []Part {
	if len(names) == 0 {
		return parts
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool {
		return !slices.ContainsFunc(p.Benches, func(b string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return n == b || strings.TrimRight(b, "ab") == n || strings.HasPrefix(b, n+"-") })
		})
	})
}

var family = regexp.MustCompile(`^(B[0-9]+[a-z]?|PROV-[0-9.]+)`)

// Family is the benchmark that a name begins with: B7 of B7/cold/requests=25k. Clauses of the provider's specification are
// families of their own.
func Family(name string) string { return family.FindString(name) }

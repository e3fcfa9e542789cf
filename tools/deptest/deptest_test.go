package deptest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository. The way through testdata makes Go's test cache see changes outside this module (see tools/contract).
const root = "testdata/repository"

func load(t *testing.T, dir, prefix string) *Graph {
	t.Helper()
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		t.Fatal(err)
	}
	g, err := Load(abs, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// architecture.md, section 3; style.md, section 9; OP-1.1.
func TestDependencyDirections(t *testing.T) {
	g := load(t, root, prefix)
	for _, v := range g.Check(Rules()) {
		t.Error(v)
	}
	for _, r := range Rules() {
		for _, pattern := range r.From {
			if !slices.ContainsFunc(g.packages, func(p *pkg) bool { return g.any([]string{pattern}, p.path) }) {
				t.Logf("no package %s yet: nothing to check", pattern)
			}
		}
	}
}

// Every module is in go.work, so that no rule and no `make test` passes one by. The modules of pinned tools are not, nor that of
// the peer that B14 builds, nor that of Cluster API for `make capi`: their dependencies would choose the versions of all other modules.
func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	outside, err := load(t, root, prefix).Outside(root + "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range outside {
		if !slices.Contains([]string{"tools", "tools/helm", "tools/kube", "tools/lint", "e2e/peer/karpenter", "e2e/capi"}, dir) {
			t.Errorf("%s is not in go.work", dir)
		}
	}
}

// Each rule bites: in the planted workspace every one is broken, once per way of breaking it, and nothing else is reported.
func TestEveryRuleBites(t *testing.T) {
	const planted = "planted.example/fleet"
	g := load(t, "testdata/planted", planted)
	var got []string
	for _, v := range g.Check(Rules()) {
		chain := make([]string, len(v.Chain))
		for i, path := range v.Chain {
			chain[i] = strings.TrimPrefix(path, planted+"/")
		}
		got = append(got, strings.Join(chain, " -> ")+": "+v.Why)
	}
	var want []string
	for _, r := range Rules() {
		for _, chain := range plantedViolations[r.Why] {
			want = append(want, chain+": "+r.Why)
		}
		if len(plantedViolations[r.Why]) == 0 {
			t.Errorf("no violation is planted of: %s", r.Why)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("not found: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("not planted: %s", line)
		}
	}
}

// plantedViolations is what testdata/planted breaks, by the reason of the rule.
var plantedViolations = map[string][]string{
	"the core has no clock: time arrives in events, so that a log can be replayed": {
		"services/shard/internal/core -> time",
		"services/shard/internal/engine -> services/shard/internal/clock -> time",
	},
	"the core does no I/O: it returns effects and the shell carries them out": {
		"services/shard/internal/inventory -> os",
	},
	"the core has no randomness: the same events give the same bytes": {
		"services/shard/internal/demand -> math/rand/v2",
	},
	"the core knows no wire format: the shell parses once, at the edge": {
		"services/shard/internal/resource -> google.golang.org/protobuf/proto",
	},
	"the core knows no Kubernetes: quantities are parsed once, at the edge": {
		"services/shard/internal/inventory -> k8s.io/api/core",
	},
	"the reference engine is there to be read and to judge the planner in tests: it is in no program": {
		"services/shard/internal/peek -> services/shard/internal/engine/reference", // its test may
	},
	"the cover rule knows classes and vectors, and nothing of a plan: it is read and tested alone": {
		"services/shard/internal/engine/cover -> services/shard/internal/engine/planner",
	},
	"a shard decides and actuates with the coordinator dead, so it cannot need its code": {
		"services/shard/go.mod -> services/coordinator",
		"services/shard/report -> services/kit/peer -> services/coordinator/fleet", // in a test
	},
	"gen <- sdk <- services <- e2e: generated code stands alone": {
		"gen/go/handwritten -> sdk/identity/devca",
	},
	"gen <- sdk <- services <- e2e: third parties import the SDK alone": {
		"sdk/provider/leak -> services/kit/config",
	},
	"gen <- sdk <- services <- e2e: a test harness is in no product": {
		"services/kit/harness -> e2e/fixture", // in a test
	},
	"a provider of anything can be written without Kubernetes: sdk/nodeready is there for those that watch nodes": {
		"sdk/provider/go.mod -> k8s.io/api",
		"sdk/provider/node -> k8s.io/api/core", // in a test
	},
	"sdk/identity is shared by the SDK and all services, so it brings nothing along but the standard library": {
		"sdk/identity/wire -> google.golang.org/protobuf/proto",
	},
	"sdk/wal is shared by every log, so it brings nothing along but the standard library": {
		"sdk/wal -> google.golang.org/protobuf/proto",
	},
	"what `go run` compiles is what a newcomer waits for: every RPC is Connect's, which speaks gRPC (docs/adr/0115)": {
		"sdk/otlp/cmd -> sdk/otlp/exporter -> google.golang.org/grpc/codes",
	},
	"what runs in a cluster decides nothing about capacity and knows one shard by its wire contract alone": {
		"services/operator/demand -> services/coordinator/fleet",
	},
	"our providers are written on the SDK like any third party's": {
		"services/providers/kwok -> services/coordinator/fleet",
	},
	"kit is what every service shares and nothing else": {
		"services/kit/peer -> services/coordinator/fleet",
	},
	"workload generators and probes of benchmarks are in no program that is shipped": {
		"services/providers/kwok/cmd -> services/providers/kwok/load -> services/kit/bench",
	},
	"test code is in no program that is shipped": {
		"services/coordinator/cmd -> testing",
	},
}

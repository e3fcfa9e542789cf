package deptest

// prefix is what the paths of this repository's modules begin with.
const prefix = "github.com/bigfleet-dev/bigfleet"

var kubernetes = []string{"k8s.io/...", "sigs.k8s.io/..."}

// Rules are the directions of this repository: gen <- sdk <- services <- e2e, and what architecture.md, section 3, forbids besides.
func Rules() []Rule {
	core := []string{
		"./services/shard/internal/core/...", "./services/shard/internal/engine/...", "./services/shard/internal/demand/...",
		"./services/shard/internal/inventory/...", "./services/shard/internal/resource/...",
	}
	return []Rule{
		{
			From: core, NeverDirect: []string{"time"},
			Why: "the core has no clock: time arrives in events, so that a log can be replayed",
		},
		{
			From: core, NeverDirect: []string{"net/...", "os/...", "io/ioutil", "syscall", "log/..."},
			Why: "the core does no I/O: it returns effects and the shell carries them out",
		},
		{
			From: core, NeverDirect: []string{"math/rand/...", "crypto/rand", "hash/maphash"},
			Why: "the core has no randomness: the same events give the same bytes",
		},
		{
			From: core, Never: []string{"google.golang.org/protobuf/...", "google.golang.org/grpc/...", "connectrpc.com/...", "./gen/..."},
			// protowire is arithmetic on varints without messages, registry or reflection; the event log is written with it.
			Allow: []string{"google.golang.org/protobuf/encoding/protowire"},
			Why:   "the core knows no wire format: the shell parses once, at the edge",
		},
		{
			From: core, Never: kubernetes,
			Why: "the core knows no Kubernetes: quantities are parsed once, at the edge",
		},
		{
			From: []string{"./services/..."}, Except: []string{"./services/shard/internal/engine/reference/..."},
			Never: []string{"./services/shard/internal/engine/reference/..."},
			Why:   "the reference engine is there to be read and to judge the planner in tests: it is in no program",
		},
		{
			From:  []string{"./services/shard/internal/engine/cover/..."},
			Never: []string{"./services/shard/internal/engine/planner/...", "./services/shard/internal/engine/ledger/...", "./services/shard/internal/engine/explain/..."},
			Why:   "the cover rule knows classes and vectors, and nothing of a plan: it is read and tested alone",
		},
		{
			From: []string{"./services/shard/..."}, Never: []string{"./services/coordinator/..."}, Tests: true,
			Why: "a shard decides and actuates with the coordinator dead, so it cannot need its code",
		},
		{
			From: []string{"./gen/..."}, Never: []string{"./sdk/...", "./services/...", "./e2e/...", "./tools/..."}, Tests: true,
			Why: "gen <- sdk <- services <- e2e: generated code stands alone",
		},
		{
			From: []string{"./sdk/..."}, Never: []string{"./services/...", "./e2e/...", "./tools/..."}, Tests: true,
			Why: "gen <- sdk <- services <- e2e: third parties import the SDK alone",
		},
		{
			From: []string{"./services/..."}, Never: []string{"./e2e/...", "./tools/..."}, Tests: true,
			Why: "gen <- sdk <- services <- e2e: a test harness is in no product",
		},
		{
			// PROV-15.1
			From: []string{"./sdk/provider/..."}, Never: kubernetes, Tests: true,
			Why: "a provider of anything can be written without Kubernetes: sdk/nodeready is there for those that watch nodes",
		},
		{
			// PROV-15.3
			From: []string{"./sdk/identity/..."}, Only: []string{"./sdk/identity/..."},
			Why: "sdk/identity is shared by the SDK and all services, so it brings nothing along but the standard library",
		},
		{
			From: []string{"./sdk/wal/..."}, Only: []string{"./sdk/wal/..."},
			Why: "sdk/wal is shared by every log, so it brings nothing along but the standard library",
		},
		{
			From: []string{"./services/...", "./sdk/..."}, MainOnly: true, Never: []string{"google.golang.org/grpc/..."},
			Why: "what `go run` compiles is what a newcomer waits for: every RPC is Connect's, which speaks gRPC (docs/adr/0115)",
		},
		{
			// OP-1.1
			From:  []string{"./services/operator/...", "./services/podcontroller/...", "./services/incluster/..."},
			Never: []string{"./services/shard/...", "./services/coordinator/...", "./services/providers/...", "./services/bigfleet/...", "./sdk/provider/..."},
			Tests: true,
			Why:   "what runs in a cluster decides nothing about capacity and knows one shard by its wire contract alone",
		},
		{
			From:  []string{"./services/providers/..."},
			Never: []string{"./services/shard/...", "./services/coordinator/...", "./services/operator/...", "./services/podcontroller/...", "./services/bigfleet/..."},
			Tests: true,
			Why:   "our providers are written on the SDK like any third party's",
		},
		{
			From: []string{"./services/kit/..."}, Never: []string{
				"./services/shard/...", "./services/coordinator/...", "./services/operator/...", "./services/podcontroller/...",
				"./services/providers/...", "./services/bigfleet/...",
			}, Tests: true,
			Why: "kit is what every service shares and nothing else",
		},
		{
			From: []string{"./services/...", "./sdk/..."}, Except: []string{"./services/kit/bench/..."}, MainOnly: true,
			Never: []string{"./services/kit/bench/..."},
			Why:   "workload generators and probes of benchmarks are in no program that is shipped",
		},
		{
			From: []string{"./services/...", "./sdk/..."}, MainOnly: true, Never: []string{"pgregory.net/rapid/...", "go.uber.org/goleak/..."},
			NeverDirect: []string{"testing"}, // hashicorp/raft brings testing along for helpers of its own users
			// The suite judges providers, as a program (`bigfleet provider conformance`) and as a Go test of theirs: it is a product.
			Allow:  []string{"./sdk/provider/conformance/..."},
			Except: []string{"./sdk/provider/conformance/..."},
			Why:    "test code is in no program that is shipped",
		},
	}
}

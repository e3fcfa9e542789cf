package contract_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// WIRE scenario 29, WIRE-13.4: renaming, renumbering, retyping, moving or deleting a field, RPC, service, message or enum value
// fails `buf breaking` against the image of the contract and, for extensions too, against the image of the last release. All
// changes are made to one copy of proto/, and each must be named in what buf says.
func TestBreakingChangesAreFound(t *testing.T) {
	const (
		both         = iota
		contractOnly // allowed for an extension that is retired (OPS-10.7)
		releaseOnly
	)
	cases := []struct {
		what string
		edit edit
		says string // part of what buf must say
		by   int
	}{
		{"field renamed", edit{"provider", "string instance_type = 4;", "string machine_type = 4;"}, `Field "4" on message "Machine" changed name`, both},
		{"field renumbered", edit{"capacity", "int32 priority = 3;", "int32 priority = 13;"}, `field "3" with name "priority" on message "CapacityNeed" was deleted`, both},
		{"field retyped", edit{"shard", "int64 ttl_seconds = 3;", "string ttl_seconds = 3;"}, `"ttl_seconds" on message "BootstrapBlobResponse" changed type`, both},
		{"field widened", edit{"provider", "int32 max_results = 4;", "int64 max_results = 4;"}, `"max_results" on message "ListFilter" changed type`, both},
		{"field made repeated", edit{"shard", "string node_name = 5;", "repeated string node_name = 5;"}, `"node_name" on message "NodeStateUpdate" changed cardinality`, both},
		{"field deleted", edit{"coordinator", "  int64 cycle = 2;\n  // Shard clock.", "  // Shard clock."}, `field "2" with name "cycle" on message "ShardReport" was deleted`, both},
		{"field deleted although reserved", edit{"shard", "  string protocol_version = 3 [(buf.validate.field).string.max_bytes = 64];", "  reserved 3;\n  reserved \"protocol_version\";"}, `field "3" with name "protocol_version" on message "Hello" was deleted`, contractOnly},
		{"field moved out of its oneof", edit{"shardread", "    NeedView need = 2;\n  }", "  }\n  NeedView need = 2;"}, `"need" on message "InspectNeedsResponse" moved from inside to outside a oneof`, both},
		{"reservation dropped", edit{"provider", "  reserved 11;\n", ""}, `reserved range "[11]" on message "Machine" is missing`, both},
		{"reserved number used again", edit{"capacity", "  reserved 4;\n  reserved \"count\";", "  reserved \"count\";\n  // A count.\n  int32 replicas = 4;"}, `reserved range "[4]" on message "CapacityNeed" is missing`, both},
		{"enum value renamed", edit{"provider", "CAPACITY_TYPE_SPOT = 4;", "CAPACITY_TYPE_CHEAP = 4;"}, `Enum value "4" on enum "CapacityType" changed name`, both},
		{"enum value renumbered", edit{"provider", "MACHINE_STATE_FAILED = 8;", "MACHINE_STATE_FAILED = 9;"}, `enum value "8" on enum "MachineState" was deleted`, both},
		{"enum value deleted", edit{"shardread", "  // Victims were found but free too little.\n  UNMET_REASON_PREEMPTION_EXHAUSTED = 4;\n", ""}, `enum value "4" on enum "UnmetReason" was deleted`, both},
		{"RPC renamed", edit{"provider", "rpc Drain(", "rpc Release("}, `RPC "Drain" on service "CapacityProvider" was deleted`, both},
		{"RPC deleted", edit{"coordinator", "  rpc RemoveShard(RemoveShardRequest) returns (RemoveShardResponse);\n", ""}, `RPC "RemoveShard" on service "Coordinator" was deleted`, both},
		{"RPC retyped", edit{"provider", "rpc Get(MachineRef)", "rpc Get(ListFilter)"}, `RPC "Get" on service "CapacityProvider" changed request type`, both},
		{"RPC made unary", edit{"shardread", "InspectNeeds(InspectNeedsRequest) returns (stream InspectNeedsResponse)", "InspectNeeds(InspectNeedsRequest) returns (InspectNeedsResponse)"}, `RPC "InspectNeeds" on service "ShardRead" changed from server streaming`, both},
		{"idempotency dropped", edit{"provider", "rpc List(ListFilter) returns (MachineList) {\n    option idempotency_level = NO_SIDE_EFFECTS;\n  }", "rpc List(ListFilter) returns (MachineList);"}, `RPC "List" on service "CapacityProvider" changed option "idempotency_level"`, both},
		{"service renamed", edit{"shard", "service Shard {", "service ShardSessions {"}, `service "Shard" was deleted`, both},
		{"message renamed", edit{"provider", "message HostRef", "message HostReference"}, `message "HostRef" was deleted`, both},
		{"enum deleted", edit{"capacity", "enum PenaltyBucket", "enum PenaltyClass"}, `enum "PenaltyBucket" was deleted`, both},
		{"extension field renumbered", edit{"provider", "bool complete = 1000;", "bool complete = 1003;"}, `field "1000" with name "complete" on message "MachineList" was deleted`, releaseOnly},
		{"extension field retyped", edit{"shard", "bool released = 1000;", "string released = 1000;"}, `"released" on message "NodeStateUpdate" changed type`, releaseOnly},
		{"extension RPC deleted", edit{"coordinatoradmin", "  rpc DeleteQuota(DeleteQuotaRequest) returns (DeleteQuotaResponse);\n", ""}, `RPC "DeleteQuota" on service "CoordinatorAdmin" was deleted`, releaseOnly},
		{"extension service renamed", edit{"shardadmin", "service ShardAdmin", "service ShardOrders"}, `service "ShardAdmin" was deleted`, releaseOnly},
		{"extension enum value deleted", edit{"decision", "  // Delete an idle machine.\n  ACTION_KIND_DELETE = 5;\n", ""}, `enum value "5" on enum "ActionKind" was deleted`, releaseOnly},
	}
	edits := make([]edit, len(cases))
	for i, c := range cases {
		edits[i] = c.edit
	}
	image := changedImage(t, edits...)
	said := map[string]string{"contract": breaks(t, image, "contract"), "release": breaks(t, image, "release")}
	for _, c := range cases {
		for baseline, notBy := range map[string]int{"contract": releaseOnly, "release": contractOnly} {
			if found, want := strings.Contains(said[baseline], c.says), c.by != notBy; found != want {
				t.Errorf("%s: found against the %s image: %v, want %v", c.what, baseline, found, want)
			}
		}
	}
	if t.Failed() {
		t.Logf("against the contract image:\n%s\nagainst the release image:\n%s", said["contract"], said["release"])
	}
}

// edit is one replacement in one file of proto/bigfleet/v1alpha1.
type edit struct{ file, from, to string }

// The schema as it is, and one with more extensions, break nothing.
func TestExtensionsBreakNothing(t *testing.T) {
	for what, edits := range map[string][]edit{
		"unchanged":    nil,
		"a field more": {{"provider", "bool complete = 1000;", "bool complete = 1000;\n  // New.\n  bool fresh = 1009;"}},
	} {
		image := changedImage(t, edits...)
		for _, baseline := range []string{"contract", "release"} {
			if found := breaks(t, image, baseline); found != "" {
				t.Errorf("%s: breaks the %s image:\n%s", what, baseline, found)
			}
		}
	}
}

// changedImage builds a copy of proto/ with the edits. References to a renamed type follow, so that the copy compiles.
func changedImage(t *testing.T, edits ...edit) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "proto"), os.DirFS(filepath.Join(root, "proto"))); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "proto", "bigfleet", "v1alpha1")
	for _, e := range edits {
		rewrite(t, filepath.Join(home, e.file+".proto"), func(text string) string {
			if !strings.Contains(text, e.from) {
				t.Fatalf("%s.proto no longer holds %q: choose another example", e.file, e.from)
			}
			return strings.Replace(text, e.from, e.to, 1)
		})
		if kind, old, ok := strings.Cut(e.from, " "); ok && (kind == "message" || kind == "enum") {
			_, renamed, _ := strings.Cut(e.to, " ")
			files, err := filepath.Glob(filepath.Join(home, "*.proto"))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range files {
				rewrite(t, path, func(text string) string { return strings.ReplaceAll(text, "  "+old+" ", "  "+renamed+" ") })
			}
		}
	}
	config := "version: v2\nmodules:\n  - {path: proto, excludes: [proto/third_party]}\n  - path: proto/third_party/protovalidate\n"
	if err := os.WriteFile(filepath.Join(dir, "buf.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "image.binpb")
	if _, err := buf(t, dir, "build", "--path", "proto/bigfleet", "-o", image); err != nil {
		t.Fatalf("the changed copy does not compile: %v %s", err, stderr(err))
	}
	return image
}

func rewrite(t *testing.T, path string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// breaks runs buf breaking as tools/proto.sh does and returns what it says. Exit code 100 means "found something"; any other
// failure is one.
func breaks(t *testing.T, image, baseline string) string {
	t.Helper()
	config := map[string]string{"contract": "proto/baseline/contract.yaml", "release": "buf.yaml"}[baseline]
	out, err := buf(t, root, "breaking", image, "--exclude-imports", "--config", config, "--against", "proto/baseline/"+baseline+".binpb")
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 100) {
		t.Fatalf("buf breaking could not run: %v %s", err, stderr(err))
	}
	return string(out)
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

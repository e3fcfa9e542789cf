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
// fails `buf breaking` against the image of the contract and, for extensions too, against the image of the last release.
func TestBreakingChangesAreFound(t *testing.T) {
	const (
		both         = iota
		contractOnly // allowed for an extension that is retired (OPS-10.7)
		releaseOnly
	)
	for _, c := range []struct {
		what     string
		file     string
		from, to string
		by       int
	}{
		{"field renamed", "provider", "string instance_type = 4;", "string machine_type = 4;", both},
		{"field renumbered", "capacity", "int32 priority = 3;", "int32 priority = 13;", both},
		{"field retyped", "shard", "int64 ttl_seconds = 3;", "string ttl_seconds = 3;", both},
		{"field widened", "provider", "int32 max_results = 4;", "int64 max_results = 4;", both},
		{"field made repeated", "shard", "string node_name = 5;", "repeated string node_name = 5;", both},
		{"field deleted", "coordinator", "  int64 cycle = 2;\n  // Shard clock.", "  // Shard clock.", both},
		{"field deleted although reserved", "shard", "  string protocol_version = 3;", "  reserved 3;\n  reserved \"protocol_version\";", contractOnly},
		{"field moved out of its oneof", "shardread", "    NeedView need = 2;\n  }", "  }\n  NeedView need = 2;", both},
		{"reservation dropped", "provider", "  reserved 11;\n", "", both},
		{"reserved number used again", "capacity", "  reserved 4;\n  reserved \"count\";", "  reserved \"count\";\n  // A count.\n  int32 replicas = 4;", both},
		{"enum value renamed", "capacity", "PENALTY_BUCKET_PINNED = 27;", "PENALTY_BUCKET_NEVER = 27;", both},
		{"enum value renumbered", "provider", "MACHINE_STATE_FAILED = 8;", "MACHINE_STATE_FAILED = 9;", both},
		{"enum value deleted", "shardread", "  // Victims were found but free too little.\n  UNMET_REASON_PREEMPTION_EXHAUSTED = 4;\n", "", both},
		{"RPC renamed", "provider", "rpc Drain(", "rpc Release(", both},
		{"RPC deleted", "coordinator", "  rpc RemoveShard(RemoveShardRequest) returns (RemoveShardResponse);\n", "", both},
		{"RPC retyped", "provider", "rpc Get(MachineRef)", "rpc Get(ListFilter)", both},
		{"RPC made unary", "shardread", "InspectNeeds(InspectNeedsRequest) returns (stream InspectNeedsResponse)", "InspectNeeds(InspectNeedsRequest) returns (InspectNeedsResponse)", both},
		{"service renamed", "shard", "service Shard {", "service ShardSessions {", both},
		{"message renamed", "provider", "message HostRef", "message HostReference", both},
		{"enum deleted", "capacity", "enum PenaltyBucket", "enum PenaltyClass", both},
		{"extension field renumbered", "provider", "bool complete = 1000;", "bool complete = 1003;", releaseOnly},
		{"extension field retyped", "shard", "bool released = 1000;", "string released = 1000;", releaseOnly},
		{"extension RPC deleted", "coordinatoradmin", "  rpc DeleteQuota(DeleteQuotaRequest) returns (DeleteQuotaResponse);\n", "", releaseOnly},
		{"extension service renamed", "shardadmin", "service ShardAdmin", "service ShardOrders", releaseOnly},
		{"extension enum value deleted", "decision", "  // Return an idle machine to a slot.\n  ACTION_KIND_DELETE = 5;\n", "", releaseOnly},
		{"idempotency dropped", "provider", "rpc Get(MachineRef) returns (Machine) {\n    option idempotency_level = NO_SIDE_EFFECTS;\n  }", "rpc Get(MachineRef) returns (Machine);", both},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			image := changedImage(t, c.file, c.from, c.to)
			if found, want := breaks(t, image, "contract"), c.by != releaseOnly; found != want {
				t.Errorf("breaks the contract image: %v, want %v", found, want)
			}
			if found, want := breaks(t, image, "release"), c.by != contractOnly; found != want {
				t.Errorf("breaks the release image: %v, want %v", found, want)
			}
		})
	}
}

// The schema as it is, and one with more extensions, break nothing.
func TestExtensionsBreakNothing(t *testing.T) {
	for what, to := range map[string]string{
		"unchanged":    "bool complete = 1000;",
		"a field more": "bool complete = 1000;\n  // New.\n  bool fresh = 1009;",
	} {
		image := changedImage(t, "provider", "bool complete = 1000;", to)
		for _, baseline := range []string{"contract", "release"} {
			if breaks(t, image, baseline) {
				t.Errorf("%s: breaks the %s image", what, baseline)
			}
		}
	}
}

// changedImage builds proto/ with one replacement in one file. References to a renamed type follow, so that the copy compiles.
func changedImage(t *testing.T, file, from, to string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "proto"), os.DirFS(filepath.Join(root, "proto"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "proto", "bigfleet", "v1alpha1", file+".proto")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n == 0 {
		t.Fatalf("%s.proto no longer holds %q: choose another example", file, from)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if kind, old, ok := strings.Cut(from, " "); ok && (kind == "message" || kind == "enum") {
		_, renamed, _ := strings.Cut(to, " ")
		follow(t, filepath.Dir(path), old, renamed)
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

func follow(t *testing.T, dir, old, renamed string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.proto"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "  "+old+" ", "  "+renamed+" ")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// breaks runs buf breaking as tools/proto.sh does. Exit code 100 means "found something"; any other failure is one.
func breaks(t *testing.T, image, baseline string) bool {
	t.Helper()
	config := map[string]string{"contract": "proto/baseline/contract.yaml", "release": "buf.yaml"}[baseline]
	_, err := buf(t, root, "breaking", image, "--exclude-imports", "--config", config, "--against", "proto/baseline/"+baseline+".binpb")
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &exit) && exit.ExitCode() == 100:
		return true
	}
	t.Fatalf("buf breaking could not run: %v %s", err, stderr(err))
	return false
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

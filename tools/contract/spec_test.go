package contract_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

func spec(t testing.TB) *contract.Spec {
	t.Helper()
	s, err := contract.ReadSpec(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// WIRE-1.1, 1.7, 2.1, 4.8, 7, 8, 9, 14, 15: the schema our programs speak is the schema of the tables, in every name, number,
// type, label, oneof, reservation, enum value, rule, method and import.
func TestSchemaIsWhatTheTablesSay(t *testing.T) {
	for _, line := range difference("wire.md", spec(t).Listing(), "proto", contract.Listing(contract.Generated())) {
		t.Error(line)
	}
}

// difference returns the facts that only one side states.
func difference(aName string, a []string, bName string, b []string) []string {
	var out []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "only "+aName+": "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "only "+bName+": "+line)
		}
	}
	return out
}

// A typo in any kind of cell is seen: as a difference, or by the reader itself.
func TestComparisonSeesEveryKindOfTypo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	proto := contract.Listing(contract.Generated())
	for _, c := range []struct{ what, from, to string }{
		{"field name", "| aggregate_resources | 2 |", "| agregate_resources | 2 |"},
		{"field number", "| row_id | 1000 |", "| row_id | 1009 |"},
		{"field type", "| cycle | 2 | int64 |", "| cycle | 2 | int32 |"},
		{"label", "| repeated Machine | Matching", "| Machine | Matching"},
		{"presence", "| optional bool |", "| bool |"},
		{"map type", "| per_zone_counts | 4 | map<string,int32> |", "| per_zone_counts | 4 | map<string,int64> |"},
		{"oneof", "oneof payload: Hello |", "oneof frame: Hello |"},
		{"reserved number", "| *reserved* | 11 |", "| *reserved* | 16 |"},
		{"reserved name", "name `estimated_ready_unix_nanos`", "name `estimated_ready`"},
		{"rule value", "`repeated.max_items = 64`", "`repeated.max_items = 65`"},
		{"rule left out", "`enum.defined_only = true`, `enum.not_in = [0]` |", "`enum.defined_only = true` |"},
		{"pattern", "ID          = ^[A-Za-z0-9._-]{1,128}$", "ID          = ^[A-Za-z0-9._-]{1,129}$"},
		{"CEL expression", "this.operator != 5", "this.operator != 4"},
		{"CEL message", "FAILED needs last_error", "FAILED needs an error"},
		{"CEL not on its message", "CEL `machine.failed` |", "|"},
		{"required oneof", "oneof payload: required = true", ""},
		{"enum value", "`MACHINE_STATE_FAILED` = 8", "`MACHINE_STATE_FAILED` = 9"},
		{"enum name", "enum **CapacityType**", "enum **CapacityKind**"},
		{"import", "| `decision`, `shardread`, validate |", "| `shardread`, validate |"},
		{"RPC request", "| List | ListFilter |", "| List | MachineRef |"},
		{"RPC kind", "| WatchFleet | server stream, read |", "| WatchFleet | unary, read |"},
		{"read mark", "| GetStatus | unary, read |", "| GetStatus | unary |"},
		{"RPC left out", "| ResetShardEpoch | unary | Accepts that a shard's epoch went back. |\n", ""},
		{"service", "**SubstrateControl**. Faults", "**Substrate**. Faults"},
		{"message left out", "| **ForgetMachineResponse** | cost_per_hour | 1 | double | US dollars per hour that the machine cost. The provider charges for it as long as its host exists. |  |\n", ""},
		{"table header", "| message | field | no. | type | meaning | rule |", "| message | field | no | type | meaning | rule |"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if !strings.Contains(string(text), c.from) {
				t.Fatalf("wire.md no longer holds %q: choose another example", c.from)
			}
			changed, err := contract.ParseSpec(strings.Replace(string(text), c.from, c.to, 1))
			if err == nil && len(difference("wire.md", changed.Listing(), "proto", proto)) == 0 {
				t.Errorf("replacing %q by %q goes unnoticed", c.from, c.to)
			}
		})
	}
}

// WIRE-1.3: our fields in contract messages number from 1000 up and stay out of the range protobuf keeps for itself; fields of
// the contract stay below.
func TestExtensionNumbers(t *testing.T) {
	for _, m := range spec(t).Messages {
		for _, f := range m.Fields {
			if f.Number >= 19000 && f.Number <= 19999 {
				t.Errorf("%s.%s = %d is reserved by protobuf", m.Name, f.Name, f.Number)
			}
			if !m.Contract && f.Number >= contract.ExtensionStart {
				t.Errorf("%s.%s = %d: messages of ours number from 1", m.Name, f.Name, f.Number)
			}
		}
	}
}

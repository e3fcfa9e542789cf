package output_test

import (
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// OPS-4.2: a stream is as its format says: YAML documents, JSON objects, or one object a line.
func TestStreamInEveryFormat(t *testing.T) {
	for format, want := range map[output.Format]string{
		output.YAML:  "---\nat: \"1970-01-01T00:00:01Z\"\natUnixNanos: \"1000000000\"\nmachineId: m-1\nshard: shard-0\n---\nat: \"1970-01-01T00:00:01Z\"\natUnixNanos: \"1000000000\"\nmachineId: m-2\nshard: shard-0\n",
		output.JSON:  "{\n  \"at\": \"1970-01-01T00:00:01Z\",\n  \"atUnixNanos\": \"1000000000\",\n  \"machineId\": \"m-1\",\n  \"shard\": \"shard-0\"\n}\n{\n  \"at\": \"1970-01-01T00:00:01Z\",\n  \"atUnixNanos\": \"1000000000\",\n  \"machineId\": \"m-2\",\n  \"shard\": \"shard-0\"\n}\n",
		output.JSONL: "{\"at\":\"1970-01-01T00:00:01Z\",\"atUnixNanos\":\"1000000000\",\"machineId\":\"m-1\",\"shard\":\"shard-0\"}\n{\"at\":\"1970-01-01T00:00:01Z\",\"atUnixNanos\":\"1000000000\",\"machineId\":\"m-2\",\"shard\":\"shard-0\"}\n",
	} {
		var out strings.Builder
		for _, id := range []string{"m-1", "m-2"} {
			if err := format.Next(&out, &pb.DecisionRecord{MachineId: id, AtUnixNanos: 1e9}, "shard-0"); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("-o %s:\n%s\nwant:\n%s", format, out.String(), want)
		}
	}
}

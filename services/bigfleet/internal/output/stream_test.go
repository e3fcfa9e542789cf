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
		output.YAML:  "---\nmachineId: m-1\n---\nmachineId: m-2\n",
		output.JSON:  "{\n  \"machineId\": \"m-1\"\n}\n{\n  \"machineId\": \"m-2\"\n}\n",
		output.JSONL: "{\"machineId\":\"m-1\"}\n{\"machineId\":\"m-2\"}\n",
	} {
		var out strings.Builder
		for _, id := range []string{"m-1", "m-2"} {
			if err := format.Next(&out, &pb.DecisionRecord{MachineId: id}); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("-o %s:\n%s\nwant:\n%s", format, out.String(), want)
		}
	}
}

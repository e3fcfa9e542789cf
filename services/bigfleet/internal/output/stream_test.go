package output_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

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
			if err := format.Next(&out, &pb.DecisionRecord{MachineId: id, AtUnixNanos: 1e9}, "shard-0", nil); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("-o %s:\n%s\nwant:\n%s", format, out.String(), want)
		}
	}
}

// OPS-4.2: a program reads the sentence of a decision record beside its codes, wherever the record stands in an answer.
func TestRecordsHaveSentences(t *testing.T) {
	say := func(r *pb.DecisionRecord) string {
		return strings.TrimPrefix("about "+r.GetMachineId(), "about silent")
	}
	record := func(id string) *pb.DecisionRecord { return &pb.DecisionRecord{MachineId: id} }
	var out strings.Builder
	if err := output.JSONL.Write(&out, output.List{Say: say, Items: []proto.Message{
		record("m-1"), record("silent"), &pb.PlanResponse{Actions: []*pb.DecisionRecord{record("m-2"), record("m-3")}}, &pb.GetMachineResponse{Operation: record("m-4")},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `{"machineId":"m-1","sentence":"about m-1"}
{"machineId":"silent"}
{"actions":[{"machineId":"m-2","sentence":"about m-2"},{"machineId":"m-3","sentence":"about m-3"}]}
{"operation":{"machineId":"m-4","sentence":"about m-4"}}
`
	if out.String() != want {
		t.Errorf("%s\nwant:\n%s", &out, want)
	}
}

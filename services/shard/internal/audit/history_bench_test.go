package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// BenchmarkHistoryOfADay is SHARD-28.9: the records of one machine out of a day of 10,000 machines, each of which is taken
// and given back four times, in 24 segments on the disk.
func BenchmarkHistoryOfADay(b *testing.B) {
	const machines, hours, perHour = 10_000, 24, 10_000
	dir, seq := b.TempDir(), int64(0)
	for hour := range int64(hours) {
		out := []byte(magic)
		var entries [][]byte
		first := seq
		for range perHour {
			seq++
			raw, err := proto.Marshal(&pb.DecisionRecord{Sequence: seq, AtUnixNanos: seq, ShardEpoch: 1, OperationId: fmt.Sprintf("shard-0/1795406804/%d", seq),
				MachineId: fmt.Sprintf("machine-%06d", seq*7919%machines), ClusterId: fmt.Sprintf("cluster-%03d", seq%500), Provider: "cloud",
				ProfileFingerprint: "f1-61ea20bba501cd334e1bf7f1fb076e28", Cause: "phase1.speculative", Outcome: "success"})
			if err != nil {
				b.Fatal(err)
			}
			if entries = append(entries, raw); len(entries) == 500 {
				block, err := pack(blockRecords, entries, first, seq)
				if err != nil {
					b.Fatal(err)
				}
				out, entries, first = append(out, block...), entries[:0], seq
			}
		}
		if err := os.WriteFile(filepath.Join(dir, segmentName(1, hour+1)), out, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	l := New(Config{Dir: dir, Epoch: 2, Shard: "shard-0"})
	for b.Loop() {
		got, _, err := l.History(b.Context(), Query{Match: func(r *pb.DecisionRecord) bool { return r.MachineId == "machine-000042" }, Word: "machine-000042"})
		if err != nil || len(got) != hours*perHour/machines {
			b.Fatalf("%d records: %v", len(got), err)
		}
	}
}

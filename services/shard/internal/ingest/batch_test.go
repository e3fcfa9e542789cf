package ingest

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// slowly reads a record with protobuf and the rules, as the record of an ack is read.
func slowly(g *Gate, raw []byte) (core.Fact, *Refused, error) {
	m := &pb.Machine{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return core.Fact{}, nil, err
	}
	f, refused := g.Machine(m, "")
	if refused != nil {
		f.Machine.ID = m.Id
	}
	return f, refused, nil
}

// drawRest gives a record what drawRecord leaves out.
func drawRest(t *rapid.T, m *pb.Machine) {
	text := rapid.SampledFrom([]string{"", "1", "2", "7.5"})
	m.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "rack"}), text, 0, 3).Draw(t, "labels")
	priority, interruption, reclamation, fingerprint, group, owner := core.MetadataKeys()
	m.ShardMetadata = rapid.MapOfN(rapid.SampledFrom([]string{priority, interruption, reclamation, fingerprint, group, owner, "x"}), text, 0, 4).Draw(t, "metadata")
	m.Failure = pb.MachineFailure(rapid.Int32Range(0, 2).Draw(t, "failure"))
	for range rapid.IntRange(0, 2).Draw(t, "taints") {
		m.Taints = append(m.Taints, &pb.Taint{Key: text.Draw(t, "key"), Value: text.Draw(t, "value"), Effect: "NoSchedule"})
	}
}

// spoil does to the bytes of a record what no encoder of ours does: fields twice, strange ones, a part missing, other bytes.
func spoil(t *rapid.T, raw []byte) []byte {
	raw = slices.Clone(raw)
	twice := rapid.SliceOfN(rapid.Byte(), 0, 6)
	switch rapid.IntRange(0, 7).Draw(t, "spoil") {
	case 0:
		return append(raw, raw...) // every field twice
	case 1:
		num := protowire.Number(rapid.SampledFrom([]int{1, 2, 3, 7, 9, 10, 11, 13, 15, 16, 20, 1000, 1001, 1002}).Draw(t, "field"))
		raw = protowire.AppendTag(raw, num, protowire.BytesType)
		return protowire.AppendBytes(raw, twice.Draw(t, "bytes"))
	case 2:
		num := protowire.Number(rapid.SampledFrom([]int{1, 2, 6, 7, 10, 11, 17, 1000, 1001}).Draw(t, "field"))
		raw = protowire.AppendTag(raw, num, protowire.VarintType)
		return protowire.AppendVarint(raw, rapid.Uint64().Draw(t, "varint"))
	case 3:
		return raw[:rapid.IntRange(0, len(raw)).Draw(t, "cut")]
	case 4:
		if len(raw) > 0 {
			raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
	case 5: // one label key twice, in either order
		for _, v := range rapid.Permutation([]string{"1", "2"}).Draw(t, "order") {
			entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "a")
			entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), v)
			raw = protowire.AppendBytes(protowire.AppendTag(raw, 10, protowire.BytesType), entry)
		}
	}
	return raw
}

// SHARD-13.4, WIRE-3.10: a record of a List is read from its bytes as protobuf and the rules read it, whatever came before and
// whatever the bytes are: the same fact, the same refusal, an error for the same bytes.
func TestABatchReadsEachRecordAsProtobufAndTheRulesDo(t *testing.T) {
	g := newGate(t)
	passed, refused, broken := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		b := g.Batch()
		for range rapid.IntRange(1, 40).Draw(t, "rows") {
			m := drawRecord(t)
			drawRest(t, m)
			raw, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			raw = spoil(t, raw)
			want, wantRefused, wantErr := slowly(g, raw)
			got, gotRefused, gotErr := b.Record(raw)
			if (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%x: error %v, protobuf says %v", raw, gotErr, wantErr)
			}
			if !reflect.DeepEqual(got, want) || reasonOf(gotRefused) != reasonOf(wantRefused) {
				t.Fatalf("%v\nin a batch %+v %v\nalone      %+v %v", m, got, gotRefused, want, wantRefused)
			}
			switch {
			case wantErr != nil:
				broken++
			case wantRefused != nil:
				refused++
			default:
				passed++
			}
		}
	})
	if passed == 0 || refused == 0 || broken == 0 {
		t.Errorf("%d records passed, %d were refused, %d were none", passed, refused, broken)
	}
}

// reasonOf leaves out the text: of several wrong amounts it names any.
func reasonOf(r *Refused) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// FuzzRecord holds the two readings of a record against each other for any bytes: SHARD-10.6, SHARD-13.4.
func FuzzRecord(f *testing.F) {
	usual, err := proto.Marshal(usualRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(usual)
	f.Add(append(usual, usual...))
	f.Add(usual[:len(usual)/2])
	g := newGate(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := g.Batch()
		want, wantRefused, wantErr := slowly(g, raw)
		for range 2 { // the second time it is remembered
			got, gotRefused, gotErr := b.Record(raw)
			if (gotErr == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) || reasonOf(gotRefused) != reasonOf(wantRefused) {
				t.Fatalf("in a batch %+v %v %v\nalone      %+v %v %v", got, gotRefused, gotErr, want, wantRefused, wantErr)
			}
		}
	})
}

// Half a million records are mostly of the kind that needs neither protobuf nor the rules, or nothing is gained; and what
// they have in common is kept once.
func TestUsualRecordsAreReadFromTheirBytesAndShareWhatTheyHaveInCommon(t *testing.T) {
	b := newGate(t).Batch()
	var first core.Fact
	for i, id := range []string{"x", "y", "z"} {
		m := usualRecord()
		m.Id = id
		raw, err := proto.Marshal(m) // writes its maps in any order
		if err != nil {
			t.Fatal(err)
		}
		if !b.parts.read(b.seed, raw) || !b.parts.plain() {
			t.Fatalf("%v is not read from its bytes", m)
		}
		f, ok := b.fact()
		if !ok || f.Machine.ID != id {
			t.Fatalf("%v is not read from its bytes: %+v", m, f)
		}
		if i == 0 {
			first = f
		} else if &f.Machine.Labels[0] != &first.Machine.Labels[0] || &f.Machine.Resources[0] != &first.Machine.Resources[0] {
			t.Error("two equal records were read twice")
		}
	}
}

// SHARD-13.4: an answer is taken apart as protobuf takes it apart.
func TestAnAnswerIsReadAsProtobufReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &pb.MachineList{Revision: rapid.SliceOf(rapid.Byte()).Draw(t, "revision"), Complete: rapid.Bool().Draw(t, "complete"),
			More: rapid.Bool().Draw(t, "more"), RemovedIds: rapid.SliceOf(rapid.String()).Draw(t, "removed")}
		for range rapid.IntRange(0, 3).Draw(t, "records") {
			l.Machines = append(l.Machines, drawRecord(t))
		}
		raw, err := proto.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		switch rapid.IntRange(0, 3).Draw(t, "spoil") {
		case 0:
			raw = append(raw, rapid.SliceOf(rapid.Byte()).Draw(t, "more bytes")...)
		case 1:
			raw = raw[:rapid.IntRange(0, len(raw)).Draw(t, "cut")]
		}
		want, a := &pb.MachineList{}, Answer{}
		wantErr, gotErr := proto.Unmarshal(raw, want), a.Unmarshal(raw)
		for _, r := range a.Records {
			if err := proto.Unmarshal(r, &pb.Machine{}); err != nil && gotErr == nil {
				gotErr = err
			}
		}
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("%x: error %v, protobuf says %v", raw, gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
		if len(a.Records) != len(want.Machines) || !slices.Equal(a.Removed, want.RemovedIds) || string(a.Revision) != string(want.Revision) ||
			a.Complete != want.Complete || a.More != want.More {
			t.Fatalf("read %+v, protobuf reads %v", a, want)
		}
		for i, r := range a.Records {
			if id := r.ID(); len(id) > 0 && string(id) != want.Machines[i].Id {
				t.Fatalf("record %d has the id %q, protobuf reads %q", i, id, want.Machines[i].Id)
			}
		}
	})
}

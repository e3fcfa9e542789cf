package core

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

// written is everything that is recorded, digested or stored.
var written = []any{
	Started{}, SessionOpened{}, SessionClosed{}, RollupArrived{}, BootstrapAnswered{}, ReclaimAcked{}, NodeReported{}, DrainReported{},
	UnplacedReported{}, ListPage{}, ListDone{}, GetDone{}, CommandDone{}, CoordinatorReplied{}, AdminAsked{}, Tick{}, Stopping{},
	CheckpointAsked{}, PlanDiffered{}, DemandTooWide{}, PartMade{},
	Command{}, GetMachine{}, ListMachines{}, PullBootstrap{}, DropBlob{}, SendReclaim{}, SendNodeState{}, SendHint{}, SendNeedStatus{},
	SendAck{}, CloseSession{}, AckInstruction{}, Notice{}, Persist{}, Record{}, Superseded{}, WakeAt{}, Snapshot{}, JournalEntry{}, Control{},
}

// SHARD-28.1: everything that is recorded, digested or stored has a form.
func TestEverythingWrittenHasAForm(t *testing.T) {
	for _, v := range written {
		codec.Check(v)
	}
}

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/stored.txt")

// SHARD-28.3: a number means the same in every build. testdata/stored.txt lists the numbers of each stored type, with
// those that are retired; `go test ./internal/core -run Numbers -rewrite` adds new ones to it.
func TestNumbersKeepTheirMeaning(t *testing.T) {
	const path = "testdata/stored.txt"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]map[int]string{}
	for _, v := range written {
		numbersOf(reflect.TypeOf(v), now)
	}
	for line := range strings.Lines(string(old)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		fields := now[name]
		for entry := range strings.SplitSeq(rest, ", ") {
			number, was, _ := strings.Cut(entry, " ")
			n, err := strconv.Atoi(number)
			switch {
			case err != nil || fields == nil: // the type is gone, or never had a field
			case fields[n] == "":
				fields[n] = "retired"
			case fields[n] != was && typeOf(fields[n]) != typeOf(was):
				t.Errorf("number %d of %s was %q in files of earlier builds and is %q now: take a new number", n, name, was, fields[n])
			}
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		var list []string
		for _, n := range slices.Sorted(maps.Keys(now[name])) {
			list = append(list, fmt.Sprintf("%d %s", n, now[name][n]))
		}
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(list, ", "))
	}
	switch {
	case b.String() == string(old) || t.Failed():
	case *rewrite:
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not list what is stored now: go test ./internal/core -run Numbers -rewrite", path)
	}
}

// typeOf is the type in "name type".
func typeOf(field string) string { return field[strings.LastIndex(field, " ")+1:] }

// numbersOf adds the fields of a type and of those in it, as "name type". The type is what the bytes show of it.
func numbersOf(t reflect.Type, into map[string]map[int]string) (form string) {
	switch t.Kind() {
	case reflect.Pointer:
		return numbersOf(t.Elem(), into)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string"
		}
		return "[]" + numbersOf(t.Elem(), into)
	case reflect.Struct:
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "uint"
	default:
		return t.Kind().String()
	}
	if into[t.String()] == nil {
		into[t.String()] = map[int]string{}
		addNumbers(t, into[t.String()], into)
	}
	return t.String()
}

func addNumbers(t reflect.Type, to map[int]string, into map[string]map[int]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		n, err := strconv.Atoi(f.Tag.Get("n"))
		switch {
		case err == nil:
			to[n] = f.Name + " " + numbersOf(f.Type, into)
		case f.Anonymous:
			addNumbers(f.Type, to, into)
		}
	}
}

// SHARD-28.3: an order that waits for the Lists of more than a thousand providers waits for as many after a restore.
func TestListingOrderSurvivesManyProviders(t *testing.T) {
	c := New(nil)
	c.admin.done = map[int64]int{7: 1_200, 9: 1}
	b := codec.Marshal(c.live().Snapshot())
	var s Snapshot
	if err := codec.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	s.Config.CycleInterval = Second
	back, _ := Restore(nil, &s)
	if !maps.Equal(back.admin.done, c.admin.done) {
		t.Errorf("orders wait for %v after a restore, want %v", back.admin.done, c.admin.done)
	}
	old, _ := Restore(nil, &Snapshot{Config: s.Config, Packed: []savedCount{{N: 7_002}}})
	if old.admin.done[7] != 2 {
		t.Errorf("a checkpoint of an older version gives %v", old.admin.done)
	}
}

package lifecycle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"
)

var rules = Rules{DeleteSupported: true, ShardIDBytesMax: 10, MetadataBytesMax: 20, BlobBytesMax: 30}

func plain() Attributes {
	return Attributes{
		InstanceType: "t", Zone: "z", CapacityType: Spot, PricePerHour: 1, InterruptionProbability: 0.1,
		Resources: map[string]string{"cpu": "1"}, Allocatable: map[string]string{"cpu": "900m"}, Labels: map[string]string{"rack": "r"},
		Taints: []Taint{{"k", "v", "NoSchedule"}},
	}
}

func newShape(t interface {
	Helper()
	Fatal(...any)
}) *Shape {
	t.Helper()
	s, err := NewShape(plain())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// legal is the table of PROV-3: what host, cluster and metadata a state may have.
func legal(r *Record) error {
	m := r.Machine()
	if err := protovalidate.Validate(m); err != nil {
		return err
	}
	bound := Bound(r.State)
	switch {
	case r.State == Failed:
		if r.LastError == "" {
			return fmt.Errorf("FAILED without last_error")
		}
		return nil
	case r.LastError != "" || r.Failure != 0:
		return fmt.Errorf("%s with last_error %q, failure %v", r.State, r.LastError, r.Failure)
	case HasHost(r.State) != r.Host.Present():
		return fmt.Errorf("%s with host %v", r.State, r.Host)
	case bound != (r.Cluster != ""):
		return fmt.Errorf("%s with cluster %q", r.State, r.Cluster)
	case !bound && len(r.Metadata) > 0:
		return fmt.Errorf("%s with metadata", r.State)
	}
	return nil
}

// PROV-3, 4.4, 7, 8: one machine under random calls, completions, failures and losses: every record fits its row, every
// change is an edge of the table, a refusal changes nothing, each cycle has a new id and a repeat has the old one.
func TestRandomLives(t *testing.T) {
	sh := newShape(t)
	rapid.Check(t, func(rt *rapid.T) {
		now, minted := time.Unix(1, 0), 0
		r := NewSlot("m", Origin{}, sh, now)
		newest := map[Kind]string{} // ids minted, by kind
		used := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Second)
			before, copied := r, *r
			kind := rapid.SampledFrom([]Kind{Create, Configure, Drain, Delete}).Draw(rt, "kind")
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 6:
				q := Request{Kind: kind, MachineID: "m"}
				if kind == Configure {
					q.Cluster = rapid.SampledFrom([]string{"red", "blue"}).Draw(rt, "cluster")
					q.Metadata = map[string]string{"k": q.Cluster}
				}
				d := Decide(r, nil, q, rules)
				edge := kind.Edge()
				if (d.Outcome == Start) != (r.State == edge.From && !(newest[kind] != "" && (r.State == edge.Through || r.State == edge.To))) {
					rt.Fatalf("%s on %s: outcome %v, reason %v", kind, r.State, d.Outcome, d.Reason)
				}
				switch d.Outcome {
				case Start:
					minted++
					id := fmt.Sprint(kind, minted)
					if used[id] {
						rt.Fatal("id twice")
					}
					used[id], newest[kind] = true, id
					r = Accept(r, q, id, now)
					if r.State != edge.Through {
						rt.Fatalf("accepted %s is %s", kind, r.State)
					}
				case Repeat:
					if d.OperationID != newest[kind] || r.State != edge.Through && r.State != edge.To || kind == Configure && q.Cluster != r.Cluster {
						rt.Fatalf("repeat of %s on %s gives %q, newest %q", kind, r.State, d.OperationID, newest[kind])
					}
				case Refuse:
					if d.Reason == BoundElsewhere && (kind != Configure || r.Cluster == q.Cluster) {
						rt.Fatalf("conflict of %s with %q on %q", kind, q.Cluster, r.Cluster)
					}
				}
			case what < 8:
				flight := InFlight(r.State)
				result := Result{Host: Host{"p", "h"}}
				next, ok := Settle(r, kind, rapid.SampledFrom([]string{"old", newest[kind]}).Draw(rt, "id"), result, now)
				if ok != (next != nil) || ok && (flight != kind || next.State != kind.Edge().To) {
					rt.Fatalf("settle %s on %s: %v", kind, r.State, ok)
				}
				if ok {
					r = next
				}
			case what == 8:
				if next, ok := Fail(r, kind, newest[kind], bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_QUOTA, "because", now); ok {
					if InFlight(r.State) != kind || !strings.HasPrefix(next.LastError, kind.Label()+": ") {
						rt.Fatalf("fail %s on %s", kind, r.State)
					}
					r = next
				}
			default:
				if next, ok := Lose(r, "gone", now); ok {
					if r.State != Idle && r.State != Configured && (r.State != Failed || r.Doing != Configure && r.Doing != Drain) {
						rt.Fatalf("lost in %s, doing %s", r.State, r.Doing)
					}
					r = next
				} else if next, ok := Interrupt(r, now); ok {
					if InFlight(before.State) == 0 {
						rt.Fatalf("interrupted in %s", before.State)
					}
					r = next
				}
			}
			if err := legal(r); err != nil {
				rt.Fatal(err)
			}
			if d := cmp.Diff(copied, *before, cmp.AllowUnexported(Shape{})); d != "" {
				rt.Fatalf("a record was changed in place: %s", d)
			}
			if before.State == Failed && r != before && (before.Lost || !r.Lost || r.State != Failed) {
				rt.Fatal("FAILED has no outgoing edge (PROV-3.5); only that its host is gone is learnt later, once (PROV-11.8)")
			}
			if r.ID != "m" {
				rt.Fatal("the id changed")
			}
		}
	})
}

// PROV-4.1: of two things that are wrong, the one that is checked first is answered; only what comes after the fence
// moves the mark.
func TestOrderOfChecks(t *testing.T) {
	mark := &Token{5, 10}
	slot := NewSlot("m", Origin{}, newShape(t), time.Unix(1, 0))
	idle := NewOwned("m", Origin{}, Host{"p", "h"}, newShape(t), "", nil, time.Unix(1, 0))
	bound := NewOwned("m", Origin{}, Host{"p", "h"}, newShape(t), "red", nil, time.Unix(1, 0))
	noDelete := rules
	noDelete.DeleteSupported = false
	stale, fresh := Token{5, 10}, Token{5, 11}
	for _, test := range []struct {
		name    string
		r       *Record
		q       Request
		rules   Rules
		want    Reason
		outcome Outcome
		moves   bool
	}{
		{"delete unsupported before all", nil, Request{Kind: Delete, ShardID: "s", Token: stale}, noDelete, DeleteUnsupported, Refuse, false},
		{"empty id before the fence", nil, Request{Kind: Create, ShardID: "s", Token: stale}, rules, EmptyMachineID, Refuse, false},
		{"long shard id before the fence", slot, Request{Kind: Create, MachineID: "m", ShardID: "12345678901", Token: fresh}, rules, ShardIDTooLong, Refuse, false},
		{"fence before existence", nil, Request{Kind: Create, MachineID: "m", ShardID: "s", Token: stale}, rules, Stale, Refuse, false},
		{"fence before the repeat", idle, Request{Kind: Create, MachineID: "m", ShardID: "s", Token: stale}, rules, Stale, Refuse, false},
		{"existence before arguments", nil, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh}, rules, UnknownMachine, Refuse, true},
		{"arguments before position: cluster", slot, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh}, rules, BrokenRule, Refuse, true},
		{"arguments before position: grace", slot, Request{Kind: Drain, MachineID: "m", ShardID: "s", Token: fresh, GraceSeconds: -1}, rules, NegativeGrace, Refuse, true},
		{"metadata", idle, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh, Cluster: "c", Metadata: map[string]string{"12345678901": "12345678901"}}, rules, MetadataTooLarge, Refuse, true},
		{"blob", idle, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh, Cluster: "c", BlobBytes: 31}, rules, BlobTooLarge, Refuse, true},
		{"position", slot, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh, Cluster: "c"}, rules, WrongState, Refuse, true},
		{"another owner, though no id is known", bound, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh, Cluster: "blue"}, rules, BoundElsewhere, Refuse, true},
		{"the same owner, though no id is known", bound, Request{Kind: Configure, MachineID: "m", ShardID: "s", Token: fresh, Cluster: "red"}, rules, WrongState, Refuse, true},
		{"start", slot, Request{Kind: Create, MachineID: "m", ShardID: "s", Token: fresh}, rules, 0, Start, true},
		{"unfenced", slot, Request{Kind: Create, MachineID: "m"}, rules, 0, Start, false},
		{"empty shard with a number is fenced", slot, Request{Kind: Create, MachineID: "m", Token: Token{0, 1}}, rules, Stale, Refuse, false},
	} {
		d := Decide(test.r, mark, test.q, test.rules)
		if d.Reason != test.want || d.Outcome != test.outcome || d.MarkMoves != test.moves {
			t.Errorf("%s: %+v", test.name, d)
		}
	}
}

// PROV-6.3 to 6.11: tokens against the lexicographic oracle, extremes and negatives included.
func TestTokens(t *testing.T) {
	extreme := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}))
	rapid.Check(t, func(rt *rapid.T) {
		a := Token{extreme.Draw(rt, "epoch"), extreme.Draw(rt, "sequence")}
		b := Token{extreme.Draw(rt, "epoch"), extreme.Draw(rt, "sequence")}
		want := slices.Compare([]int64{a.Epoch, a.Sequence}, []int64{b.Epoch, b.Sequence}) > 0
		if a.Newer(b) != want {
			rt.Fatalf("%v newer than %v: %v", a, b, !want)
		}
		if a.Newer(b) && b.Newer(a) || a.Newer(a) {
			rt.Fatal("not an order")
		}
	})
}

// PROV-16.6: head and shape, written one after the other, are the record's encoding.
func TestWire(t *testing.T) {
	sh := newShape(t)
	r := NewOwned("a\x00/é", Origin{}, Host{"p", "h"}, sh, "red", map[string]string{"": "", "k": "\x00", "z": ""}, time.Unix(1, 0))
	r.State, r.LastError, r.Failure = Failed, "x", 9
	var got bigfleetv1alpha1.Machine
	if err := proto.Unmarshal(append(r.AppendWire(nil), sh.Wire()...), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r.Machine(), &got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	again, err := ParseShape(sh.Wire())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sh.Attributes(), again.Attributes()); d != "" || string(again.Wire()) != string(sh.Wire()) {
		t.Error(d)
	}
}

// PROV-8.3: the stored map shares nothing with the request.
func TestMetadataIsCopied(t *testing.T) {
	given := map[string]string{"k": "v"}
	r := Accept(NewOwned("m", Origin{}, Host{"p", "h"}, newShape(t), "", nil, time.Unix(1, 0)),
		Request{Kind: Configure, Cluster: "c", Metadata: given}, "op", time.Unix(2, 0))
	given["k"], given["new"] = "changed", ""
	if !maps.Equal(r.Metadata, map[string]string{"k": "v"}) {
		t.Errorf("%v", r.Metadata)
	}
}

// PROV-9.2 to 9.8: each broken rule is named; the good record passes the rules of the protos too.
func TestCheck(t *testing.T) {
	if err := Check(plain()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Attributes)
		want   string
	}{
		"type":              {func(a *Attributes) { a.InstanceType = "" }, "instance_type"},
		"zone":              {func(a *Attributes) { a.Zone = "" }, "zone"},
		"class 0":           {func(a *Attributes) { a.CapacityType = 0 }, "capacity_type"},
		"class 9":           {func(a *Attributes) { a.CapacityType = 9 }, "capacity_type"},
		"price NaN":         {func(a *Attributes) { a.PricePerHour = math.NaN() }, "price"},
		"price below 0":     {func(a *Attributes) { a.PricePerHour = -1 }, "price"},
		"price infinite":    {func(a *Attributes) { a.PricePerHour = math.Inf(1) }, "price"},
		"free spot":         {func(a *Attributes) { a.PricePerHour = 0 }, "price"},
		"safe spot":         {func(a *Attributes) { a.InterruptionProbability = 0 }, "spot"},
		"probability":       {func(a *Attributes) { a.InterruptionProbability = 1.1 }, "interruption_probability"},
		"probability NaN":   {func(a *Attributes) { a.InterruptionProbability = math.NaN() }, "interruption_probability"},
		"label zone":        {func(a *Attributes) { a.Labels["topology.kubernetes.io/zone"] = "x" }, "topology.kubernetes.io/zone"},
		"label type":        {func(a *Attributes) { a.Labels["instanceType"] = "x" }, "instanceType"},
		"quantity":          {func(a *Attributes) { a.Resources["cpu"] = "many" }, "resources[cpu]"},
		"negative":          {func(a *Attributes) { a.Allocatable["cpu"] = "-1" }, "allocatable[cpu]"},
		"zero but shared":   {func(a *Attributes) { a.Resources["cpu"] = "0" }, "must be positive"},
		"empty resource":    {func(a *Attributes) { a.Resources[""] = "1" }, "empty resource name"},
		"taint effect":      {func(a *Attributes) { a.Taints[0].Effect = "Maybe" }, "effect"},
		"bad text":          {func(a *Attributes) { a.Labels["x"] = "\xff" }, "UTF-8"},
		"bad text in taint": {func(a *Attributes) { a.Taints[0].Value = "\xff" }, "UTF-8"},
	} {
		a := plain()
		test.change(&a)
		if err := Check(a); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	owned := plain()
	owned.CapacityType, owned.PricePerHour, owned.InterruptionProbability = BareMetal, 0, 0
	if err := Check(owned); err != nil {
		t.Errorf("owned hardware is free: %v", err)
	}
}

// PROV-11.9: kind first, one line, valid UTF-8, bounded, never empty.
func TestErrorText(t *testing.T) {
	if got := ErrorText("create", " a\nb\x00\xffc "); got != "create: a b �c" {
		t.Errorf("%q", got)
	}
	if got := ErrorText("drain", ""); got == "drain: " {
		t.Error("empty")
	}
	long := ErrorText("host", strings.Repeat("é", 3000))
	if len(long) > LastErrorBytesMax || !strings.HasSuffix(long, "…") || strings.ToValidUTF8(long, "") != long {
		t.Errorf("%d bytes, ends %q", len(long), long[len(long)-9:])
	}
}

// PROV-4.5, WIRE-3.12: what the rules generated from the protos refuse is refused, machine_id before the fence and the rest behind it, and
// nothing that they allow is refused as a broken rule.
func TestTheGeneratedRulesAreTheGate(t *testing.T) {
	rules := Rules{DeleteSupported: true, ShardIDBytesMax: 1024, MetadataBytesMax: 1 << 20, BlobBytesMax: 1 << 20}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "a/b\x00c"})
		q := Request{
			Kind: rapid.SampledFrom([]Kind{Create, Configure, Drain, Delete}).Draw(t, "kind"), MachineID: text.Draw(t, "machine"), ShardID: "s",
			Token: Token{1, 1}, Cluster: text.Draw(t, "cluster"), GraceSeconds: rapid.Int64Range(-1, 1).Draw(t, "grace"),
		}
		err := protovalidate.Validate(q.message())
		d := Decide(NewSlot("m", Origin{}, newShape(t), time.Time{}), nil, q, rules)
		if refused := d.Reason == EmptyMachineID || d.Reason == BrokenRule; refused != (err != nil) {
			t.Fatalf("%+v: %+v, the rules say %v", q, d, err)
		}
		if d.Reason == BrokenRule && (d.Detail == "" || !d.MarkMoves) || d.Reason == EmptyMachineID && d.MarkMoves {
			t.Fatalf("%+v: %+v", q, d)
		}
	})
}

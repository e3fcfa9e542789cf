package aggregate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// req decodes a request as the cache would.
func req(t interface {
	Helper()
	Fatal(...any)
}, name, spec string) *request.Request {
	t.Helper()
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = "default", namespace
	}
	r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := json.Unmarshal([]byte(spec), &r.Spec); err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t testing.TB, a *Aggregate, specs ...string) {
	t.Helper()
	for i, s := range specs {
		a.Set(req(t, fmt.Sprintf("r%d", i), s))
	}
}

func valid(t testing.TB, needs []*pb.CapacityNeed) {
	t.Helper()
	if err := protovalidate.Validate(&pb.ClusterCapacityNeeds{ClusterId: "c", Needs: needs}); err != nil {
		t.Fatalf("the wire refuses the roll-up: %v", err)
	}
}

// OP-5.7: sums and maxima, no count. Scenario 13. ENG-4.12, ENG-13.9: rows of unlike requests would count by their sums.
func TestManyEqualRequestsAreOneRow(t *testing.T) {
	for name, also := range map[string]string{
		"plain": "", "hard spread": `,"topologySpread":[{"topologyKey":"zone","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			a, interner := New(0), new(request.SpecInterner)
			for i := range 25_000 {
				r := req(t, fmt.Sprintf("n%d/r%d", i%7, i), `{"resources":{"cpu":"500m","memory":"1Gi"},"priority":5`+also+`}`)
				if _, err := interner.Strip(r); err != nil {
					t.Fatal(err)
				}
				a.Set(r)
			}
			if n := a.Needs(); len(n) != 1 || n[0].AggregateResources["cpu"] != "12500" || n[0].MinUnit["cpu"] != "500m" {
				t.Fatalf("rows %v, want one", n)
			}
			a.Set(req(t, "big", `{"resources":{"cpu":"3","memory":"512Mi"},"priority":5`+also+`}`))
			needs := a.Needs()
			valid(t, needs)
			if len(needs) != 2 || needs[0].Group == needs[1].Group || needs[0].RowId == needs[1].RowId {
				t.Fatalf("rows %v, want one for each size", needs)
			}
		})
	}
}

// OP-5.7, OP-5.24: requests of a gang are one row, whatever their sizes: the sum, and the largest of each resource.
func TestUnlikeRequestsOfAGangAreOneRow(t *testing.T) {
	a := New(0)
	for i := range 4 {
		a.Set(req(t, fmt.Sprintf("r%d", i), `{"resources":{"cpu":"500m","memory":"1Gi"},"priority":5,"gang":{"name":"g"}}`))
	}
	a.Set(req(t, "big", `{"resources":{"cpu":"3","memory":"512Mi"},"priority":5,"gang":{"name":"g"}}`))
	needs := a.Needs()
	valid(t, needs)
	want := &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "5", "memory": "4608Mi"}, MinUnit: map[string]string{"cpu": "3", "memory": "1Gi"},
		Priority: 5, InterruptionPenaltyBucket: 1, ReclamationPenaltyBucket: 1, TolerationsStated: true, RowId: needs[0].RowId, Group: needs[0].Group}
	if d := cmp.Diff([]*pb.CapacityNeed{want}, needs, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	a.Delete(Key{"default", "big"})
	if got := a.Needs()[0].MinUnit["cpu"]; got != "500m" {
		t.Errorf("after the largest left min_unit is %s, want 500m", got)
	}
}

// OP-5.28: Pods that a spread counts together are a row of their own, whatever namespace or app they share its constraint with; of each
// size one, with its least number of domains.
func TestPodsThatSpreadTogetherAreOneRow(t *testing.T) {
	a := New(0)
	request := func(name, cpu, app string, least int) {
		a.Set(req(t, name, fmt.Sprintf(`{"priority":0,"resources":{"cpu":%q},"topologySpread":[{"topologyKey":"zone","maxSkew":1,"minDomains":%d,
			"whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":%q}}}]}`, cpu, least, app)))
	}
	for i := range 3 {
		request(fmt.Sprintf("one/a%d", i), "1", "a", 3)
	}
	request("one/big", "2", "a", 3)
	request("one/b", "1", "b", 3)
	request("two/a", "1", "a", 3)
	request("two/a1", "1", "a", 1)
	needs := a.Needs()
	valid(t, needs)
	groups, largest := map[string]bool{}, ""
	for _, n := range needs {
		groups[n.Group] = true
		if want := int32(3); n.Spread[0].MinDomains != want && n.Spread[0].MinDomains != 0 {
			t.Errorf("at least %d domains, want %d or none", n.Spread[0].MinDomains, want)
		}
		largest = max(largest, n.AggregateResources["cpu"])
	}
	if len(needs) != 5 || len(groups) != 4 || largest != "3" {
		t.Errorf("%d rows of %d groups, the largest of %s cpu: %v", len(needs), len(groups), largest, needs)
	}
}

// OP-5.9: sums beyond 64 bits of milli-units stay exact.
func TestSumsDoNotOverflow(t *testing.T) {
	a := New(0)
	for i := range 20_000 {
		a.Set(req(t, fmt.Sprint(i), `{"resources":{"memory":"1Ti","cpu":"1m"}}`))
	}
	got := resource.MustParse(a.Needs()[0].AggregateResources["memory"])
	want := resource.MustParse("20000Ti")
	if got.Cmp(want) != 0 {
		t.Errorf("sum is %s, want %s", got.String(), want.String())
	}
	for i := range 19_999 {
		a.Delete(Key{"default", fmt.Sprint(i)})
	}
	if got := a.Needs()[0].AggregateResources["memory"]; got != "1Ti" {
		t.Errorf("sum is %s, want 1Ti", got)
	}
}

// OP-5.8, OP-5.11: what means the same is one row, however it is written; what differs is another.
func TestRowIdentity(t *testing.T) {
	base := `{"resources":{"cpu":"1"},"priority":1,"requirements":[{"key":"zone","operator":"In","values":["b","a"]},{"key":"arch","operator":"Exists"}]}`
	for name, c := range map[string]struct {
		spec string
		same bool
	}{
		"permuted":           {`{"priority":1,"resources":{"cpu":"1000m"},"requirements":[{"key":"arch","operator":"Exists","values":["x"]},{"key":"zone","operator":"In","values":["a","b","a"]}]}`, true},
		"soft spread":        {strings.Replace(base, `{`, `{"topologySpread":[{"topologyKey":"zone","maxSkew":1,"whenUnsatisfiable":"ScheduleAnyway"}],`, 1), true},
		"other resources":    {strings.Replace(base, `"1"`, `"7"`, 1), false},
		"a resource of zero": {strings.Replace(base, `"1"}`, `"1","example.com/gpu":"0"}`, 1), true},
		"zero penalty":       {strings.Replace(base, `{`, `{"interruptionPenalty":"0",`, 1), true},
		"hard spread":        {strings.Replace(base, `{`, `{"topologySpread":[{"topologyKey":"zone","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}],`, 1), false},
		"priority":           {strings.Replace(base, `"priority":1`, `"priority":2`, 1), false},
		"interruption":       {strings.Replace(base, `{`, `{"interruptionPenalty":"500m",`, 1), false},
		"reclamation":        {strings.Replace(base, `{`, `{"reclamationPenalty":"500m",`, 1), false},
		"toleration":         {strings.Replace(base, `{`, `{"tolerations":[{"key":"gpu","operator":"Exists"}],`, 1), false},
		"co-location":        {strings.Replace(base, `{`, `{"coLocation":{"topologyKey":"rack","labelSelector":{}},`, 1), false},
		"operator":           {strings.Replace(base, `Exists`, `DoesNotExist`, 1), false},
		"no requirement":     {`{"resources":{"cpu":"1"},"priority":1}`, false},
		"nil label selector": {strings.Replace(base, `{`, `{"coLocation":{"topologyKey":"rack"},`, 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(0)
			set(t, a, base, c.spec)
			if got := len(a.Needs()) == 1; got != c.same {
				t.Errorf("one row: %v, want %v", got, c.same)
			}
			valid(t, a.Needs())
		})
	}
}

// OP-1.6, OP-5.18, OP-5.19. Scenario 16.
func TestPenaltyBuckets(t *testing.T) {
	for dollars, want := range map[string]pb.PenaltyBucket{
		`"500m"`: pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR, `0`: pb.PenaltyBucket_PENALTY_BUCKET_ZERO, `-1`: pb.PenaltyBucket_PENALTY_BUCKET_ZERO,
		`20000000`: pb.PenaltyBucket_PENALTY_BUCKET_PINNED, `null`: pb.PenaltyBucket_PENALTY_BUCKET_ZERO, `"501m"`: pb.PenaltyBucket_PENALTY_BUCKET_1,
		`1`: pb.PenaltyBucket_PENALTY_BUCKET_1, `"1001m"`: pb.PenaltyBucket_PENALTY_BUCKET_2, `8192`: pb.PenaltyBucket_PENALTY_BUCKET_8192,
		`"8192.5"`: pb.PenaltyBucket_PENALTY_BUCKET_16384, `8388608`: pb.PenaltyBucket_PENALTY_BUCKET_8388608,
		`"8388608.001"`: pb.PenaltyBucket_PENALTY_BUCKET_PINNED, `"1n"`: pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR, `"9E"`: pb.PenaltyBucket_PENALTY_BUCKET_PINNED,
	} {
		a := New(0)
		set(t, a, `{"resources":{},"priority":9,"interruptionPenalty":`+dollars+`}`)
		if n := a.Needs()[0]; n.InterruptionPenaltyBucket != want || n.ReclamationPenaltyBucket != pb.PenaltyBucket_PENALTY_BUCKET_ZERO {
			t.Errorf("%s dollars: %v and %v, want %v and zero", dollars, n.InterruptionPenaltyBucket, n.ReclamationPenaltyBucket, want)
		}
	}
	a := New(0)
	set(t, a, `{"resources":{},"priority":0,"reclamationPenalty":"-1"}`)
	if p := a.Problem(Key{"default", "r0"}); p == nil || p.Reason != ReasonNegativePenalty || p.Fatal {
		t.Errorf("a negative penalty gives %+v, want a warning", p)
	}
}

// OP-5.12: what cannot be translated is left out, with the field named. Scenario 18.
func TestUntranslatableRequests(t *testing.T) {
	long := strings.Repeat("x", 318)
	for spec, want := range map[string]string{
		`{"resources":{"cpu":"1"},"requirements":[{"key":"n","operator":"Near","values":["1"]}]}`:          "spec.requirements[0].operator",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"n","operator":"Gt","values":["x"]}]}`:            "spec.requirements[0].values",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"n","operator":"Lt","values":["1","2"]}]}`:        "spec.requirements[0].values",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"rack","operator":"Same"}]}`:                      "spec.requirements[0].operator", // OP-1.5: not for producers
		`{"resources":{"cpu":"1"},"requirements":[{"key":"n","operator":"In"}]}`:                           "spec.requirements[0].values",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"n","operator":"NotIn","values":[]}]}`:            "spec.requirements[0].values",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"","operator":"Exists"}]}`:                        "spec.requirements[0].key",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"` + long + `","operator":"Exists"}]}`:            "spec.requirements[0].key",
		`{"resources":{"cpu":"1"},"requirements":[{"key":"k","operator":"In","values":["` + long + `"]}]}`: "spec.requirements[0].values",
		`{"resources":{"cpu":"-1"}}`:                      "spec.resources.cpu",
		`{"resources":{"cpu":"1e1.5"}}`:                   "spec.resources.cpu",
		`{"resources":{"memory":"9E"}}`:                   "spec.resources.memory",
		`{"resources":{"` + long + `":"1"}}`:              "spec.resources",
		`{"resources":{"cpu":"1"},"priority":3000000000}`: "spec.priority",
		`{"resources":{},"interruptionPenalty":"1e1.5"}`:  "spec.interruptionPenalty",
		`{"resources":{},"topologySpread":[{"topologyKey":"z","maxSkew":0,"whenUnsatisfiable":"DoNotSchedule"}]}`:                         "spec.topologySpread[0].maxSkew",
		`{"resources":{},"topologySpread":[{"topologyKey":"","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]}`:                          "spec.topologySpread[0].topologyKey",
		`{"resources":{},"topologySpread":[{"topologyKey":"z","maxSkew":1,"whenUnsatisfiable":"Perhaps"}]}`:                               "spec.topologySpread[0].whenUnsatisfiable",
		`{"resources":{},"tolerations":[{"key":"a","operator":"Lt","value":"1"}]}`:                                                        "spec.tolerations[0].operator",
		`{"resources":{},"tolerations":[{"key":"a","effect":"Explode"}]}`:                                                                 "spec.tolerations[0].effect",
		`{"resources":{},"coLocation":{"topologyKey":"","labelSelector":{}}}`:                                                             "spec.coLocation.topologyKey",
		`{"resources":{},"requirements":[` + repeat(`{"key":"k%d","operator":"Exists"}`, 64) + `]}`:                                       "spec.requirements",
		`{"resources":{` + repeat(`"example.com/r%d":1`, 65) + `}}`:                                                                       "spec.resources",
		`{"resources":{},"requirements":[{"key":"k","operator":"In","values":[` + repeat(`"v%d"`, 4097) + `]}]}`:                          "spec.requirements[0].values",
		`{"resources":{},"tolerations":[` + repeat(`{"key":"k%d","operator":"Exists"}`, 65) + `]}`:                                        "spec.tolerations",
		`{"resources":{},"topologySpread":[` + repeat(`{"topologyKey":"k%d","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}`, 17) + `]}`: "spec.topologySpread",
		`{"resources":["cpu"]}`: "spec",
	} {
		a := New(0)
		set(t, a, spec)
		p := a.Problem(Key{"default", "r0"})
		if p == nil || !p.Fatal || !strings.HasPrefix(p.Message, want+" ") {
			t.Errorf("%.100s: problem %+v, want one that names %s", spec, p, want)
		}
		if len(a.Needs()) != 0 || a.Invalid() != 1 || len(a.TakeWaiting()) != 0 {
			t.Errorf("%.100s: %d rows, %d invalid; it must not count and not be acknowledged", spec, len(a.Needs()), a.Invalid())
		}
	}
}

func repeat(format string, n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(format, i))
	}
	return strings.Join(parts, ",")
}

// OP-5.12: an edit that breaks a request does not withdraw the node under its Pod; deleting the request does.
func TestLastValidContributionStays(t *testing.T) {
	good, bad := `{"resources":{"cpu":"2"},"priority":0}`, `{"resources":{"cpu":"9"},"priority":0,"requirements":[{"key":"n","operator":"Near","values":["1"]}]}`
	a := New(0)
	set(t, a, good)
	if a.Set(req(t, "r0", bad)) {
		t.Error("an edit that cannot be read changed the rows")
	}
	for range 2 { // also after a rebuild
		if n := a.Needs(); len(n) != 1 || n[0].AggregateResources["cpu"] != "2" || !a.Problem(Key{"default", "r0"}).Fatal {
			t.Fatalf("rows %v, problem %+v", n, a.Problem(Key{"default", "r0"}))
		}
		var equal bool
		if a, equal = a.Rebuild(a.Requests()); !equal {
			t.Fatal("the rebuild differs")
		}
	}
	if !a.Set(req(t, "r0", `{"resources":{"cpu":"3"},"priority":0}`)) || a.Needs()[0].AggregateResources["cpu"] != "3" || a.Problem(Key{"default", "r0"}) != nil {
		t.Error("a repaired request is not counted")
	}
	a.Set(req(t, "r0", bad))
	if !a.Delete(Key{"default", "r0"}) || len(a.Needs()) != 0 || a.Invalid() != 0 {
		t.Error("a deleted request still counts")
	}
}

// OP-5.10.
func TestDeletingRequestsDoNotCount(t *testing.T) {
	a := New(0)
	set(t, a, `{"resources":{"cpu":"2"},"priority":0}`, `{"priority":0}`)
	leaving := req(t, "r0", `{"resources":{"cpu":"2"},"priority":0}`)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if !a.Set(leaving) || a.Len() != 1 || len(a.Needs()) != 1 || len(a.Needs()[0].AggregateResources) != 0 {
		t.Errorf("%d requests, rows %v", a.Len(), a.Needs())
	}
}

// OP-5.12: a row whose requests name more resources than the wire takes leaves out the odd ones, whatever the order.
func TestTooManyResourcesInOneRow(t *testing.T) {
	const gang = `"gang":{"name":"g"}` // requests of all sizes are one row
	build := func(order []int) *Aggregate {
		a := New(0)
		for _, i := range order {
			a.Set(req(t, fmt.Sprintf("odd%d", i), fmt.Sprintf(`{"priority":0,"resources":{"cpu":"1","example.com/r%03d":"1"},`+gang+`}`, i)))
		}
		for i := range 5 {
			a.Set(req(t, fmt.Sprintf("plain%d", i), `{"priority":0,"resources":{"cpu":"1","memory":"1Gi"},`+gang+`}`))
		}
		return a
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(100)
	a, b := build(order), build(slices.Sorted(slices.Values(order)))
	if d := cmp.Diff(a.Needs(), b.Needs(), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	valid(t, a.Needs())
	n := a.Needs()[0]
	if n.AggregateResources["memory"] != "5Gi" || n.AggregateResources["cpu"] != fmt.Sprint(5+62) {
		t.Errorf("sums %v", n.AggregateResources)
	}
	out := 0
	for i := range 100 {
		if p := a.Problem(Key{"default", fmt.Sprintf("odd%d", i)}); p != nil && p.Reason == ReasonTooManyResources {
			out++
		}
	}
	if out != 38 || a.Problem(Key{"default", "plain0"}) != nil {
		t.Errorf("%d requests are left out, want 38", out)
	}
	for i := range 60 {
		a.Delete(Key{"default", fmt.Sprintf("odd%d", i)})
	}
	a.Needs()
	for i := 60; i < 100; i++ {
		if p := a.Problem(Key{"default", fmt.Sprintf("odd%d", i)}); p != nil {
			t.Errorf("request %d is still left out, though there is room for its resources now: %+v", i, p)
		}
	}
}

// OP-5.9, scenario 12: incremental rows equal a rebuild and do not depend on order.
func TestIncrementalEqualsRebuild(t *testing.T) {
	specs := []string{
		`{"resources":{"cpu":"%d"},"priority":0}`,
		`{"resources":{"cpu":"1","memory":"%dMi"},"priority":0}`,
		`{"resources":{"cpu":"%dm"},"priority":7,"requirements":[{"key":"b","operator":"In","values":["x"]},{"key":"a","operator":"Exists"}]}`,
		`{"resources":{"cpu":"%dm"},"priority":7,"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"In","values":["x"]}]}`,
		`{"resources":{"gpu":"%d"},"priority":0,"coLocation":{"topologyKey":"rack","labelSelector":{"matchLabels":{"a":"b"}}}}`,
		`{"resources":{"cpu":"%d"},"priority":0,"requirements":[{"key":"b","operator":"Lt","values":["x"]}]}`,
		`{"resources":{"cpu":"-%d"},"priority":0}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		a, interner := New(0), new(request.SpecInterner)
		last := map[Key]*request.Request{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			ns := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "namespace")
			key := Key{ns, fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "name"))}
			if rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				a.Delete(key)
				delete(last, key)
			} else {
				r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				spec := fmt.Sprintf(rapid.SampledFrom(specs).Draw(t, "spec"), rapid.IntRange(1, 3).Draw(t, "amount"))
				if err := json.Unmarshal([]byte(spec), &r.Spec); err != nil {
					t.Fatal(err)
				}
				if _, err := interner.Strip(r); err != nil {
					t.Fatal(err)
				}
				a.Set(r)
				last[key] = r
			}
			var list []*request.Request
			for _, r := range last {
				list = append(list, r) // in map order, which is the point
			}
			fresh, equal := a.Rebuild(list)
			if !equal {
				t.Fatalf("incremental %v\nrebuilt %v", a.Needs(), fresh.Needs())
			}
			x, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.ClusterCapacityNeeds{Needs: a.Needs()})
			y, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.ClusterCapacityNeeds{Needs: fresh.Needs()})
			if string(x) != string(y) {
				t.Fatal("equal demand gives other bytes")
			}
			for key := range last {
				row := a.Row(key)
				if row == "" {
					continue
				}
				found := false
				a.Members(row, func(r *request.Request) bool {
					found = found || KeyOf(r) == key
					return true
				})
				if !found {
					t.Fatalf("%v is not a member of its row", key)
				}
			}
		}
	})
}

// OP-6.1: what waits for its acknowledgement is returned once.
func TestTakeWaiting(t *testing.T) {
	a := New(0)
	set(t, a, `{"resources":{"cpu":"2"},"priority":0}`, `{"resources":{"cpu":"2"},"priority":0}`)
	done := req(t, "r2", `{"resources":{"cpu":"2"},"priority":0}`)
	done.Status.Phase = "Acknowledged"
	a.Set(done)
	if got := a.TakeWaiting(); len(got) != 2 || len(a.TakeWaiting()) != 0 {
		t.Errorf("waiting %v", got)
	}
}

// On a standby replica, or while the shard is away, nothing takes what waits: the list stays as short as the requests.
func TestWaitingIsBoundedWhileNothingIsTaken(t *testing.T) {
	a := New(0)
	set(t, a, `{"resources":{"cpu":"2"},"priority":0}`)
	for i := range 20 * waitingMin {
		r := req(t, fmt.Sprintf("later%d", i), `{"resources":{"cpu":"2"},"priority":0}`)
		a.Set(r)
		if i%2 == 0 {
			a.Delete(KeyOf(r))
		} else if i > 100 {
			a.Delete(Key{"default", fmt.Sprintf("later%d", i-100)})
		}
	}
	if n := len(a.waiting); n > 2*max(waitingMin, a.Len()) {
		t.Errorf("%d slots are listed for %d requests", n, a.Len())
	}
	if got := a.TakeWaiting(); len(got) != a.Len() {
		t.Errorf("%d requests wait, %d were taken", a.Len(), len(got))
	}
}

// OP-11.7: a suspended request is not counted, whatever happens to it, also after a rebuild; resumed it counts as it is then, and
// one that can no longer be read counts as it last could.
func TestSuspend(t *testing.T) {
	write := func(name, spec string) *request.Request {
		r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
		if err := json.Unmarshal([]byte(spec), &r.Spec); err != nil {
			t.Fatal(err)
		}
		return r
	}
	cpu := func(a *Aggregate) string {
		if n := a.Needs(); len(n) > 0 {
			return n[0].AggregateResources["cpu"]
		}
		return "none"
	}
	a := New(0)
	a.Set(write("stays", `{"resources":{"cpu":"1"}}`))
	a.Set(write("goes", `{"resources":{"cpu":"1"}}`))
	key := Key{"a", "goes"}
	if !a.Suspend(key) || a.Suspend(key) || cpu(a) != "1" || a.Row(key) != "" || a.Request(key) == nil {
		t.Fatalf("suspended: cpu %s, row %q", cpu(a), a.Row(key))
	}
	a.Set(write("goes", `{"resources":{"cpu":"1"},"priority":1e99}`)) // cannot be read any more
	fresh, equal := a.Rebuild(a.Requests())
	if !equal || cpu(fresh) != "1" {
		t.Fatalf("after a rebuild: equal %v, cpu %s", equal, cpu(fresh))
	}
	if !fresh.Resume(key) || cpu(fresh) != "2" || fresh.Resume(key) {
		t.Fatalf("resumed: cpu %s", cpu(fresh))
	}
	fresh.Suspend(key)
	fresh.Delete(key)
	if fresh.Resume(key) || cpu(fresh) != "1" || len(fresh.suspended) != 0 {
		t.Fatalf("deleted while suspended: cpu %s", cpu(fresh))
	}
}

// OP-5.8: how many Pods share a host, and whether they preempt, tells rows apart and is sent, also in the overflow row.
func TestPerHostAndPreemptionAreSent(t *testing.T) {
	a := New(0)
	add := func(i int, rest string) {
		r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("r", i)}}
		if err := json.Unmarshal(fmt.Appendf(nil, `{"resources":{"cpu":"%d"},"priority":0%s}`, 1+i%20, rest), &r.Spec); err != nil {
			t.Fatal(err)
		}
		if a.Set(r); a.Problem(KeyOf(r)) != nil {
			t.Fatalf("%v", a.Problem(KeyOf(r)))
		}
	}
	rests := []string{``, `,"maxPerHost":1`, `,"preemptionPolicy":"Never"`, `,"maxPerHost":1,"preemptionPolicy":"Never"`}
	for i := range 80 {
		add(i, rests[i/20])
	}
	rows := map[string]int{}
	for _, n := range a.Needs() {
		rows[fmt.Sprint(n.MaxPerHost, n.NeverPreempts)]++
	}
	if len(rows) != 4 || rows["0 false"] != shapesMax || rows["1 false"] != shapesMax || rows["0 true"] != shapesMax || rows["1 true"] != shapesMax {
		t.Errorf("rows %v", rows)
	}
	r := &request.Request{}
	if err := json.Unmarshal([]byte(`{"resources":{},"priority":0,"maxPerHost":1.5}`), &r.Spec); err != nil || r.Spec.Fault == nil || r.Spec.Fault.Field != "spec.maxPerHost" {
		t.Errorf("fault %v, %v", r.Spec.Fault, err)
	}
}

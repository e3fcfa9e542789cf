package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// The sizes of OP-18 and B7.
const (
	requestsB7    = 25_000
	wireBytesMax  = 2 << 10                   // of 8 rows, which is what 8 profiles of equal Pods are
	coldMaxNS     = 250                       // per request
	changeMaxNS   = 20_000                    // per change
	hashesPerCold = 10                        // 1.2 x (10 x P-hash + P-marshal) is the target: 12 x P-hash and 1.2 x P-marshal
	targetB7      = 1.2                       //
	seedB7        = uint64(1)                 // of published runs
	topologyRack  = "topology.bigfleet/rack"  // that gangs share
	labelGang     = "example.com/gang-number" // that members of a gang are found by
)

// fleet makes the requests of a workload as the cache holds them: decoded from what the API server sends.
func fleet(b testing.TB, w *workload.Requests) []*request.Request {
	b.Helper()
	out, interner := make([]*request.Request, len(w.Profile)), new(request.SpecInterner)
	for i := range out {
		body, err := json.Marshal(map[string]any{"spec": specOf(w, i)})
		if err != nil {
			b.Fatal(err)
		}
		out[i] = &request.Request{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("web-%d-5d8f9c7b6-%05d-1f2e3d4c5b", i%97, i),
		}}
		if err := json.Unmarshal(body, out[i]); err != nil {
			b.Fatal(err)
		}
		if _, err := interner.Strip(out[i]); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

func specOf(w *workload.Requests, i int) v1alpha1.CapacityRequestSpec {
	p, s := w.Profiles[w.Profile[i]], w.Shapes[w.Shape[i]]
	out := v1alpha1.CapacityRequestSpec{
		Priority: p.Priority,
		Resources: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(s.CPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(s.Memory, resource.BinarySI),
		},
		InterruptionPenalty: dollars(p.InterruptionPenaltyBucket), ReclamationPenalty: dollars(p.ReclamationPenaltyBucket),
	}
	for _, r := range p.Requirements {
		out.Requirements = append(out.Requirements, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOpIn, Values: r.Values})
	}
	for _, t := range p.Spread {
		out.TopologySpread = append(out.TopologySpread, v1alpha1.TopologySpread{TopologyKey: t.TopologyKey, MaxSkew: t.MaxSkew, WhenUnsatisfiable: corev1.DoNotSchedule})
	}
	if gang := w.Gang[i]; gang >= 0 {
		out.CoLocation = &v1alpha1.CoLocation{TopologyKey: topologyRack, LabelSelector: metav1.SetAsLabelSelector(map[string]string{labelGang: fmt.Sprint(gang)})}
	}
	return out
}

// dollars is an amount that falls into a bucket.
func dollars(b pb.PenaltyBucket) *resource.Quantity {
	switch {
	case b < pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR:
		return nil
	case b == pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR:
		return resource.NewMilliQuantity(500, resource.DecimalSI)
	}
	return resource.NewQuantity(1<<(b-pb.PenaltyBucket_PENALTY_BUCKET_1), resource.DecimalSI)
}

func cold(list []*request.Request) *Aggregate {
	a := New(len(list))
	for _, r := range list {
		a.Set(r)
	}
	return a
}

// addsUp is the oracle: what arrives on the other side sums to the requests.
func addsUp(w *workload.Requests, wire []byte) error {
	var got pb.ClusterCapacityNeeds
	if err := proto.Unmarshal(wire, &got); err != nil {
		return err
	}
	want := w.Total()
	for _, n := range got.Needs {
		cpu, memory := resource.MustParse(n.AggregateResources["cpu"]), resource.MustParse(n.AggregateResources["memory"])
		want.CPU -= cpu.MilliValue()
		want.Memory -= memory.Value()
	}
	if want.CPU != 0 || want.Memory != 0 {
		return fmt.Errorf("the roll-up is %v less than the requests", want)
	}
	return nil
}

// B7, OP-18: a cold build of 25,000 requests until the bytes of the roll-up are there.
func BenchmarkB7(b *testing.B) {
	for name, w := range map[string]*workload.Requests{
		"plain": workload.NewRequests(requestsB7, seedB7), "gangs": workload.NewGangRequests(requestsB7, seedB7),
	} {
		b.Run(name, func(b *testing.B) {
			list := fleet(b, w)
			message := &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: cold(list).Needs()}
			var wire []byte
			live := float64(measure.Live(func() any { return cold(list) })) / requestsB7
			size := map[string]any{"requests": requestsB7, "profiles": len(w.Profiles), "rows": len(message.Needs), "wire_bytes": proto.Size(message)}
			measure.Compare(b, measure.Pair{
				Bench: "B7/cold", Size: size, Seed: seedB7, WorkloadSum: w.Sum(),
				Floor: measure.Sum(measure.Repeat(hashesPerCold, probe.Hash(requestsB7, seedB7)), probe.Marshal(message)),
				Subject: func() {
					wire, _ = proto.Marshal(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: cold(list).Needs()})
				},
				Check: func() error { return addsUp(w, wire) }, Oracle: "sums", Target: targetB7,
				Bounds: func(ns float64) []measure.Bound {
					bounds := []measure.Bound{measure.Shown("live bytes per request", "B", live)}
					if name == "plain" { // OP-18 speaks of demand that aggregates
						bounds = append(bounds, measure.AtMost("time per request", "ns", ns/requestsB7, coldMaxNS),
							measure.AtMost("bytes on the wire for 8 rows", "B", 8*float64(proto.Size(message))/float64(len(message.Needs)), wireBytesMax))
					}
					return bounds
				},
			})
			b.ReportMetric(float64(size["wire_bytes"].(int)), "wire-B")
			b.ReportMetric(live, "live-B/request")
		})
	}
}

// B7, OP-18: one request of 25,000 changes its row; until all rows are ready. The floor hashes what changed.
func BenchmarkB7Change(b *testing.B) {
	w := workload.NewRequests(requestsB7, seedB7)
	list := fleet(b, w)
	a := cold(list)
	i := 0
	const changes = 100
	measure.Compare(b, measure.Pair{
		Bench: "B7/change", Size: map[string]any{"requests": requestsB7, "changes": changes}, Seed: seedB7, WorkloadSum: w.Sum(),
		Floor: probe.Hash(changes, seedB7),
		Subject: func() {
			for range changes { // each request takes the spec of its neighbour
				r := list[i%len(list)]
				next := *r
				next.Spec = list[(i+1)%len(list)].Spec
				a.Set(&next)
				a.Needs()
				i++
			}
		},
		Check: func() error {
			if fresh, equal := a.Rebuild(a.Requests()); !equal || fresh.Len() != len(list) {
				return errors.New("the rows differ from a rebuild")
			}
			return nil
		},
		Oracle: "rebuild",
		Bounds: func(ns float64) []measure.Bound {
			return []measure.Bound{measure.AtMost("time of one change until the rows are ready", "ns", ns/changes, changeMaxNS)}
		},
	})
}

// OP-18: the bounds that hold on every machine: bytes on the wire, and allocations.
func TestRollupIsSmall(t *testing.T) {
	w := workload.NewRequests(requestsB7, seedB7)
	list := fleet(t, w)
	a := cold(list)
	needs := a.Needs()
	if most := len(w.Profiles) * min(len(w.Shapes), shapesMax); len(needs) > most {
		t.Errorf("%d rows for %d profiles in %d sizes; want at most %d", len(needs), len(w.Profiles), len(w.Shapes), most)
	}
	if size := proto.Size(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: needs}); size > len(needs)*wireBytesMax/8 {
		t.Errorf("%d requests are %d bytes on the wire in %d rows; want at most %d for 8 rows", len(list), size, len(needs), wireBytesMax)
	}
	if allocs := testing.AllocsPerRun(3, func() { runtime.KeepAlive(cold(list)) }); allocs > 2*requestsB7 {
		t.Errorf("%v allocations for %d requests; want at most two each", allocs, requestsB7)
	}
}

// OP-18: 25,000 requests without anything in common.
func BenchmarkDistinct(b *testing.B) {
	var list []*request.Request
	for i := range requestsB7 {
		list = append(list, req(b, fmt.Sprintf("team-%d/web-%05d", i%20, i), fmt.Sprintf(`{"resources":{"cpu":"500m","memory":"1Gi"},"priority":%d}`, i)))
	}
	var size int
	for b.Loop() {
		size = proto.Size(&pb.ClusterCapacityNeeds{Needs: cold(list).Needs()})
	}
	b.ReportMetric(float64(size), "wire-bytes")
}

package aggregate

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

func fleet(b *testing.B, n, profiles int) []*request.Request {
	out := make([]*request.Request, n)
	for i := range out {
		out[i] = req(b, fmt.Sprintf("team-%d/web-%d-5d8f9c7b6-%05d-1f2e3d4c5b", i%20, i%97, i), fmt.Sprintf(
			`{"resources":{"cpu":"500m","memory":"%dMi"},"priority":%d,"requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists"},{"key":"topology.kubernetes.io/zone","operator":"In","values":["eu-1a","eu-1b"]}]}`,
			256*(1+i%3), i%profiles))
	}
	return out
}

// OP-18: a cold build of 25,000 requests, rows included: at most 250 ns and two allocations a request.
func BenchmarkColdBuild(b *testing.B) {
	list := fleet(b, 25_000, 8)
	b.ReportAllocs()
	for b.Loop() {
		a := New(len(list))
		for _, r := range list {
			a.Set(r)
		}
		if len(a.Needs()) != 8 {
			b.Fatal("rows")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/25_000, "ns/request")
}

// OP-18: one request changes in a cluster of 25,000: at most 20 µs until the rows are ready.
func BenchmarkWarmChange(b *testing.B) {
	a := New(0)
	for _, r := range fleet(b, 25_000, 8) {
		a.Set(r)
	}
	x := req(b, "team-0/x", `{"resources":{"cpu":"1"},"priority":1}`)
	y := req(b, "team-0/x", `{"resources":{"cpu":"2"},"priority":2}`)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if i++; i%2 == 0 {
			x, y = y, x
		}
		a.Set(x)
		a.Needs()
	}
}

func BenchmarkDistinct(b *testing.B) {
	var list []*request.Request
	for i := range 25_000 {
		list = append(list, req(b, fmt.Sprintf("team-%d/web-%05d", i%20, i), fmt.Sprintf(`{"resources":{"cpu":"500m","memory":"1Gi"},"priority":%d}`, i)))
	}
	var size int
	for b.Loop() {
		a := New(len(list))
		for _, r := range list {
			a.Set(r)
		}
		m, _ := proto.Marshal(&pb.ClusterCapacityNeeds{Needs: a.Needs()})
		size = len(m)
	}
	b.ReportMetric(float64(size), "wire-bytes")
}

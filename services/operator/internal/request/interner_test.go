package request

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"
)

func stripped(t *testing.T, s *SpecInterner, name, spec string) *Request {
	t.Helper()
	r := &Request{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":%s}`, name, spec), r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Strip(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// OP-18: requests that are written alike share one spec, and the interner keeps none that nothing uses.
func TestEqualTextsShareOneSpec(t *testing.T) {
	var s SpecInterner
	const web, batch = `{"resources":{"cpu":"1"}}`, `{"resources":{"cpu":"2"}}`
	a, b, c := stripped(t, &s, "a", web), stripped(t, &s, "b", web), stripped(t, &s, "c", batch)
	if a.Spec != b.Spec || a.Spec == c.Spec || s.Len() != 2 {
		t.Fatalf("the specs of a, b, c are %p %p %p, %d in the interner; want two", a.Spec, b.Spec, c.Spec, s.Len())
	}
	if got := c.Spec.Resources[0].Milli; got != 2000 {
		t.Errorf("c asks for %d, want 2000", got)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	for start := time.Now(); s.Len() > 0; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(start) > 30*time.Second {
			t.Fatalf("%d specs are still in the interner although no request has them", s.Len())
		}
	}
}

// An object from before the schema demanded a spec asks for nothing, and stops no other.
func TestNoSpecIsAnEmptyOne(t *testing.T) {
	var s SpecInterner
	r := &Request{}
	if _, err := s.Strip(r); err != nil || r.Spec == nil || len(r.Spec.Resources) != 0 {
		t.Errorf("got %+v, %v", r.Spec, err)
	}
}

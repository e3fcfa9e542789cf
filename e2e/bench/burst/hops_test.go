package burst

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// telling makes a program log each step of each object, with the time.
var telling = []string{"--log-level", "debug", "--log-format", "json"}

// heard is what the programs say of themselves: when each step was, by the object that it was for.
type heard struct {
	podSeen, requestCreated       map[string]time.Time // pod controller; by namespace/name of the Pod
	requestSeen                   map[string]time.Time // operator; by namespace/name of the request
	sent                          []time.Time          // operator: roll-ups, in order
	decided                       map[string]time.Time // shard; by machine
	created, configuring, written map[string]time.Time // provider; by machine
}

// line is what is read of a line of a log.
type line struct {
	Time                          time.Time
	Msg                           string
	Namespace, Pod, Name, Machine string
}

func hear(t *testing.T, ctx context.Context, s *fixture.Fixture, w *watches) *heard {
	t.Helper()
	h := &heard{podSeen: map[string]time.Time{}, requestCreated: map[string]time.Time{}, requestSeen: map[string]time.Time{},
		decided: map[string]time.Time{}, created: map[string]time.Time{}, configuring: map[string]time.Time{}, written: map[string]time.Time{}}
	for _, p := range []*proc.Process{s.Clusters[0].PodController, s.Clusters[0].Operator, s.Provider} {
		file, err := os.Open(p.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var l line
			if json.Unmarshal(lines.Bytes(), &l) == nil {
				h.take(l)
			}
		}
		_ = file.Close()
	}
	w.mu.Lock()
	begin := w.begin(userSpace)
	w.mu.Unlock()
	for page := ""; ; {
		got, err := s.ShardRead().GetMachineHistory(ctx, connect.NewRequest(&bigfleetv1alpha1.GetMachineHistoryRequest{
			SinceUnixNanos: begin.UnixNano(), PageSize: 5000, PageToken: page,
		}))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Msg.GetRecords() {
			h.record(r)
		}
		if page = got.Msg.GetNextPageToken(); page == "" {
			return h
		}
	}
}

func (h *heard) take(l line) {
	into, key := map[string]time.Time(nil), ""
	switch l.Msg {
	case "a Pod is seen":
		into, key = h.podSeen, l.Namespace+"/"+l.Pod
	case "a CapacityRequest is created":
		into, key = h.requestCreated, l.Namespace+"/"+l.Pod
	case "a request is seen":
		into, key = h.requestSeen, l.Namespace+"/"+l.Name
	case "a roll-up is sent":
		h.sent = append(h.sent, l.Time)
		return
	case "a machine is being created":
		into, key = h.created, l.Machine
	case "a machine is being configured":
		into, key = h.configuring, l.Machine
	case "a node is written":
		into, key = h.written, l.Machine
	default:
		return
	}
	note(into, key, l.Time)
}

// record takes a record of the shard's decision log.
func (h *heard) record(r *bigfleetv1alpha1.DecisionRecord) {
	at := time.Unix(0, r.GetAtUnixNanos())
	if r.GetMachineId() == "" {
		return
	}
	if r.GetType() == bigfleetv1alpha1.RecordType_RECORD_TYPE_STARTED {
		note(h.decided, r.GetMachineId(), at)
	}
}

func note(into map[string]time.Time, key string, at time.Time) {
	if old, known := into[key]; !known || at.Before(old) {
		into[key] = at
	}
}

// rollup is when the first roll-up was sent that holds a request which the operator saw at a time.
func (h *heard) rollup(seen time.Time) time.Time {
	i, _ := slices.BinarySearchFunc(h.sent, seen, time.Time.Compare)
	if seen.IsZero() || i == len(h.sent) {
		return time.Time{}
	}
	return h.sent[i]
}

// explain logs where the time goes: from the Pod created to each step, and from the step before.
func (w *watches) explain(t *testing.T, namespace string, h *heard) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	begin := w.begin(namespace)
	t.Logf("%s: first Pod created until each is (API server): %s", namespace, w.since(namespace, begin, func(p *pod) time.Time { return p.created }))
	type step struct {
		what string
		end  func(*pod) time.Time
	}
	var steps []step
	if h != nil {
		machine := func(of map[string]time.Time) func(*pod) time.Time {
			return func(p *pod) time.Time { return of[w.machineOf[p.node]] }
		}
		key := func(p *pod) string { return p.namespace + "/" + p.name }
		steps = []step{
			{"the pod controller sees it", func(p *pod) time.Time { return h.podSeen[key(p)] }},
			{"its CapacityRequest is written (pod controller, API server)", func(p *pod) time.Time { return h.requestCreated[key(p)] }},
			{"the operator sees the request", func(p *pod) time.Time { return h.requestSeen[p.namespace+"/"+p.requestName] }},
			{"the roll-up with it is sent (debounce 250 ms, spacing 1 s)", func(p *pod) time.Time { return h.rollup(h.requestSeen[p.namespace+"/"+p.requestName]) }},
			{"the shard decides on its machine", machine(h.decided)},
			{"the provider creates it", machine(h.created)},
			{"the provider configures it (looked at each 50 ms, boot data)", machine(h.configuring)},
			{"the Node is written (provider, API server)", machine(h.written)},
		}
	}
	steps = append(steps,
		step{"its Node is seen", func(p *pod) time.Time { return w.made[p.node] }},
		step{"its Node is Ready (kwok)", func(p *pod) time.Time { return w.ready[p.node] }},
		step{"it is bound (scheduler)", func(p *pod) time.Time { return p.bound }},
		step{"it runs (kwok)", func(p *pod) time.Time { return p.running }})
	before := func(p *pod) time.Time { return p.created }
	for _, s := range steps {
		hop := w.spans(namespace, before, s.end)
		t.Logf("Pod created until %-62s p50 %5.2f s, p99 %5.2f s; from the step before: p50 %5.2f s, p99 %5.2f s", s.what+":",
			w.since(namespace, time.Time{}, s.end).At(0.5).Seconds(), w.since(namespace, time.Time{}, s.end).At(0.99).Seconds(), hop.At(0.5).Seconds(), hop.At(0.99).Seconds())
		before = s.end
	}
	if h == nil {
		return
	}
	t.Logf("beside the way: UpcomingNode shown %s", w.since(namespace, time.Time{}, func(p *pod) time.Time { return w.upcoming[w.machineOf[p.node]] }))
	t.Logf("beside the way: request acknowledged %s", w.since(namespace, time.Time{}, func(p *pod) time.Time { return w.acked[p.namespace+"/"+p.name] }))
	var since []time.Duration
	for _, at := range h.sent {
		if at.After(begin) {
			since = append(since, at.Sub(begin).Round(time.Millisecond))
		}
	}
	t.Logf("beside the way: roll-ups sent after %v", since)
}

// begin is when the first Pod was seen. The caller holds the lock.
func (w *watches) begin(namespace string) (begin time.Time) {
	for _, p := range w.pods {
		if p.namespace == namespace && !p.created.IsZero() && (begin.IsZero() || p.created.Before(begin)) {
			begin = p.created
		}
	}
	return begin
}

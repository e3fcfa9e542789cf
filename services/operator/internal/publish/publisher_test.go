package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a session that keeps what it is given.
type line struct {
	mu       sync.Mutex
	features []string
	sent     []*pb.ClusterCapacityNeeds
	at       []time.Duration
	start    time.Time
}

func (l *line) Rollup(n *pb.ClusterCapacityNeeds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.at = append(l.sent, n), append(l.at, time.Since(l.start))
}

func (l *line) Has(f string) bool { return slices.Contains(l.features, f) }

func (l *line) times() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at)
}

func (l *line) last() *pb.ClusterCapacityNeeds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[len(l.sent)-1]
}

type bench struct {
	*Publisher
	mu       sync.Mutex
	acked    []string
	outcomes []Outcome
}

func newBench(t *testing.T, more ...func(*Config)) *bench {
	t.Helper()
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{
		CacheAge: func() float64 { return 0 }, AcceptedAge: func() float64 { return 0 }, EvictionsStopped: func() bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	c := Config{ClusterID: "red", Instruments: i, Log: slog.New(slog.DiscardHandler),
		Acknowledge: func(keys []aggregate.Key) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, k := range keys {
				b.acked = append(b.acked, k.Name)
			}
			slices.Sort(b.acked)
		},
		OnOutcome: func(o Outcome) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.outcomes = append(b.outcomes, o)
		},
	}
	for _, f := range more {
		f(&c)
	}
	if b.Publisher, err = New(c); err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Run(t.Context()) }()
	return b
}

func (b *bench) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked)
}

func (b *bench) open(features ...string) *line {
	l := &line{features: features, start: time.Now()}
	b.Opened(l)
	return l
}

func req(name, cpu string) *request.Request {
	r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"resources":{"cpu":%q},"priority":0}`, cpu), &r.Spec); err != nil {
		panic(err)
	}
	return r
}

// OP-5.1, scenario 10: at once when a session opens, then with the heartbeat.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open()
		time.Sleep(35 * time.Second)
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}
		if got := l.times(); !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
	})
}

// OP-5.1, scenario 10: 250 ms after the first change; a burst of changes is told each 250 ms from what quiet time saved, and
// a steady stream of changes once a second, which starves nothing.
func TestDebounceAndSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open()
		time.Sleep(25 * time.Second)
		quiet := len(l.times())
		const seconds = 30
		for i := range 100 * seconds {
			b.Set(req("a", fmt.Sprint(i+1)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		got := l.times()[quiet:]
		if len(got) < seconds || len(got) > seconds+saved+2 {
			t.Errorf("%d roll-ups in %d s of changes: %v", len(got), seconds, got)
		}
		if got[0] != 25*time.Second+debounceDefault {
			t.Errorf("the first change was sent at %v, want after %v", got[0], debounceDefault)
		}
		for i, at := range got[1:] {
			gap := at - got[i]
			if gap < debounceDefault || gap > spacing || i < saved-1 && gap > 2*debounceDefault || i > 2*saved && gap != spacing {
				t.Errorf("roll-up %d came %v after the one before", i+1, gap)
			}
		}
		if got := l.last().Needs[0].AggregateResources["cpu"]; got != fmt.Sprint(100*seconds) {
			t.Errorf("the last roll-up says %s, want %d", got, 100*seconds)
		}
	})
}

// An update that does not alter the aggregate is no change.
func TestEqualDemandIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		l := b.open()
		time.Sleep(2 * time.Second)
		b.Set(req("a", "1000m"))
		time.Sleep(5 * time.Second)
		if got := l.times(); len(got) != 1 {
			t.Errorf("sent at %v", got)
		}
	})
}

// OP-1.3, OP-5.3, scenario 11: nothing is sent before the cache was complete.
func TestNothingBeforeTheCacheIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.open()
		b.Set(req("a", "1"))
		time.Sleep(time.Hour)
		if got := l.times(); len(got) != 0 {
			t.Fatalf("sent at %v", got)
		}
		b.Synced()
		time.Sleep(time.Second)
		if got := l.times(); len(got) != 1 {
			t.Errorf("sent at %v after the cache was complete, want once", got)
		}
	})
}

// OP-5.4: timestamps strictly grow.
func TestTimestampsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		last := int64(0)
		for range 5 {
			l := b.open()
			synctest.Wait() // no time passes
			if s := l.last().TimestampUnixNanos; s <= last {
				t.Fatalf("timestamp %d after %d", s, last)
			} else {
				last = s
			}
		}
	})
}

// OP-5.5, scenario 19: above the hard limit nothing is sent and the shard keeps what it has.
func TestTooLargeIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open()
		synctest.Wait()
		values := make([]string, 4000)
		for i := range values {
			values[i] = fmt.Sprintf("%0250d", i)
		}
		for i := range 20 { // a megabyte each
			r := req(fmt.Sprint(i), "1")
			spec := fmt.Appendf(nil, `{"resources":{"cpu":"1"},"priority":%d,"requirements":[{"key":"k","operator":"In","values":["%s"]}]}`, i, strings.Join(values, `","`))
			if err := json.Unmarshal(spec, &r.Spec); err != nil {
				t.Fatal(err)
			}
			b.Set(r)
		}
		time.Sleep(2 * time.Second)
		if n := len(l.last().Needs); n != 0 {
			t.Errorf("a roll-up with %d rows was sent", n)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.outcomes); n == 0 || b.outcomes[n-1].Result != "too_large" {
			t.Errorf("outcomes %v", b.outcomes)
		}
	})
}

// OP-6.1: a shard without the extension has what was handed to it.
func TestAcknowledgeWithoutExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open()
		time.Sleep(time.Minute)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v before the shard answered Hello", got)
		}
		b.Greeted()
		b.Set(req("b", "1"))
		time.Sleep(2 * time.Second)
		b.Set(req("b", "1")) // seen again, still Pending: one patch for life
		time.Sleep(30 * time.Second)
		if got := b.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

func answer(l *line, d pb.RollupDisposition) *pb.Acknowledgement {
	return &pb.Acknowledgement{Echo: "rollup", Rollup: &pb.RollupResult{Disposition: d, TimestampUnixNanos: l.last().TimestampUnixNanos, Reason: "guard"}}
}

// OP-6.2, scenario 22: with the extension a request is acknowledged when a roll-up that holds it was accepted.
func TestAcknowledgeWithExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		l := b.open(FeatureAck)
		synctest.Wait()
		b.Greeted()
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED))
		time.Sleep(time.Second)
		b.Set(req("b", "1"))
		time.Sleep(3 * time.Second)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v, although the shard refused", got)
		}
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED))
		if got := b.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// OP-6.2: a shard that named the extension and then says nothing at all for two heartbeats.
func TestAcknowledgeWhenTheShardIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open(FeatureAck)
		b.Greeted()
		time.Sleep(19 * time.Second)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v too early", got)
		}
		time.Sleep(5 * time.Second)
		if got := b.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// A session that is lost before the answer: the request is in the next session's roll-ups, and its answer counts.
func TestAcknowledgeAcrossSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open(FeatureAck)
		synctest.Wait()
		b.Closed()
		time.Sleep(time.Minute)
		l := b.open(FeatureAck)
		synctest.Wait()
		b.Greeted()
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_UNCHANGED))
		if got := b.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// OP-5.6: what the shard says of a roll-up, with the extension, by echo alone, and unknown.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open(FeatureAck)
		synctest.Wait()
		for _, a := range []*pb.Acknowledgement{
			answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_HELD), answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED), answer(l, 99),
			{Echo: "rollup-rejected: same"}, {Echo: "rollup-held"}, {Echo: "rollup"}, {Echo: "something-new"}, {Echo: "node-state-resync-complete"},
		} {
			b.Answered(a)
		}
		var got []string
		for _, o := range b.outcomes {
			got = append(got, o.Result)
		}
		if want := []string{"held", "accepted", "unknown", "rejected", "held", "accepted"}; !slices.Equal(got, want) {
			t.Errorf("outcomes %v, want %v", got, want)
		}
	})
}

// OP-5.20: the overhead goes with the demand, and a change of it is a change of demand.
func TestOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		overhead := map[string]string{"cpu": "100m"}
		b := newBench(t, func(c *Config) {
			c.Overhead = func() map[string]string {
				mu.Lock()
				defer mu.Unlock()
				return overhead
			}
		})
		b.Synced()
		l := b.open()
		time.Sleep(2 * time.Second)
		mu.Lock()
		overhead = map[string]string{"cpu": "200m"}
		mu.Unlock()
		b.Touch()
		time.Sleep(2 * time.Second)
		if got := l.times(); len(got) != 2 || l.last().NodeOverhead["cpu"] != "200m" {
			t.Errorf("sent at %v, the last with %v", got, l.last().NodeOverhead)
		}
	})
}

// Who hears what became of a roll-up may read the demand, or wait for somebody who does: nobody is told under the lock.
func TestOutcomesAreToldWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		heard := 0
		b.OnOutcome = func(Outcome) { b.Read(func(*aggregate.Aggregate) { heard++ }) }
		b.Synced()
		l := b.open()
		b.Set(req("a", "1"))
		time.Sleep(time.Second)
		b.Answered(&pb.Acknowledgement{Echo: "rollup", Rollup: &pb.RollupResult{TimestampUnixNanos: l.last().TimestampUnixNanos, Disposition: pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED}})
		if heard != 1 {
			t.Errorf("told %d times", heard)
		}
	})
}

// OP-11.7: machines out of service and the demand of the Pods on them change in one roll-up, for shards that know the feature.
func TestOutOfServiceIsOneFrame(t *testing.T) {
	for _, knows := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			out := false
			b := newBench(t, func(c *Config) {
				c.OutOfService = func() ([]*pb.MachineOutOfService, []types.UID) {
					mu.Lock()
					defer mu.Unlock()
					if !out {
						return nil, nil
					}
					return []*pb.MachineOutOfService{{MachineId: "m1", Pods: 1}}, []types.UID{"u1", "unknown"}
				}
			})
			for i := range 2 {
				r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("p", i),
					OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: types.UID(fmt.Sprint("u", i)), Controller: new(true)}}}}
				if err := json.Unmarshal([]byte(`{"resources":{"cpu":"1"}}`), &r.Spec); err != nil {
					t.Fatal(err)
				}
				b.Set(r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = b.Run(ctx) }()
			defer func() { cancel(); <-done }()
			l := &line{start: time.Now()}
			if knows {
				l.features = []string{"out-of-service"}
			}
			b.Synced()
			b.Opened(l)
			b.Greeted()
			set := func(on bool) *pb.ClusterCapacityNeeds {
				mu.Lock()
				out = on
				mu.Unlock()
				b.Touch()
				time.Sleep(3 * time.Second)
				return l.last()
			}
			if n := set(true); knows != (len(n.OutOfService) == 1 && n.Needs[0].AggregateResources["cpu"] == "1") ||
				!knows && (len(n.OutOfService) != 0 || n.Needs[0].AggregateResources["cpu"] != "2") {
				t.Errorf("the shard knows it: %v; sent %v", knows, n)
			}
			if n := set(false); len(n.OutOfService) != 0 || n.Needs[0].AggregateResources["cpu"] != "2" {
				t.Errorf("back in service: %v", n)
			}
		})
	}
}

// OP-5.23: demand neither dips nor doubles while a controller replaces Pods, and what is not replaced goes in time.
func TestDemandIsHeldForReplacements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := map[types.UID]*pods.Pod{}
		var mu sync.Mutex
		b := newBench(t, func(c *Config) {
			c.Pod = func(uid types.UID) *pods.Pod { mu.Lock(); defer mu.Unlock(); return known[uid] }
		})
		set := func(name, owner, hash string, change ...func(*corev1.Pod)) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()}}
			if kind, of, ok := strings.Cut(owner, "/"); ok {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of, Controller: new(true)}}
			}
			if hash != "" {
				p.Labels = map[string]string{"pod-template-hash": hash}
			}
			if old := known[p.UID]; old != nil {
				p.CreationTimestamp = old.CreationTimestamp
			}
			for _, f := range change {
				f(p)
			}
			mu.Lock()
			known[p.UID] = pods.Of(p)
			mu.Unlock()
		}
		ask := func(name string) {
			r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.Now(),
				OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}}}}
			if err := json.Unmarshal([]byte(`{"resources":{"cpu":"1"}}`), &r.Spec); err != nil {
				t.Fatal(err)
			}
			b.Set(r)
		}
		deleted := func(grace int64) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.DeletionGracePeriodSeconds = new(grace)
				p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)))
			}
		}
		named := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }
		finished := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
		withdraw := func(name string) { b.Delete(aggregate.Key{Namespace: "a", Name: name}) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = b.Run(ctx) }()
		defer func() { cancel(); <-done }()
		l := &line{start: time.Now()}
		b.Synced()
		b.Opened(l)
		cpu := func() string {
			time.Sleep(20 * time.Second)
			if n := l.last().Needs; len(n) > 0 {
				return n[0].AggregateResources["cpu"]
			}
			return "0"
		}
		expect := func(when, want string) {
			t.Helper()
			if got := cpu(); got != want {
				t.Errorf("%s: %s cpu are asked for, want %s", when, got, want)
			}
		}
		for _, n := range []string{"web-0", "web-1"} {
			set(n, "StatefulSet/web", "")
			ask(n)
		}
		time.Sleep(time.Minute)
		expect("at rest", "2")
		set("web-0", "StatefulSet/web", "", deleted(30))
		withdraw("web-0")
		expect("while it terminates", "2")
		set("web-0-again", "StatefulSet/web", "", named("web-0"))
		ask("web-0-again")
		expect("replaced", "2")
		for _, n := range l.sent {
			if len(n.Needs) > 0 && n.Needs[0].AggregateResources["cpu"] > "2" {
				t.Fatalf("demand doubled: %v", n)
			}
		}
		// Scaled down: nobody comes.
		set("web-1", "StatefulSet/web", "", deleted(30))
		withdraw("web-1")
		time.Sleep(3 * time.Minute)
		expect("held for its grace and three minutes", "2")
		time.Sleep(20 * time.Second)
		expect("then no longer", "1")
		// A rollout of a Deployment: the new ReplicaSet's Pod is there before the request of the old one goes.
		set("d-1", "ReplicaSet/d-aaa", "aaa")
		ask("d-1")
		expect("a Deployment", "2")
		set("d-1", "ReplicaSet/d-aaa", "aaa", deleted(0))
		set("d-2", "ReplicaSet/d-bbb", "bbb")
		ask("d-2")
		withdraw("d-1")
		expect("rolled out", "2")
		// The watch of requests is ahead of that of Pods.
		set("w-0", "StatefulSet/w", "")
		ask("w-0")
		withdraw("w-0")
		set("w-0", "StatefulSet/w", "", deleted(30))
		expect("deleted, and known late", "3")
		set("w-0-again", "StatefulSet/w", "", named("w-0"))
		ask("w-0-again")
		withdraw("w-0-again")
		expect("and replaced", "2")
		// A StatefulSet that is rolled in the second in which it was made: no replica stands for another.
		for _, n := range []string{"db-0", "db-1"} {
			set(n, "StatefulSet/db", "")
			ask(n)
		}
		set("db-1", "StatefulSet/db", "", deleted(0))
		withdraw("db-1")
		expect("young replicas", "4")
		set("db-1-again", "StatefulSet/db", "", named("db-1"))
		ask("db-1-again")
		expect("and rolled", "4")
		for _, n := range []string{"db-0", "db-1-again"} {
			withdraw(n)
		}
		time.Sleep(10 * time.Second)
		// What is done, bare or withdrawn is not held; a failed Job is.
		set("done", "Job/j", "")
		ask("done")
		set("done", "Job/j", "", finished(corev1.PodSucceeded))
		withdraw("done")
		set("bare", "", "")
		ask("bare")
		set("bare", "", "", deleted(30))
		withdraw("bare")
		set("ignored", "StatefulSet/x", "")
		ask("ignored")
		withdraw("ignored")
		expect("nothing is held", "2")
		set("failed", "Job/k", "")
		ask("failed")
		set("failed", "Job/k", "", finished(corev1.PodFailed))
		withdraw("failed")
		expect("a Job tries again", "3")
		time.Sleep(4 * time.Minute)
		expect("or not", "2")
		if n := len(b.holds.until) + len(b.holds.workloads); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a session that keeps what it is given.
type line struct {
	mu       sync.Mutex
	features []string
	largest  int64
	sent     []*pb.ClusterCapacityNeeds
	at       []time.Duration
	start    time.Time
}

func (l *line) Rollup(n *pb.ClusterCapacityNeeds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.at = append(l.sent, n), append(l.at, time.Since(l.start))
}

func (l *line) RollupBytesMax() int64 { return l.largest }

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

// OP-5.1, scenario 10: 250 ms after the first change; a burst of changes is sent each 250 ms from what quiet time saved, and
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

// An update that does not alter the aggregate is not a change.
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

// OP-5.5, scenario 19: above the hard limit, which the shard states, nothing is sent and the shard keeps what it has. Below it large
// roll-ups are sent, and slow down.
func TestTooLargeIsNotSent(t *testing.T) {
	t.Run("a shard that states no limit", func(t *testing.T) { largeDemand(t, 0, false) })
	t.Run("a shard that takes less", func(t *testing.T) { largeDemand(t, 8<<20, false) })
	t.Run("a shard that takes more", func(t *testing.T) { largeDemand(t, 64<<20, true) })
}

func largeDemand(t *testing.T, stated int64, goes bool) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open()
		l.mu.Lock()
		l.largest = stated
		l.mu.Unlock()
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
		if n := len(l.last().Needs); (n != 0) != goes {
			t.Errorf("the last roll-up has %d rows", n)
		}
		if goes {
			before := len(l.times())
			b.Set(req("one more", "1"))
			time.Sleep(time.Second)
			b.Set(req("and one", "1"))
			time.Sleep(time.Second)
			if n := len(l.times()) - before; n > 1 {
				t.Errorf("%d more roll-ups of 20 MiB within two seconds", n)
			}
			time.Sleep(10 * time.Second)
			if n := len(l.last().Needs); n != 21 {
				t.Errorf("%d rows in the end", n)
			}
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.outcomes); n == 0 || b.outcomes[n-1].Result != "too_large" {
			t.Errorf("outcomes %v", b.outcomes)
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

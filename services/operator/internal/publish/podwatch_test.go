package publish

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// history is what the two watches of a cluster show while a Deployment replaces its Pods: each in its own order.
type history struct {
	b       *bench
	store   *pods.Store
	version int
	pods    []func()
	asks    []ask
}

// ask is a change of a request.
type ask struct {
	pod string
	do  func()
}

func newHistory(t *testing.T) *history {
	h := &history{}
	h.store = pods.New(nil, nil, func(old, now *pods.Pod) { h.b.PodChanged(old, now) })
	h.b = newBench(t, func(c *Config) { c.Pod, c.Order = h.store.Get, h.store.Order })
	h.b.Synced()
	return h
}

func (h *history) podOf(name string, change func(*corev1.Pod)) *pods.Pod {
	h.version++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now(), ResourceVersion: strconv.Itoa(h.version),
		Labels: map[string]string{"pod-template-hash": "x"}, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-x", Controller: new(true)}}}}
	if change != nil {
		change(p)
	}
	return pods.Of(p)
}

func (h *history) pod(f func()) { h.pods = append(h.pods, f) }

// shuffle lets several workers write the requests: those of one Pod in their order, others in any.
func (h *history) shuffle(r *rand.Rand) {
	for range 3 * len(h.asks) {
		if i := r.IntN(len(h.asks) - 1); h.asks[i].pod != h.asks[i+1].pod {
			h.asks[i], h.asks[i+1] = h.asks[i+1], h.asks[i]
		}
	}
}

func (h *history) created(name string) {
	p := h.podOf(name, nil)
	h.pod(func() { h.store.Set(p) })
	h.asks = append(h.asks, ask{name, func() {
		r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.Now(),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}}}}
		if err := json.Unmarshal([]byte(`{"resources":{"cpu":"1"}}`), &r.Spec); err != nil {
			panic(err)
		}
		h.b.Set(r)
	}})
}

// ended deletes a Pod, at once or with a grace, and its request.
func (h *history) ended(name string, atOnce bool) {
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(30*time.Second))), new(int64(30))
	}
	if !atOnce {
		p := h.podOf(name, deleted)
		h.pod(func() { h.store.Set(p) })
	}
	gone := h.podOf(name, nil)
	h.pod(func() { h.store.Delete(gone) })
	h.asks = append(h.asks, ask{name, func() { h.b.Delete(aggregate.Key{Namespace: "a", Name: name}) }})
}

// asked is how many Pods' demand is counted.
func (h *history) asked() (n int64) {
	h.b.Read(func(a *aggregate.Aggregate) {
		for _, need := range a.Needs() {
			cpu, _ := strconv.ParseInt(need.AggregateResources["cpu"], 10, 64)
			n += cpu
		}
	})
	return n
}

// OP-5.23: whatever the watches of Pods and of requests are behind each other, and although all of it happens in one second, demand neither
// dips nor doubles while a Deployment replaces its Pods.
func TestWatchesThatAreNotInStep(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			const replicas = 4
			r, h := rand.New(rand.NewPCG(seed, 2)), newHistory(t)
			var alive []string
			for i := range replicas {
				alive = append(alive, fmt.Sprint("p", i))
				h.created(alive[i])
			}
			for i := range replicas {
				h.pods[i]()
				h.asks[i].do()
			}
			h.pods, h.asks = nil, nil
			time.Sleep(time.Hour) // none of them is a replacement
			for i := range 2 + r.IntN(8) {
				k := r.IntN(replicas)
				h.ended(alive[k], r.IntN(3) == 0)
				alive[k] = fmt.Sprint("q", i)
				h.created(alive[k])
			}
			h.shuffle(r)
			ahead := r.IntN(10)
			for done := 0; len(h.pods)+len(h.asks) > 0; {
				if len(h.asks) == 0 || len(h.pods) > 0 && r.IntN(10) < ahead {
					h.pods[0]()
					h.pods = h.pods[1:]
					done++
				} else {
					h.asks[0].do()
					h.asks = h.asks[1:]
				}
				if n := h.asked(); n != replicas {
					t.Fatalf("seed %d: %d Pods are asked for after %d changes of Pods, with %d of requests to come", seed, n, done, len(h.asks))
				}
			}
			time.Sleep(10 * time.Minute)
			h.b.Publisher.mu.Lock()
			defer h.b.Publisher.mu.Unlock()
			if n := len(h.b.unclear) + len(h.b.over) + len(h.b.holds.until); n != 0 || len(h.b.byPod) != replicas {
				t.Errorf("seed %d: %d entries are left, and %d Pods are known", seed, n, len(h.b.byPod))
			}
		})
	}
}

package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
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

// OP-5.23: demand neither dips nor doubles while a controller replaces Pods, and what is not replaced goes in time.
func TestDemandIsHeldForReplacements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := map[types.UID]*pods.Pod{}
		var mu sync.Mutex
		var b *bench
		store := pods.New(nil, nil, func(old, now *pods.Pod) { b.PodChanged(old, now) })
		changes := 0
		b = newBench(t, func(c *Config) {
			c.Pod = func(uid types.UID) *pods.Pod { mu.Lock(); defer mu.Unlock(); return known[uid] }
			c.Order = store.Order
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
			changes++
			p.ResourceVersion = strconv.Itoa(changes)
			mu.Lock()
			known[p.UID] = pods.Of(p)
			mu.Unlock()
			store.Set(pods.Of(p))
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
		// Scaled down: no request comes.
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
		// A Deployment whose Pods are drained in the second in which they were made: none of them stands for another.
		for _, n := range []string{"y-1", "y-2", "y-3"} {
			set(n, "ReplicaSet/y-aaa", "aaa")
			ask(n)
		}
		set("y-1", "ReplicaSet/y-aaa", "aaa", deleted(0))
		set("y-2", "ReplicaSet/y-aaa", "aaa", deleted(0))
		withdraw("y-1")
		withdraw("y-2")
		expect("young Pods of a Deployment", "5")
		for _, n := range []string{"y-4", "y-5"} {
			set(n, "ReplicaSet/y-aaa", "aaa")
			ask(n)
		}
		expect("and replaced", "5")
		for _, n := range []string{"y-3", "y-4", "y-5"} {
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

// OP-5.23: in whatever order the requests of Pods come and go, as many demands are held as Pods are not replaced. Each Pod is created after one
// was deleted; some were created before others were deleted.
func TestReplacementsInAnyOrder(t *testing.T) {
	now := time.Now()
	const pods = 4
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var events []func(h *holds)
		ended := uint64(100)
		for i := range pods {
			ended += 1 + r.Uint64N(5)
			d := heldPod{uid: types.UID(fmt.Sprint("old", i)), key: aggregate.Key{Name: fmt.Sprint("old", i)}, deleted: now, ended: ended}
			n := newcomer{uid: types.UID(fmt.Sprint("new", i)), created: now, born: ended + r.Uint64N(8)}
			events = append(events, func(h *holds) { h.left("w", d, now.Add(time.Minute), now) }, func(h *holds) { h.arrived("w", n, nil, now) })
		}
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		h := newHolds()
		for _, f := range events {
			f(&h)
		}
		if w := h.workloads["w"]; len(h.until) != 0 || len(w.held) != 0 || len(w.newcomers) != 0 || len(w.replaced) != pods {
			t.Fatalf("seed %d: %d demands are held, %+v", seed, len(h.until), w)
		}
		h.expired(now.Add(time.Hour), func(heldPod) time.Time { return time.Time{} })
		if len(h.workloads) != 0 {
			t.Fatalf("%d workloads are remembered", len(h.workloads))
		}
	}
}

package publish

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// rollout is a Deployment whose Pods and requests the operator sees at once.
type rollout struct {
	*history
	pods map[string]*corev1.Pod // that are not gone
}

func newRollout(t *testing.T) *rollout {
	r := &rollout{newHistory(t), map[string]*corev1.Pod{}}
	r.b.Opened(&line{start: time.Now()})
	return r
}

func (r *rollout) show(p *corev1.Pod) {
	r.pods[p.Name] = p
	r.store.Set(r.podOf(p.Name, func(to *corev1.Pod) {
		version := to.ResourceVersion
		p.DeepCopyInto(to)
		to.ResourceVersion = version
	}))
}

// create adds a Pod of a template, and its request.
func (r *rollout) create(template, name string) {
	r.show(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now(),
		Labels:          map[string]string{"pod-template-hash": template},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-" + template, Controller: new(true)}}}})
	r.ask(name)
}

func (r *rollout) ask(name string) {
	q := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.Now(),
		OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}}}}
	if err := json.Unmarshal([]byte(`{"resources":{"cpu":"1"}}`), &q.Spec); err != nil {
		panic(err)
	}
	r.b.Set(q)
}

func (r *rollout) bind(name string) {
	p := r.pods[name].DeepCopy()
	p.Spec.NodeName = "n"
	r.show(p)
}

// remove deletes a Pod, which ends a while later.
func (r *rollout) remove(name string) {
	p := r.pods[name].DeepCopy()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(30*time.Second))), new(int64(30))
	r.show(p)
	r.b.Delete(aggregate.Key{Namespace: "a", Name: name})
}

func (r *rollout) gone(name string) {
	r.store.Delete(r.podOf(name, nil))
	delete(r.pods, name)
}

// old adds Pods of the first template that run for an hour.
func (r *rollout) old(n int) {
	for i := range n {
		r.create("old", fmt.Sprint("old", i))
		r.bind(fmt.Sprint("old", i))
	}
	time.Sleep(time.Hour)
}

func (r *rollout) expect(t *testing.T, when string, want int64) {
	t.Helper()
	synctest.Wait()
	if got := r.asked(); got != want {
		t.Errorf("%s: %d Pods are asked for, want %d", when, got, want)
	}
}

// OP-5.30: the Pods that a rollout creates before it deletes old ones wait for their places.
func TestExtraPodsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t)
		var mu sync.Mutex
		var heard []string
		r.b.OnProblem = func(key aggregate.Key) { mu.Lock(); defer mu.Unlock(); heard = append(heard, key.Name) }
		r.old(4)
		r.create("new", "new0")
		r.expect(t, "created before an old one is deleted", 4)
		r.remove("old0")
		r.expect(t, "it takes the place of the old one", 4)
		r.create("new", "new1")
		r.expect(t, "created while the old one ends", 4)
		time.Sleep(extraFor - 2*time.Second)
		r.expect(t, "still within its wait", 4)
		r.bind("new1")
		r.expect(t, "kube-scheduler preferred the one that waits", 4)
		r.remove("old1")
		r.expect(t, "and the other one has a place again", 4)
		time.Sleep(time.Minute)
		r.expect(t, "whatever time passes", 4)
		r.create("new", "new2")
		r.bind("new2")
		r.expect(t, "it found room that was there", 4)
		time.Sleep(extraFor - time.Second)
		r.expect(t, "and its place may still come", 4)
		time.Sleep(2 * time.Second)
		r.expect(t, "what runs counts after the wait", 5)
		r.create("new", "new3")
		time.Sleep(extraFor - time.Second)
		r.expect(t, "no place comes", 5)
		mu.Lock()
		heard = nil
		mu.Unlock()
		time.Sleep(2 * time.Second)
		r.expect(t, "it has waited long enough", 6)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(heard, []string{"new3"}) {
			t.Errorf("that %v count is heard", heard)
		}
	})
}

// OP-5.30: where no old Pod makes room, a Pod asks at once.
func TestPodsThatAreNotExtra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t)
		r.old(2)
		r.create("old", "more")
		r.expect(t, "a Deployment grows", 3)
		for _, name := range []string{"old0", "old1", "more"} {
			r.remove(name)
		}
		r.create("new", "new0")
		r.expect(t, "all old ones leave", 3)
		r.create("new", "new1")
		r.create("new", "new2")
		r.create("new", "new3")
		r.expect(t, "and more come than were", 4)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRollout(t)
		r.old(1)
		r.create("new", "new0")
		r.expect(t, "an extra Pod", 1)
		r.remove("new0")
		r.gone("new0")
		r.expect(t, "is deleted", 1)
		r.create("new", "new1")
		r.remove("old0")
		r.expect(t, "one takes the place of the last old one", 1)
		time.Sleep(time.Hour)
		r.expect(t, "and keeps it", 1)
	})
}

// OP-5.30: in random rollouts, with room for more Pods or without, nothing that is younger than the wait counts beyond what ran before, what ran
// before does, and everything older does.
func TestRolloutsAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			const replicas = 6
			rnd, r := rand.New(rand.NewPCG(seed, 3)), newRollout(t)
			r.old(replicas)
			slow, room := rnd.IntN(2) == 0, replicas+rnd.IntN(3)
			made, most := 0, int64(replicas)
			for step := 0; made < replicas || len(r.of("old", true)) > 0; step++ {
				bound, free := r.of("new", true), r.of("new", false)
				old := r.of("old", true)
				leaving := r.leaving()
				switch k := rnd.IntN(4); {
				case k == 0 && made < replicas && len(old)+len(bound)+len(free) < replicas+2:
					r.create("new", fmt.Sprint("new", made))
					made++
				case k == 1 && len(free) > 0 && len(old)+len(bound)+len(leaving) < room:
					r.bind(free[rnd.IntN(len(free))])
				case k == 2 && len(old) > 0 && len(old)+len(bound) > replicas-2:
					r.remove(old[rnd.IntN(len(old))])
				case k == 3 && len(leaving) > 0:
					r.gone(leaving[0])
				}
				if slow && rnd.IntN(4) == 0 {
					time.Sleep(extraFor)
					most = replicas + 2
				}
				synctest.Wait()
				if n := r.asked(); n < replicas || n > most {
					t.Fatalf("seed %d, step %d: %d Pods are asked for, at most %d", seed, step, n, most)
				}
			}
			for _, name := range r.of("new", false) {
				r.bind(name)
			}
			time.Sleep(time.Hour)
			r.expect(t, fmt.Sprint("seed ", seed, ": in the end"), replicas)
			r.b.Publisher.mu.Lock()
			defer r.b.Publisher.mu.Unlock()
			if n := len(r.b.holds.extras) + len(r.b.holds.until) + len(r.b.over); n != 0 || len(r.b.byPod) != replicas || len(r.b.holds.workloads) != 0 {
				t.Errorf("seed %d: %d entries are left, %d Pods are known", seed, n, len(r.b.byPod))
			}
		})
	}
}

// of are the Pods of a template that stay, with a node or without.
func (r *rollout) of(template string, bound bool) (names []string) {
	for i := range 100 {
		name := fmt.Sprint(template, i)
		if p := r.pods[name]; p != nil && p.DeletionTimestamp == nil && (p.Spec.NodeName != "") == bound {
			names = append(names, name)
		}
	}
	return names
}

func (r *rollout) leaving() (names []string) {
	for _, template := range []string{"old", "new"} {
		for i := range 100 {
			if p := r.pods[fmt.Sprint(template, i)]; p != nil && p.DeletionTimestamp != nil {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

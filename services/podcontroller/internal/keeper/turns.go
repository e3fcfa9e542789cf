package keeper

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

const (
	turnMin = 10 * time.Second // that one alternative is tried, from its condition on
	turnMax = 10 * time.Minute
)

// turn says which alternative of a Pod's node affinity its request states (OP-15.12).
type turn struct {
	taken      int // alternatives given up so far
	generation int64
	due        time.Time // when the present one is given up; zero: it was not refused
}

// turn is for translate.Defaults.
func (k *Keeper) turn(p *corev1.Pod) int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.turns[p.UID].taken
}

// resumeTurn finds the alternative that the request of a Pod states already: a controller that begins again must not withdraw what is on
// its way. It reports whether that is another one than the first.
func (k *Keeper) resumeTurn(v view, have *Object, of int) bool {
	k.mu.RLock()
	_, known := k.turns[v.pod.UID]
	k.mu.RUnlock()
	if of == 0 || known {
		return false
	}
	spec, d := have.spec(), k.Defaults
	found := 0
	for i := range of {
		d.Turn = func(*corev1.Pod) int { return i }
		if spec != nil && equality.Semantic.DeepEqual(spec.Requirements, translate.Spec(v.pod, v.node.Object, d).Spec.Requirements) {
			found = i
			break
		}
	}
	k.mu.Lock()
	k.turns[v.pod.UID] = turn{taken: found}
	k.mu.Unlock()
	return found > 0
}

// takeTurn gives an alternative up that the shard has no capacity for, and reports whether it did. After each round of all of them, each is
// tried for twice as long: a request that changes all the time would keep the shard from serving it.
func (k *Keeper) takeTurn(uid types.UID, o *Object, of int) bool {
	if of == 0 || !o.refused() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.turns[uid]
	now := time.Now()
	if t.due.IsZero() || t.generation != o.Generation {
		pause := turnMin
		for range t.taken / of {
			pause = min(2*pause, turnMax)
		}
		t.generation, t.due = o.Generation, now.Add(pause)
	}
	left := t.due.Sub(now)
	if left <= 0 {
		t.taken, t.due = t.taken+1, time.Time{}
	} else {
		k.queue.AddAfter(uid, left)
	}
	k.turns[uid] = t
	return left <= 0
}

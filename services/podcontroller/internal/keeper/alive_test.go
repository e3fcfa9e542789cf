package keeper

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
)

// silent is an API server that takes requests and never answers.
type silent struct{ client.Client }

func (silent) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// OP-15.25: a pod controller that stands still asks to be restarted; one with nothing to do, one that stands by, and one whose API server
// does not answer, do not.
func TestAliveWhilePodsAreLookedAt(t *testing.T) {
	running := func(t *testing.T, s client.Client, do func(k *Keeper, alive func(when string))) {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper(t, s)
			alive := func(when string) {
				t.Helper()
				if err := k.Alive(); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
			time.Sleep(time.Hour)
			alive("standing by")
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- k.Run(ctx) }()
			time.Sleep(time.Hour)
			alive("with nothing to do")
			do(k, alive)
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			alive("at the end")
		})
	}
	t.Run("the API server does not answer", func(t *testing.T) {
		running(t, silent{}, func(k *Keeper, alive func(string)) {
			k.SetPod(cached.Of(waitingPod()))
			for range 120 {
				time.Sleep(10 * time.Second)
				alive("without an answer of the API server")
			}
		})
	})
	t.Run("a look does not end", func(t *testing.T) {
		running(t, &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}, func(k *Keeper, alive func(string)) {
			free := make(chan struct{})
			k.Record = func(events.Event) { <-free }
			p := waitingPod()
			p.Annotations = map[string]string{"bigfleet.lucy.sh/interruption-penalty": "much"} // an event says that it is not understood
			k.SetPod(cached.Of(p))
			time.Sleep(reconcileMax + stuckAfter)
			alive("a look of two minutes")
			time.Sleep(time.Second)
			if k.Alive() == nil {
				t.Error("alive although a look has not ended for more than two minutes")
			}
			close(free)
			synctest.Wait()
			alive("afterwards")
		})
	})
	t.Run("the lock is not given back", func(t *testing.T) {
		k := newKeeper(t, silent{})
		defer k.Close()
		k.mu.Lock()
		k.lastTurn.Store(time.Now().Add(-turnEvery - stuckAfter - time.Second).UnixNano())
		done := make(chan struct{})
		go func() { k.turnOver(); close(done) }()
		if k.Alive() == nil {
			t.Error("alive although nothing had the lock for more than a turn and a minute")
		}
		k.mu.Unlock()
		<-done
		if err := k.Alive(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func waitingPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "pod-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
}

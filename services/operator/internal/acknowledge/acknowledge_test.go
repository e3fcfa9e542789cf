package acknowledge

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server takes a time for each patch.
type server struct {
	client.Client
	takes   time.Duration
	patches atomic.Int64
}

func (s *server) Status() client.SubResourceWriter { return status{s: s} }

type status struct {
	client.SubResourceWriter
	s *server
}

func (w status) Patch(ctx context.Context, _ client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	if p.Type() != types.MergePatchType {
		return fmt.Errorf("a patch of type %s", p.Type())
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.s.takes):
		w.s.patches.Add(1)
		return nil
	}
}

// patchedWithin says how many requests of many were patched after a time.
func patchedWithin(t *testing.T, d, takes time.Duration, concurrency int) (n int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		meters, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{
			CacheAge: func() float64 { return 0 }, AcceptedAge: func() float64 { return 0 }, EvictionsStopped: func() bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer meters.Close()
		s := &server{takes: takes}
		a, err := New(Config{Client: s, Concurrency: concurrency, Instruments: meters, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		var keys []aggregate.Key
		for i := range 10_000 {
			keys = append(keys, aggregate.Key{Namespace: "default", Name: fmt.Sprint(i)})
		}
		a.Add(keys)
		time.Sleep(d)
		synctest.Wait()
		n = s.patches.Load()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
	return n
}

// OP-6.3: the rate paces an API server that has time to spare.
func TestTheRatePacesAFastServer(t *testing.T) {
	if n := patchedWithin(t, 10*time.Second, time.Millisecond, 4); n < 3900 || n > 10*perSecondDefault+burst+1 {
		t.Fatalf("%d patches within 10 s; want about %d", n, 10*perSecondDefault)
	}
}

// OP-6.3: while patches take long, each worker leaves most of the time to others; it never stops.
func TestASlowServerIsGivenWay(t *testing.T) {
	for takes, most := range map[time.Duration]int64{
		100 * time.Millisecond: 4 * (10_000/500 + 1), 250 * time.Millisecond: 4 * (10_000/1250 + 1), 5 * time.Second: 4 * 2,
	} {
		if n := patchedWithin(t, 10*time.Second, takes, 4); n < most/2 || n > most {
			t.Errorf("%d patches of %v within 10 s by 4 workers; want at most %d and at least half of that", n, takes, most)
		}
	}
}

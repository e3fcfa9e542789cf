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

// patched runs an acknowledger on a server and says how many requests of many were patched after each second. adds is for
// how many seconds requests keep coming.
func patched(t *testing.T, seconds, adds int, takes time.Duration) (after []int64) {
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
		a, err := New(Config{Client: s, Instruments: meters, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		for second := range seconds {
			if second < adds {
				var keys []aggregate.Key
				for i := range 10_000 {
					keys = append(keys, aggregate.Key{Namespace: "default", Name: fmt.Sprint(second, i)})
				}
				a.Add(keys)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			after = append(after, s.patches.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
	return after
}

// OP-6.3: the rate paces an API server that has time to spare, also in a burst.
func TestTheRatePacesAFastServer(t *testing.T) {
	if n := patched(t, 10, 10, time.Millisecond)[9]; n < 3900 || n > 10*perSecondDefault+ahead+1 {
		t.Fatalf("%d patches within 10 s; want about %d", n, 10*perSecondDefault)
	}
}

// OP-6.3: while requests come in a burst and patches take long, each worker leaves most of the time to others; when the burst
// is over, or if it never is, it continues as it can.
func TestASlowServerIsGivenWayInABurst(t *testing.T) {
	const takes, full = 100 * time.Millisecond, 40 // by four workers, per second
	for _, adds := range []int{1, 10, 60} {
		n := patched(t, 60, adds, takes)
		quiet := min(adds+int(burstGap/time.Second), int(burstMax/time.Second)) // seconds that are given way to
		if got := n[quiet-2]; got > int64(quiet)*full/4 || got < int64(quiet-2)*full/6 {
			t.Errorf("requests for %d s: %d patches within %d s; want about a fifth of %d", adds, got, quiet-1, (quiet-1)*full)
		}
		if got := n[59] - n[quiet+1]; got < int64(58-quiet)*full*9/10 {
			t.Errorf("requests for %d s: %d patches in the %d s after the burst; want nearly %d", adds, got, 58-quiet, (58-quiet)*full)
		}
	}
}

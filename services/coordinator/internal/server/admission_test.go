package server

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-7.15, 21.32: so many reports are read and wait, and the next one is sent away at once; those that would wait for
// longer than their shards do are sent away too, and then there is room again.
func TestReportsBeyondTheLimitAreSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission()
		enter := func(body io.Reader) (func(), error) {
			_, end, err := a.enter(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body))
			return end, err
		}
		var working []func()
		for { // all turns
			_, end, err := a.slots.Take(t.Context(), time.Millisecond, errFull)
			if err != nil {
				break
			}
			working = append(working, end)
		}
		slow, release := io.Pipe() // one link is slow; it holds a place and no turn
		var all sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for i := range reportsWaitingMax {
			all.Go(func() {
				body := io.Reader(strings.NewReader("report"))
				if i == 0 {
					body = slow
				}
				_, err := enter(body)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errFull) {
					refused++
				}
			})
		}
		synctest.Wait()
		if n := a.waiting.Load(); n != reportsWaitingMax {
			t.Errorf("%d reports wait", n)
		}
		began := time.Now()
		if _, err := enter(strings.NewReader("report")); !errors.Is(err, errFull) || time.Since(began) != 0 {
			t.Errorf("a report beyond the limit got %v after %s", err, time.Since(began))
		}
		_ = release.Close()
		all.Wait()
		if refused != reportsWaitingMax || time.Since(began) > 2*slotWaitMax {
			t.Errorf("%d of %d reports were sent away after %s", refused, reportsWaitingMax, time.Since(began))
		}
		for _, end := range working {
			end()
		}
		end, err := enter(strings.NewReader("report"))
		if err != nil {
			t.Fatal(err)
		}
		end()
	})
}

// COORD-7.15: each report that is sent away gets a moment of its own, so that thousands do not come back together, and none
// has to wait longer than until its next report.
func TestReportsThatAreSentAwayComeBackApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission()
		hint := func() time.Duration {
			err := a.busy()
			got, ok := rpc.Detail[*v1.RetryHint](err)
			if !ok || connect.CodeOf(err) != connect.CodeUnavailable {
				t.Fatal(err)
			}
			return time.Duration(got.GetAfterMillis()) * time.Millisecond
		}
		for i := range 4000 {
			if got, want := hint(), time.Duration(i+1)*returnPace; got != want {
				t.Fatalf("report %d is to come back after %s, want %s", i, got, want)
			}
		}
		for range 10_000 {
			if got := hint(); got > returnMax {
				t.Fatalf("a report is to come back after %s", got)
			}
		}
		time.Sleep(returnMax)
		if got := hint(); got != returnPace {
			t.Errorf("when all had their moment, the next is to come back after %s", got)
		}
	})
}

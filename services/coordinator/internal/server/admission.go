package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// Limits of the reports that wait (COORD-7.15). All shards report at once after a restore, and whenever their network comes back.
const (
	// reportsWaitingMax bounds the reports that are being read or wait for a work slot; bigfleet_coordinator_reports_waiting.
	// A report of a full shard is some 200 KB, so they are at most 100 MB.
	reportsWaitingMax = 512
	// slotWaitMax is how long a report waits for a work slot. With the commit of a registration behind it, the answer still
	// finds its shard there: an attempt of a shard ends after 2 s, and work for a caller that left delays the others.
	slotWaitMax = time.Second
	// bodyWaitMax bounds the reading of one report, so that slow links do not hold the places of all others: the deadline
	// of a report.
	bodyWaitMax = 5 * time.Second
	// returnPace is the distance between the moments at which reports that were turned away are to come back: about what one
	// report costs. askPace is the same for callers of a replica that knows no leader: a refusal costs less.
	returnPace, askPace = time.Millisecond, 500 * time.Microsecond
	// returnMax bounds the wait that is asked for: the report interval.
	returnMax = shards.ReportInterval
)

// admission admits a few reports at a time, and refuses those it cannot answer in time.
type admission struct {
	slots   *shards.WorkSlots
	waiting atomic.Int64
	returns pacer
	asks    pacer
}

func newAdmission() *admission {
	return &admission{slots: shards.NewWorkSlots(), returns: pacer{pace: returnPace}, asks: pacer{pace: askPace}}
}

// pacer gives each of many callers another moment to come back, so that they do not come back together.
type pacer struct {
	pace time.Duration
	mu   sync.Mutex
	next time.Time
}

// later is how long the next caller is to wait.
func (p *pacer) later(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	if wait >= returnMax {
		return returnMax/2 + rand.N(returnMax/2) // more callers than moments
	}
	p.next = p.next.Add(p.pace)
	return wait + p.pace
}

// refusedKey marks a call that is refused before anything of it is read; its value is the error.
type refusedKey struct{}

var errFull = errors.New("too many shards report at the same time")

// admit lets reports in a few at a time, before anything of them is decoded; see shards.WorkSlots. A report is read whole
// before its turn, so that a slow link takes none. What is refused must not cost as much as what is taken: of reports beyond
// the limit, of those without the identity of a shard, and of those that reach a replica that does not lead, nothing is read.
func (s *Server) admit(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.CoordinatorReportShardProcedure || s.node.Leadership() == nil || rpc.PeerFrom(r.Context()).Require(identity.Shard) != nil {
			h.ServeHTTP(w, r)
			return
		}
		ctx, end, err := s.admission.enter(w, r)
		switch {
		case errors.Is(err, errFull):
			s.config.Metrics.Reports.WithLabelValues("busy").Inc()
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusedKey{}, s.admission.busy())))
		case err == nil:
			defer end()
			h.ServeHTTP(w, r.WithContext(ctx))
		} // otherwise the caller is gone
	})
}

// mayReport refuses reports that admit sends away, and all of them on a replica that does not lead.
func (s *Server) mayReport(ctx context.Context, procedure string) error {
	if procedure != api.CoordinatorReportShardProcedure {
		return nil
	}
	if refused, ok := ctx.Value(refusedKey{}).(error); ok {
		return refused
	}
	if s.node.Leadership() == nil {
		return s.noLeadership()
	}
	return nil
}

// enter reads a report and waits for a work slot. It returns the context of the slot and a function that frees it.
func (a *admission) enter(w http.ResponseWriter, r *http.Request) (context.Context, func(), error) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > reportsWaitingMax {
		return nil, nil, errFull
	}
	control := http.NewResponseController(w) // fails only where there is no network
	_ = control.SetReadDeadline(time.Now().Add(bodyWaitMax))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, ReportBytesMax+envelopeBytes))
	_ = control.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	return a.slots.Take(r.Context(), slotWaitMax, errFull)
}

// busy is the answer to a report that cannot be answered in time.
func (a *admission) busy() error {
	wait := a.returns.later(time.Now())
	return rpc.NewError(connect.CodeUnavailable, "too many shards report at the same time: retry after the time in the error's detail",
		&v1.RetryHint{AfterMillis: max(wait.Milliseconds(), 1)})
}

// envelopeBytes is what gRPC puts around a message.
const envelopeBytes = 5

// failing is the end of a body: io.EOF, or why the rest could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

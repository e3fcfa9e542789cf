package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// Config is what a Handler needs.
type Config struct {
	ShardID string // required, for the Hello ack
	Version string
	Gate    *ingest.Gate // required
	// Ceilings are what clusters may state. The zero value lets no cluster state anything.
	Ceilings Ceilings
	// Mark is called with each roll-up that passed the gate, before the core gets it. It may wait for the disk. May be nil.
	Mark    func(*core.RollupArrived)
	Loop    *loop.Loop   // required
	Blobs   *Blobs       // required
	Log     *slog.Logger // required
	Observe Observer     // required

	SessionsMax   int
	SessionAgeMax time.Duration
	Outbox        OutboxLimits
	SlowAfter     time.Duration // one write that takes longer ends the session
	FastFrames    int           // answers and reports waiting for the core, per session
	BlobBytesMax  int
	// RollupBytesMax is the largest roll-up that the gate accepts; operators hear it.
	RollupBytesMax int64
	Features       []string
	// Refusing returns why new sessions are refused (stopping, superseded), or "".
	Refusing func() string
}

// Observer hears of what the metrics count.
type Observer interface {
	IdentityRejected()
	FrameOversize()
	SlowClosed()
	StrayFrame(kind string)
	OutboxEnded(OutboxStats)
}

// largeRollup is the size from which a roll-up waits for the workers of large ones: it takes them milliseconds and not microseconds.
const largeRollup = 64 << 10

// Handler serves Shard.Session.
type Handler struct {
	cfg     Config
	workers chan struct{} // for roll-ups of at most largeRollup bytes
	large   *turns        // for the others
	arrival atomic.Int64
	control *loop.Source // opened and closed events, in order

	mu       sync.Mutex
	sessions map[string]*live
	number   int64
}

// live is one installed stream.
type live struct {
	cluster string
	number  int64
	outbox  *Outbox
	cancel  context.CancelCauseFunc
	ctx     context.Context // of the stream, and the stream: set before the core hears of the session
	stream  *stream
	fast    *loop.Source
	rollups *loop.Source

	mu      sync.Mutex
	pending *rawRollup // the one-place slot (SHARD-8.2), nil when empty
	working bool
}

// rawRollup is a roll-up as it came.
type rawRollup struct {
	bytes    []byte
	arrived  int64 // number over all sessions
	received int64 // Mono
}

func (r *rawRollup) large() bool { return len(r.bytes) > largeRollup }

// NewHandler returns a handler without sessions.
func NewHandler(c Config) *Handler {
	return &Handler{cfg: c, workers: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), large: newTurns(max(1, runtime.GOMAXPROCS(0)/2)), sessions: map[string]*live{},
		control: c.Loop.Source("sessions", 1024, false)}
}

type transportKey struct{}

// transport reaches below connect, to the stream's deadlines and the peer's certificate.
type transport struct {
	ctl      *http.ResponseController
	notAfter time.Time // zero: plaintext
}

// Wrap makes the deadlines of each stream reachable for the handler.
func Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &transport{ctl: http.NewResponseController(w)}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			t.notAfter = r.TLS.PeerCertificates[0].NotAfter
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), transportKey{}, t)))
	})
}

// Why a session ends. Each is sent to the operator with its code (WIRE-6.6).
var (
	errReplaced = connect.NewError(connect.CodeAborted, errors.New("replaced"))
	errReauth   = connect.NewError(connect.CodeUnavailable, errors.New("reauthenticate"))
	errSlow     = connect.NewError(connect.CodeResourceExhausted, errors.New("slow consumer"))
	errEnded    = errors.New("the operator closed the stream")
)

type stream = connect.BidiStream[Received, pb.ShardMessage]

// Session is the stream of one cluster.
func (h *Handler) Session(ctx context.Context, s *stream) error {
	first, err := s.Receive()
	if err != nil {
		return h.receiveError(err, "the stream ended before a Hello arrived")
	}
	hello, err := h.firstHello(first)
	if err != nil {
		return err
	}
	if err := h.admit(ctx, hello.ClusterId); err != nil {
		return err
	}
	l, ctx, err := h.install(ctx, hello.ClusterId)
	if err != nil {
		return err
	}
	return h.run(ctx, s, l, hello)
}

// firstHello reads the first frame.
func (h *Handler) firstHello(f *Received) (hello *pb.Hello, err error) {
	if err := h.sized(f); err != nil {
		return nil, err
	}
	aside(func() {
		m, broken := f.message()
		if hello = m.GetHello(); broken != nil || hello == nil {
			err = rpc.NewError(connect.CodeInvalidArgument, "the first frame must be a Hello with the cluster's id")
			return
		}
		err = h.checkHello(hello)
	})
	return hello, err
}

func (h *Handler) checkHello(hello *pb.Hello) error {
	if bad := h.check(hello); bad != nil {
		return rpc.NewError(connect.CodeInvalidArgument, "Hello: "+errorText(bad))
	}
	return nil
}

// admit checks the caller, before anything is installed (SHARD-7.2, WIRE-6.2).
func (h *Handler) admit(ctx context.Context, cluster string) error {
	peer := rpc.PeerFrom(ctx)
	if err := peer.RequireID(identity.ID{Kind: identity.Cluster, Name: cluster}); err != nil {
		h.cfg.Observe.IdentityRejected()
		h.cfg.Log.Error("session refused: the certificate carries another identity", "cluster", cluster, "peer", peer.String())
		return err
	}
	if why := h.cfg.Refusing(); why != "" {
		return rpc.NewError(connect.CodeUnavailable, why)
	}
	return nil
}

// install makes a session the cluster's only one. The newest wins; the older one ends at once (SHARD-7.3).
func (h *Handler) install(ctx context.Context, cluster string) (*live, context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	old := h.sessions[cluster]
	if old == nil && len(h.sessions) >= h.cfg.SessionsMax {
		h.mu.Unlock()
		cancel(nil)
		return nil, nil, rpc.NewError(connect.CodeResourceExhausted, fmt.Sprintf("this shard serves %d clusters, which is its limit (--max-sessions)", h.cfg.SessionsMax))
	}
	h.number++
	l := &live{cluster: cluster, number: h.number, outbox: NewOutbox(h.cfg.Outbox), cancel: cancel,
		fast:    h.cfg.Loop.Source("session", h.cfg.FastFrames, false),
		rollups: h.cfg.Loop.Source("rollup", 1, false)}
	h.sessions[cluster] = l
	h.mu.Unlock()
	if old != nil {
		old.cancel(errReplaced)
	}
	return l, ctx, nil
}

// run serves an installed session until something ends it.
func (h *Handler) run(ctx context.Context, s *stream, l *live, hello *pb.Hello) error {
	log := h.cfg.Log.With("cluster", l.cluster, "session", l.number)
	if v := hello.ProtocolVersion; v != "v1alpha1" {
		log.Warn("the operator speaks another protocol version", "theirs", v, "ours", "v1alpha1")
	}
	t, _ := ctx.Value(transportKey{}).(*transport)
	ctx, stopTimers := h.bound(ctx, t)
	defer stopTimers()
	l.ctx, l.stream = ctx, s
	unblocked := make(chan struct{})
	stopWatch := context.AfterFunc(ctx, func() {
		defer close(unblocked)
		if t != nil {
			_ = t.ctl.SetReadDeadline(time.Unix(1, 0)) // a blocked Receive returns
		}
	})
	h.open(ctx, l, hello)
	aside(func() {
		log.Info("session opened", "operator", hello.OperatorVersion, "features", clip(strings.Join(hello.Features, " ")))
	})
	err := h.receive(ctx, s, l)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if !stopWatch() {
		<-unblocked // the stream must not be touched after the handler has returned
	}
	l.cancel(errEnded)
	h.remove(l)
	h.awaitWriter(l.outbox.Stopped(), t, err)
	h.cfg.Observe.OutboxEnded(l.outbox.Stats())
	log.Info("session ended", "err", err)
	return ended(err)
}

// bound ends the session when the certificate ends or the session is old, each as "reauthenticate" (SHARD-7.8).
func (h *Handler) bound(ctx context.Context, t *transport) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	age := h.cfg.SessionAgeMax - time.Duration(rand.Int64N(int64(h.cfg.SessionAgeMax)/10+1))
	timer := time.AfterFunc(age, func() { cancel(errReauth) })
	stop := func() { timer.Stop(); cancel(nil) }
	if t == nil || t.notAfter.IsZero() {
		return ctx, stop
	}
	expiry := time.AfterFunc(time.Until(t.notAfter), func() { cancel(errReauth) })
	return ctx, func() { expiry.Stop(); stop() }
}

// ended turns the cause of an end into what the operator sees.
func ended(err error) error {
	switch {
	case err == nil, errors.Is(err, errEnded), errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, rpc.ErrStopping):
		return rpc.NewError(connect.CodeUnavailable, "shutting down")
	}
	return err
}

// open hands the session to the core and returns when the core has it: frames of the session come from other queues, and
// one that overtook the opening would belong to no session.
func (h *Handler) open(ctx context.Context, l *live, hello *pb.Hello) {
	defer h.control.Visit(ctx, func() {})
	h.control.Push(context.WithoutCancel(ctx), core.SessionOpened{Cluster: l.cluster, Session: l.number, Features: hello.Features,
		ProtocolVersion: hello.ProtocolVersion, OperatorVersion: hello.OperatorVersion, Instance: hello.InstanceId})
}

// remove takes the session out, itself only, and reports it to the core.
func (h *Handler) remove(l *live) {
	h.mu.Lock()
	if h.sessions[l.cluster] == l {
		delete(h.sessions, l.cluster)
	}
	h.mu.Unlock()
	l.fast.Close()
	l.rollups.Close()
	h.control.Push(context.Background(), core.SessionClosed{Cluster: l.cluster, Session: l.number, Reason: "the stream ended"})
	l.outbox.Close()
	l.drop()
}

// receiveError distinguishes an operator's error from its silence.
func (h *Handler) receiveError(err error, missing string) error {
	if connect.CodeOf(err) == connect.CodeResourceExhausted {
		h.cfg.Observe.FrameOversize()
		return err
	}
	return rpc.NewError(connect.CodeInvalidArgument, missing)
}

// Outboxes sums up the queues of all sessions, for the gauge.
func (h *Handler) Outboxes() (depth map[string]int) {
	depth = map[string]int{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.sessions {
		s := l.outbox.Stats()
		for c, n := range s.Depth {
			depth[Class(c).String()] += n
		}
	}
	return depth
}

// current returns the installed session of a cluster if it still has the number.
func (h *Handler) current(cluster string, number int64) *live {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.sessions[cluster]; l != nil && l.number == number {
		return l
	}
	return nil
}

// Close ends one session with a code and reason of the core.
func (h *Handler) Close(e core.CloseSession) {
	if l := h.current(e.Cluster, e.Session); l != nil {
		l.cancel(connect.NewError(connect.Code(e.Code), errors.New(e.Reason)))
	}
}

func errorText(err error) string { return strings.TrimSpace(err.Error()) }

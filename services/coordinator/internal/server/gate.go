package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// openingHint is when a client asks again that met a leader about to open (COORD-6.1.2).
const openingHint = 20 * time.Millisecond

// handOverHint is when a client asks again that met a leader in its last moment (COORD-6.4.2): its successor needs two
// round trips and a write or two.
const handOverHint = 5 * time.Millisecond

// gate is the outermost interceptor: leader, then the rate limit, then everything else (COORD-6.2.5). Who may call what is judged
// before it, from the certificate alone. It gives the call
// the leadership it belongs to; a call whose leadership ends is answered "not the leader", so that no client hears from an old leader.
type gate struct{ s *Server }

// lead is the leadership that a call belongs to.
type lead struct {
	leadership *replica.Leadership
	registry   *shards.ShardRegistry
}

type leadKey struct{}

// leadOf returns the leadership of a call that passed the gate.
func leadOf(ctx context.Context) lead {
	l, _ := ctx.Value(leadKey{}).(lead)
	return l
}

func (g *gate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (out connect.AnyResponse, err error) {
		err = g.through(ctx, req.Spec().Procedure, func(ctx context.Context) error {
			out, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

func (g *gate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return g.through(ctx, conn.Spec().Procedure, func(ctx context.Context) error { return next(ctx, conn) })
	}
}

func (g *gate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (g *gate) through(ctx context.Context, procedure string, call func(context.Context) error) (err error) {
	s := g.s
	counted := procedure != api.CoordinatorReportShardProcedure
	if counted {
		defer func() { s.count(ctx, procedure, err) }()
	}
	if procedure == api.CoordinatorAdminGetCoordinatorStatusProcedure {
		return call(ctx) // every replica answers about itself
	}
	leadership := s.node.Leadership()
	if leadership == nil {
		return s.noLeadership()
	}
	if counted && !s.limit.allow(callerOf(ctx), time.Now()) {
		return rpc.NewError(connect.CodeResourceExhausted, "too many admin calls per second from this caller: slow down",
			&v1.Problem{Reason: "rate-limit", Message: "more admin calls per second than one caller may make", Hint: "slow down"})
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leadKey{}, lead{leadership, s.registry(leadership)}))
	defer cancel(nil)
	defer context.AfterFunc(leadership.Context(), func() { cancel(replica.ErrNotLeader) })()
	err = call(ctx)
	if err != nil && leadership.Context().Err() != nil && interrupted(err) {
		return s.notLeader()
	}
	return err
}

// noLeadership is the answer of a replica that does not lead, or not yet.
func (s *Server) noLeadership() error {
	if s.node.Opening() {
		return rpc.NewError(connect.CodeUnavailable, "this replica has just been elected and does not serve yet: retry in a moment",
			&v1.RetryHint{AfterMillis: openingHint.Milliseconds()})
	}
	return s.notLeader()
}

// interrupted reports whether an error may come from the end of the leadership alone.
func interrupted(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnknown:
		return true
	}
	return errors.Is(err, context.Canceled)
}

// count notes one call of the admin surface, and logs refusals (COORD-16.10).
func (s *Server) count(ctx context.Context, procedure string, err error) {
	code, role := "ok", roleOf(ctx)
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	method := procedure[strings.LastIndexByte(procedure, '/')+1:]
	s.config.Metrics.Admin.WithLabelValues(method, role, code).Inc()
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodeAborted, connect.CodeResourceExhausted:
		if err != nil && !isRead(procedure) {
			s.config.Log.Info("an order was refused", "method", method, "actor", callerOf(ctx), "role", role, "code", code, "err", err)
		}
	}
}

// roleOf is the kind of identity of a caller, for metrics.
func roleOf(ctx context.Context) string {
	p := rpc.PeerFrom(ctx)
	switch {
	case !p.TLS:
		return "plaintext"
	case p.Err != nil || p.ID.IsZero():
		return "unknown"
	}
	return string(p.ID.Kind)
}

// callerOf names a caller: its identity, or the host it calls from.
func callerOf(ctx context.Context) string {
	p := rpc.PeerFrom(ctx)
	if p.TLS && !p.ID.IsZero() {
		return p.ID.String()
	}
	host := p.Addr
	if at := strings.LastIndexByte(host, ':'); at > 0 {
		host = host[:at]
	}
	if host == "" {
		return "plaintext"
	}
	return "plaintext/" + host
}

// confirmed returns the newest state after a quorum said that this replica still leads (COORD-6.2.3). Everything that
// was acknowledged before the call began is in it.
func (s *Server) confirmed(ctx context.Context) (*fleet.State, error) {
	if err := s.node.Confirm(ctx); err != nil {
		if errors.Is(err, replica.ErrNotLeader) {
			return nil, s.notLeader()
		}
		return nil, rpc.NewError(connect.CodeUnavailable, "leadership could not be confirmed by a quorum: retry")
	}
	return s.node.State(), nil
}

// isRead reports whether an RPC is declared free of side effects.
func isRead(procedure string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	options, _ := found.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

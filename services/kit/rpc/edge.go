package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// edge is the outermost of our interceptors on a server: it recovers panics, settles what the peer sees, and logs.
type edge struct {
	log     *slog.Logger
	sampler *sampler
}

func (e *edge) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		start := time.Now()
		defer func() {
			err = e.finish(ctx, req.Spec().Procedure, start, recovered(recover(), err))
			if err != nil {
				resp = nil
			}
		}()
		return next(ctx, req)
	}
}

func (e *edge) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		start := time.Now()
		defer func() { err = e.finish(ctx, conn.Spec().Procedure, start, recovered(recover(), err)) }()
		return next(ctx, conn)
	}
}

func (e *edge) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// recovered turns a panic into an error with its stack. http.ErrAbortHandler is net/http's own way to cut a
// connection and continues.
func recovered(panicked any, err error) error {
	if panicked == nil {
		return err
	}
	if panicked == http.ErrAbortHandler {
		panic(panicked)
	}
	return &internalError{cause: fmt.Errorf("panic: %v", panicked), stack: debug.Stack()}
}

func (e *edge) finish(ctx context.Context, procedure string, start time.Time, err error) error {
	if err == nil {
		e.log.LogAttrs(ctx, slog.LevelDebug, "call served", e.attrs(ctx, procedure, start)...)
		return nil
	}
	var internal *internalError
	if !errors.As(err, &internal) {
		err = publicError(ctx, err)
	}
	level, code, cause, out := slog.LevelWarn, connect.CodeOf(err), err.Error(), err
	if errors.As(err, &internal) {
		code, out = connect.CodeInternal, internal.public()
	}
	switch code {
	case connect.CodeInternal, connect.CodeUnknown, connect.CodeDataLoss:
		level = slog.LevelError
	case connect.CodeCanceled, connect.CodeNotFound, connect.CodeUnavailable:
		// The peer went away, asked for nothing we have, or we are stopping: ordinary.
		level = slog.LevelDebug
	case connect.CodeFailedPrecondition:
		if _, redirect := Detail[*pb.NotLeader](err); redirect {
			level = slog.LevelDebug // the answer names the leader: that is how the peer finds it
		}
	}
	attrs := append(e.attrs(ctx, procedure, start), slog.String("code", code.String()), slog.String("err", cause))
	if internal != nil && internal.stack != nil {
		attrs = append(attrs, slog.String("stack", string(internal.stack)))
	}
	if level > slog.LevelDebug {
		repeats, ok := e.sampler.take(procedure + "\x00" + code.String() + "\x00" + PeerFrom(ctx).ID.String())
		if !ok {
			return out
		}
		if repeats > 0 {
			attrs = append(attrs, slog.Int("repeated", repeats))
		}
	}
	e.log.LogAttrs(ctx, level, "call failed", attrs...)
	return out
}

func (e *edge) attrs(ctx context.Context, procedure string, start time.Time) []slog.Attr {
	return []slog.Attr{
		slog.String("method", procedure), slog.String("peer", PeerFrom(ctx).String()), slog.Duration("duration", time.Since(start)),
	}
}

package fleet

import (
	"context"
	"time"

	"connectrpc.com/connect"
)

// perCall bounds each call that is made under a context of eachCall, not all of them together: a list of half a million machines is
// a hundred pages, and --timeout is the bound of one call (OPS-4.4, OPS-4.13).
type perCall struct{}

type perCallKey struct{}

func eachCall(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, perCallKey{}, timeout)
}

func (perCall) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if d, ok := ctx.Value(perCallKey{}).(time.Duration); ok {
			bounded, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			ctx = bounded
		}
		return next(ctx, r)
	}
}

func (perCall) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		if d, ok := ctx.Value(perCallKey{}).(time.Duration); ok {
			bounded, cancel := context.WithTimeout(ctx, d)
			context.AfterFunc(bounded, cancel)
			ctx = bounded
		}
		return next(ctx, s)
	}
}

func (perCall) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

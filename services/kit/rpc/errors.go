package rpc

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// ErrStopping is the cause of a call's context when its server stops. Handlers may return it; peers see UNAVAILABLE.
var ErrStopping = errors.New("shutting down")

// NewError is a connect error with typed details. say goes to the peer: what failed, why, what to do; no secret and
// no stack (WIRE-5.2).
func NewError(code connect.Code, say string, details ...proto.Message) *connect.Error {
	out := connect.NewError(code, errors.New(say))
	for _, message := range details {
		// It fails only on a message that cannot be marshalled, and no caller depends on a detail (WIRE-5.3).
		if detail, err := connect.NewErrorDetail(message); err == nil {
			out.AddDetail(detail)
		}
	}
	return out
}

// Detail returns the first detail of type T that the error of a call carries.
func Detail[T proto.Message](err error) (T, bool) {
	var none T
	var fault *connect.Error
	if !errors.As(err, &fault) {
		return none, false
	}
	for _, detail := range fault.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a type this build does not know
		}
		if out, ok := value.(T); ok {
			return out, true
		}
	}
	return none, false
}

// DialError means that no connection could be made, so nothing was sent: the call certainly had no effect.
type DialError struct {
	Addr string
	Err  error
}

func (e *DialError) Error() string { return fmt.Sprintf("dialling %s: %v", e.Addr, e.Err) }
func (e *DialError) Unwrap() error { return e.Err }

// NotSent reports whether the error of a call proves that nothing reached the peer. False proves nothing.
func NotSent(err error) bool {
	var dial *DialError
	return errors.As(err, &dial)
}

// publicError turns what a handler returned into what the peer may see. A connect error passes. The end of the call's
// context becomes its code. Anything else is a defect: INTERNAL without its text, which may hold what no peer should
// read; the log has it (WIRE-5.1).
func publicError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var fault *connect.Error
	known := errors.As(err, &fault)
	if errors.Is(context.Cause(ctx), ErrStopping) && (!known || endedByContext(fault.Code())) || errors.Is(err, ErrStopping) {
		return connect.NewError(connect.CodeUnavailable, ErrStopping)
	}
	switch {
	case known:
		return err
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	default:
		return &internalError{cause: err}
	}
}

func endedByContext(code connect.Code) bool {
	return code == connect.CodeCanceled || code == connect.CodeDeadlineExceeded || code == connect.CodeUnknown
}

// internalError keeps the cause for the log and shows the peer an INTERNAL without it.
type internalError struct {
	cause error
	stack []byte
}

func (e *internalError) Error() string { return e.cause.Error() }

func (e *internalError) public() *connect.Error {
	return connect.NewError(connect.CodeInternal, errors.New("internal error; the server's log has the cause"))
}

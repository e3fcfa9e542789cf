// Package exit is the contract between the command line and scripts: what a run ends with.
//
// An Error is one failed verb: a code of OPS-4.10, a sentence that says what failed and why, and what to do. Verbs return it;
// only main turns it into a process exit. Of maps the errors of RPCs to it, so that every verb answers alike.
package exit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Code is a process exit code of OPS-4.10.
type Code int

// The codes.
const (
	OK          Code = 0 // done, or nothing found wrong
	Failed      Code = 1
	Usage       Code = 2 // invalid usage or configuration
	NotFound    Code = 3 // the named thing does not exist
	Problems    Code = 4 // ran fine and found problems
	Unreachable Code = 5 // no server, no leader, or a part did not answer
	Denied      Code = 6
	Refused     Code = 7 // the state forbids it
	Declined    Code = 8 // the user said no
)

// Meaning is what one code tells a script.
type Meaning struct {
	Code    Code
	Meaning string
}

// Codes lists the codes with their meanings, in order.
func Codes() []Meaning {
	return []Meaning{
		{OK, "done, or nothing found wrong"}, {Failed, "failed"}, {Usage, "invalid usage or configuration"}, {NotFound, "the named thing does not exist"},
		{Problems, "completed and found problems: `doctor`, `snapshot verify`, `crds diff`, `replay`, `plan --fail-on`, `wait` that timed out"},
		{Unreachable, "no server, no leader, or a part did not answer"}, {Denied, "permission denied"}, {Refused, "refused because of state: a conflict, another owner, still in use"},
		{Declined, "not confirmed: the answer was no, or there was no terminal and no `--yes`"},
	}
}

var names = map[Code]string{
	Failed: "failed", Usage: "usage", NotFound: "not_found", Problems: "problems", Unreachable: "unreachable",
	Denied: "permission_denied", Refused: "refused", Declined: "declined",
}

func (c Code) String() string { return names[c] }

// Error ends a verb. Message is one line for people: what failed and why. Hint says what to do.
type Error struct {
	Code    Code
	Reason  string // a token for programs; "" means the code's name
	Message string
	Hint    string
	Err     error // for -v, never shown otherwise
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + ". " + e.Hint
}

func (e *Error) Unwrap() error { return e.Err }

// Usagef is a wrong command line.
func Usagef(format string, args ...any) *Error {
	return &Error{Code: Usage, Message: fmt.Sprintf(format, args...)}
}

// CodeOf is the exit code of a verb's error.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	}
	return Code(process.ExitCode(err)) // roles say theirs: 1 or 2
}

var byConnectCode = map[connect.Code]Code{
	connect.CodeInvalidArgument: Usage, connect.CodeNotFound: NotFound, connect.CodeUnavailable: Unreachable,
	connect.CodeDeadlineExceeded: Unreachable, connect.CodePermissionDenied: Denied, connect.CodeUnauthenticated: Denied,
	connect.CodeFailedPrecondition: Unreachable, // the coordinator's "not the leader" (WIRE-5.1)
	connect.CodeAborted:            Refused, connect.CodeAlreadyExists: Refused,
}

// NothingAnswers is the reason of an Error that found no open port.
const NothingAnswers = "no_connection"

// TooSlow is the reason of an Error about a server that did not answer in time, and MoreTime what to do.
const (
	TooSlow  = "timeout"
	MoreTime = "--timeout sets the time limit of one request; `bigfleet doctor` checks the connection"
)

// NoServer lists the reasons that mean: this is not a server that this command could ever ask as it is called.
func NoServer() []string {
	return []string{NothingAnswers, "closed", "plaintext", "certificate", "wrong_service"}
}

// Of turns the error of a call into an Error. What names the call for people, for example "reading the status of shard-0".
func Of(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	var dial *rpc.DialError
	if errors.As(err, &dial) {
		return NoConnection(what, dial)
	}
	if broken := brokenOff(what, err); broken != nil {
		return broken
	}
	out := &Error{Code: Failed, Message: what + ": " + text(err), Err: err}
	if strings.Contains(out.Message, "HTTP status 404") { // a server without this service: no server of BigFleet answers so
		return &Error{Code: Unreachable, Reason: "wrong_service", Message: what + ": another kind of server answers there (HTTP status 404)",
			Hint: "Default ports: shard 7780, coordinator 7790, provider 9000; metrics are on separate ports", Err: err}
	}
	if code, ok := byConnectCode[connect.CodeOf(err)]; ok {
		out.Code = code
	}
	if p, ok := rpc.Detail[*bigfleetv1alpha1.Problem](err); ok {
		out.Reason, out.Hint = p.GetReason(), sentence(p.GetHint())
		out.Message = strings.Replace(out.Message, ": "+p.GetHint(), "", 1) // it is in the message for callers that know no details
	}
	if connect.CodeOf(err) == connect.CodeDeadlineExceeded && out.Reason == "" {
		out.Reason, out.Message, out.Hint = TooSlow, what+": no answer within the time limit", MoreTime
	}
	if out.Code == Denied && out.Hint == "" {
		out.Hint = "--tls-cert and --tls-key, or --context, name a certificate of another identity"
	}
	return out
}

// brokenOff words a connection that ended without an answer: the other side wants TLS, or another certificate, or it stopped.
func brokenOff(what string, err error) *Error {
	out := &Error{Code: Unreachable, Reason: "closed", Err: err}
	if _, alert, found := strings.Cut(err.Error(), "remote error: tls: "); found {
		out.Reason, out.Message = "certificate", what+": the server refuses this certificate: "+alert
		out.Hint = "Use a certificate that the server's CA has signed; `bigfleet doctor` with the same flags shows details"
		return out
	}
	ends := func(end error) bool { return errors.Is(err, end) }
	if !slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET}, ends) && !strings.Contains(err.Error(), notEstablished) {
		return nil
	}
	out.Message = what + ": the server closed the connection without an answer"
	out.Hint = "If it serves TLS, give --tls-cert, --tls-key and --tls-ca of the CA that it trusts; if it is stopping, retry"
	return out
}

// notEstablished is the text of net/http for a connection that closed before its first request was sent. It exports no error for it.
const notEstablished = "http2: client conn could not be established"

// NoConnection is the failure to reach an address at all, or to agree on TLS there.
func NoConnection(what string, dial *rpc.DialError) *Error {
	var plain tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(dial, &plain):
		return &Error{Code: Unreachable, Reason: "plaintext", Message: fmt.Sprintf("%s: %s answers without TLS", what, dial.Addr),
			Hint: "Start it with --tls-cert, --tls-key and --tls-ca, or omit the TLS flags and the context here", Err: dial}
	case errors.As(dial, &cert):
		return &Error{Code: Unreachable, Reason: "certificate", Message: fmt.Sprintf("%s: the certificate of %s is refused: %v", what, dial.Addr, cert.Err),
			Hint: "`bigfleet doctor` with the same flags says what is wrong with it", Err: dial}
	case errors.Is(dial, context.DeadlineExceeded):
		return &Error{Code: Unreachable, Reason: TooSlow, Message: fmt.Sprintf("%s: no connection to %s within the time limit", what, dial.Addr), Hint: MoreTime, Err: dial}
	}
	return &Error{Code: Unreachable, Reason: NothingAnswers, Message: fmt.Sprintf("%s: nothing answers at %s", what, dial.Addr),
		Hint: "Check the address and that the process runs; `bigfleet doctor` checks more", Err: dial}
}

// sentence begins with a capital letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// text is the server's sentence without the code's name before it.
func text(err error) string {
	var e *connect.Error
	if errors.As(err, &e) {
		return e.Message()
	}
	return err.Error()
}

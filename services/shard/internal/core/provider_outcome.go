package core

// Code is the status of one provider call, in the numbers of gRPC and Connect. Zero is success.
type Code uint8

// The codes that a provider may answer (WIRE-5.1).
const (
	CodeOK Code = iota
	CodeCanceled
	CodeUnknown
	CodeInvalidArgument
	CodeDeadlineExceeded
	CodeNotFound
	CodeAlreadyExists
	CodePermissionDenied
	CodeResourceExhausted
	CodeFailedPrecondition
	CodeAborted
	CodeOutOfRange
	CodeUnimplemented
	CodeInternal
	CodeUnavailable
	CodeDataLoss
	CodeUnauthenticated
)

var codeNames = [...]string{"ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found",
	"already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
	"unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "unknown"
}

// Class is what the end of a call proves about the machine (SHARD-14.6).
type Class uint8

const (
	// Accepted: the provider took the command; the ack is a fact.
	Accepted Class = iota
	// NotTouched: no call can have taken effect; the record goes back to what it was.
	NotTouched
	// Unknown: the call may or may not have taken effect; Get decides. A timeout is never proof of failure.
	Unknown
	// Refused: the provider says that this can never work as asked.
	Refused
	// Gone: the provider does not know the machine; Get decides.
	Gone
	// FenceSuspect: the provider saw a newer token than ours.
	FenceSuspect
)

func (c Class) String() string {
	return [...]string{"accepted", "not_touched", "unknown", "refused", "gone", "fence_suspect"}[c]
}

// Classify decides the class of one ended command from its status code, whether bytes of it were sent, and whether the
// ack of a success passed the machine gate. It is the only place that reads a code.
func Classify(code Code, sent, ackGood bool) Class {
	if !sent && code != CodeOK {
		return NotTouched
	}
	switch code {
	case CodeOK:
		if ackGood {
			return Accepted
		}
		return Unknown
	case CodeResourceExhausted, CodeUnauthenticated, CodePermissionDenied:
		return NotTouched
	case CodeInvalidArgument, CodeUnimplemented, CodeOutOfRange:
		return Refused
	case CodeNotFound:
		return Gone
	case CodeFailedPrecondition:
		return FenceSuspect
	default:
		return Unknown
	}
}

// hurtsBreaker reports whether the end of a call counts toward opening the provider's breaker: transport failures,
// unknown outcomes and authentication refusals (SHARD-14.12).
func hurtsBreaker(code Code, class Class) bool {
	switch code {
	case CodeUnauthenticated, CodePermissionDenied:
		return true
	case CodeResourceExhausted:
		return false
	}
	return class == Unknown || class == NotTouched
}

// Outcome labels the end of an operation (SHARD-15.11). The set is closed: it is a metric label.
type Outcome uint8

const (
	OutcomeSuccess Outcome = iota
	OutcomeStaleState
	OutcomeNoSession
	OutcomeSessionLost
	OutcomeBlobError
	OutcomeBlobTimeout
	OutcomeBlobExpired
	OutcomeNotTouched
	OutcomeUnknown
	OutcomeRefused
	OutcomeFailed
	OutcomeFenced
	OutcomeCancelled
)

func (o Outcome) String() string {
	return [...]string{"success", "stale_state", "no_session", "session_lost", "blob_error", "blob_timeout",
		"blob_expired", "provider_not_touched", "provider_unknown", "provider_refused", "provider_failed", "fenced",
		"cancelled"}[o]
}

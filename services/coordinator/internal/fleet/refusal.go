package fleet

import "fmt"

// Kind says what the caller of a refused operation can do about it. The set is closed.
type Kind int

const (
	// Invalid: the operation can never succeed as it is.
	Invalid Kind = iota + 1
	// NotFound: the named row does not exist.
	NotFound
	// OtherOwner: somebody else owns the subject.
	OtherOwner
	// Refused: the state does not allow it now.
	Refused
	// Full: a cap is reached.
	Full
)

// Refusal is the answer of an operation that changed nothing. It is the same on every replica.
type Refusal struct {
	Kind Kind
	// Reason is a token for programs.
	Reason string
	// Say is what and why, one sentence; Hint is what to do.
	Say, Hint string
	// Blockers names what stands in the way, at most BlockersMax.
	Blockers []string
	// Force reports that the operation works with force.
	Force bool
}

// BlockersMax bounds the names in one refusal.
const BlockersMax = 20

func (r *Refusal) Error() string {
	if r.Hint == "" {
		return r.Say
	}
	return r.Say + ": " + r.Hint
}

func invalid(format string, args ...any) *Refusal {
	return &Refusal{Kind: Invalid, Reason: "invalid-operation", Say: fmt.Sprintf(format, args...)}
}

func unknown(what, name string) *Refusal {
	return &Refusal{Kind: NotFound, Reason: "unknown-" + what, Say: fmt.Sprintf("there is no %s %q", what, name),
		Hint: "list the " + what + "s and use one of their names"}
}

func refused(reason, hint, format string, args ...any) *Refusal {
	return &Refusal{Kind: Refused, Reason: reason, Say: fmt.Sprintf(format, args...), Hint: hint}
}

func otherOwner(what, name, owner, hint string) *Refusal {
	return &Refusal{Kind: OtherOwner, Reason: what + "-owned", Blockers: []string{owner},
		Say: fmt.Sprintf("%s %s belongs to shard %q", what, name, owner), Hint: hint}
}

// blocked adds names up to BlockersMax.
func (r *Refusal) blocked(names ...string) *Refusal {
	for _, name := range names {
		if len(r.Blockers) < BlockersMax {
			r.Blockers = append(r.Blockers, name)
		}
	}
	return r
}

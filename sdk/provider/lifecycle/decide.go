package lifecycle

import "slices"

// Request is one mutation as it came in, without the blob's content.
type Request struct {
	Kind         Kind
	MachineID    string
	ShardID      string
	Token        Token
	Cluster      string            // Configure
	Metadata     map[string]string // Configure
	BlobBytes    int               // Configure
	GraceSeconds int64             // Drain
}

// Unfenced says whether the caller takes no part in fencing (PROV-6.11).
func (q Request) Unfenced() bool { return q.ShardID == "" && q.Token == Token{} }

// Rules are the parts of the contract that a provider chooses.
type Rules struct {
	DeleteSupported  bool
	ShardIDBytesMax  int
	MetadataBytesMax int
	BlobBytesMax     int
}

// Reason is why a mutation is refused. The set is closed; each reason has exactly one RPC code.
type Reason uint8

// The reasons, in the order of the checks.
const (
	DeleteUnsupported Reason = iota + 1 // the provider cannot give hosts back
	EmptyMachineID
	ShardIDTooLong
	Stale          // the token is not newer than the mark
	UnknownMachine // no such record
	BrokenRule     // of the protos, apart from machine_id; Decision.Detail names it
	MetadataTooLarge
	BlobTooLarge
	NegativeGrace
	BoundElsewhere // a repeat of Configure that names another cluster
	WrongState     // the machine is not where the operation starts
)

// Outcome is what Decide concluded.
type Outcome uint8

// The three outcomes.
const (
	Refuse Outcome = iota // Decision.Reason says why
	Repeat                // Decision.OperationID is the answer; start nothing
	Start                 // go on with admission, then Accept
)

// Decision is the answer to a Request.
type Decision struct {
	Outcome     Outcome
	Reason      Reason
	Detail      string // of BrokenRule
	OperationID string
	// MarkMoves says that the token became the mark and must be stored before the answer leaves, whatever the outcome
	// (PROV-6.5).
	MarkMoves bool
}

// Precheck does step 1 of PROV-4.1, which needs neither the machine nor its marks: 0 means pass.
func Precheck(q Request, rules Rules) Reason {
	switch {
	case q.Kind == Delete && !rules.DeleteSupported:
		return DeleteUnsupported
	case slices.ContainsFunc(brokenRules(q.message()), ofMachineID):
		return EmptyMachineID
	case len(q.ShardID) > rules.ShardIDBytesMax:
		return ShardIDTooLong
	}
	return 0
}

// Decide does steps 1 to 6 of PROV-4.1 in their order and stops at the first refusal. r is nil for an unknown machine,
// mark is nil when this shard never spoke about this machine.
func Decide(r *Record, mark *Token, q Request, rules Rules) Decision {
	if why := Precheck(q, rules); why != 0 {
		return Decision{Reason: why}
	}
	d := Decision{}
	if !q.Unfenced() {
		if mark != nil && !q.Token.Newer(*mark) {
			return Decision{Reason: Stale}
		}
		d.MarkMoves = true
	}
	if r == nil {
		d.Reason = UnknownMachine
		return d
	}
	if d.Reason, d.Detail = arguments(q, rules); d.Reason != 0 {
		return d
	}
	// PROV-7.2: the newest id of the kind counts while the machine is in that kind's own states.
	edge, known := q.Kind.Edge(), r.Operation(q.Kind)
	if known != "" && (r.State == edge.Through || r.State == edge.To) {
		if q.Kind == Configure && q.Cluster != r.Cluster {
			d.Reason = BoundElsewhere
			return d
		}
		d.Outcome, d.OperationID = Repeat, known
		return d
	}
	if r.State != edge.From {
		// A machine taken over as Configured (PROV-17.8) has no operation id to repeat, but it has an owner: the caller
		// that names another cluster must hear about it.
		if q.Kind == Configure && r.State == edge.To && q.Cluster != r.Cluster {
			d.Reason = BoundElsewhere
			return d
		}
		d.Reason = WrongState
		return d
	}
	d.Outcome = Start
	return d
}

// arguments is step 4: the generated rules, then what a rule cannot say. 0 means pass.
func arguments(q Request, rules Rules) (why Reason, detail string) {
	for _, broken := range brokenRules(q.message()) {
		return BrokenRule, broken.text // machine_id was judged in step 1
	}
	switch {
	case q.Kind == Configure && (MetadataBytes(q.Metadata) > rules.MetadataBytesMax || len(q.Cluster) > ClusterBytesMax):
		return MetadataTooLarge, ""
	case q.Kind == Configure && q.BlobBytes > rules.BlobBytesMax:
		return BlobTooLarge, ""
	case q.Kind == Drain && q.GraceSeconds < 0:
		return NegativeGrace, ""
	}
	return 0, ""
}

// ClusterBytesMax bounds the name of a cluster, which is stored with each of its machines.
const ClusterBytesMax = 4096

// BindingBytes is the size of what a shard had stored with a machine.
func (r *Record) BindingBytes() int { return len(r.Cluster) + MetadataBytes(r.Metadata) }

func ofMachineID(r brokenRule) bool { return r.field == "machine_id" }

// MetadataBytes is the size of a metadata map: keys plus values (PROV-8.6).
func MetadataBytes(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

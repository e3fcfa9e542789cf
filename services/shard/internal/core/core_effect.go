package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Effect is one thing the shell has to do. The types of this file that have the method are all of them (SHARD-5.2).
type Effect interface{ effect() EffectKind }

// EffectKind numbers the effects, for counts.
type EffectKind uint8

const (
	EffectCommand EffectKind = iota + 1
	EffectGet
	EffectList
	EffectPullBootstrap
	EffectDropBlob
	EffectSendReclaim
	EffectSendNodeState
	EffectSendHint
	EffectSendNeedStatus
	EffectSendAck
	EffectCloseSession
	EffectAckInstruction
	EffectPersist
	EffectRecord
	EffectSample
	EffectPublish
	EffectSuperseded
	EffectWakeAt
	EffectAdminAnswer
	EffectCheckpointTaken
	EffectNotice
	EffectComparePlan
)

func (k EffectKind) String() string {
	return [...]string{"", "command", "get_machine", "list_machines", "pull_bootstrap", "drop_blob", "send_reclaim",
		"send_node_state", "send_hint", "send_need_status", "send_ack", "close_session", "ack_instruction", "persist",
		"record", "sample", "publish", "superseded", "wake_at", "admin_answer", "checkpoint_taken", "notice", "compare_plan"}[k]
}

// KindOfEffect names the kind of an effect.
func KindOfEffect(e Effect) EffectKind { return e.effect() }

// Command asks for one attempt of one mutating call, with a fresh token. The shell answers with CommandDone once.
type Command struct {
	Op        string   `n:"1"`
	Attempt   int64    `n:"2"`
	Provider  string   `n:"3"`
	RPC       RPC      `n:"4"`
	Machine   string   `n:"5"`
	Cluster   string   `n:"6"`
	Blob      string   `n:"7"` // request id of the bootstrap blob, for Configure
	Metadata  []KeyVal `n:"8"`
	GraceSecs int64    `n:"9"`
	Timeout   int64    `n:"10"`
}

// KeyVal is one entry of a string map, in key order.
type KeyVal struct {
	Key   string `n:"1"`
	Value string `n:"2"`
}

// GetMachine asks for the present record of one machine.
type GetMachine struct {
	Get      int64  `n:"1"`
	Provider string `n:"2"`
	Machine  string `n:"3"`
	Timeout  int64  `n:"4"`
}

// ListMachines asks for all machines, or for what changed since the cursor.
type ListMachines struct {
	List     int64  `n:"1"`
	Provider string `n:"2"`
	Cursor   []byte `n:"3"` // empty: a full List
	Paged    bool   `n:"4"` // answers are known to carry complete or more, so they may be asked for in pages
	Timeout  int64  `n:"5"`
}

// PullBootstrap asks the operator of a cluster for a bootstrap blob.
type PullBootstrap struct {
	Request      string               `n:"1"`
	Cluster      string               `n:"2"`
	Session      int64                `n:"3"`
	Requirements []demand.Requirement `n:"4"` // Same already replaced, machine id added (SHARD-16.2)
	Machine      inventory.Machine    `n:"5"`
}

// DropBlob wipes the bytes kept for a request.
type DropBlob struct {
	Request string `n:"1"`
}

// SendReclaim tells an operator to cordon and drain one machine's node, or takes that back.
type SendReclaim struct {
	Instruction       string       `n:"1"`
	Cluster           string       `n:"2"`
	Session           int64        `n:"3"`
	Machine           string       `n:"4"`
	Node              string       `n:"5"` // empty: not known
	GraceSecs         int64        `n:"6"`
	PreemptorPriority int32        `n:"7"`
	Cause             ReclaimCause `n:"8"`
	Cancelled         bool         `n:"9"`
	Reason            string       `n:"10"`
}

// ReclaimCause says why a node goes. The numbers are those of the wire.
type ReclaimCause uint8

const (
	CauseVoluntary ReclaimCause = 1
	CausePreempt   ReclaimCause = 2
	CauseAdmin     ReclaimCause = 3
)

// SendNodeState tells an operator the state of one machine of its cluster. With Resync it is part of a replay.
type SendNodeState struct {
	Cluster  string            `n:"1"`
	Session  int64             `n:"2"`
	Machine  inventory.Machine `n:"3"` // as sent: state and cluster may differ from the provider's word
	Node     string            `n:"4"`
	Released bool              `n:"5"`
	For      demand.RowKey     `n:"6"`
	RowID    string            `n:"7"`
	Since    int64             `n:"8"` // wall clock
}

// SendHint tells an operator what could be had for one demanded shape.
type SendHint struct {
	Cluster      string               `n:"1"`
	Session      int64                `n:"2"`
	Fingerprint  string               `n:"3"`
	Requirements []demand.Requirement `n:"4"`
	Resources    []resource.Quantity  `n:"5"`
	Count        int64                `n:"6"`
	Confidence   Confidence           `n:"7"`
	PriceMicro   int64                `n:"8"`
	Reason       string               `n:"9"`
}

// Confidence of a hint. The numbers are those of the wire.
type Confidence uint8

const (
	ConfidenceNone   Confidence = 1
	ConfidenceLow    Confidence = 2
	ConfidenceMedium Confidence = 3
	ConfidenceHigh   Confidence = 4
)

// SendNeedStatus tells an operator the verdict on one row.
type SendNeedStatus struct {
	Cluster   string              `n:"1"`
	Session   int64               `n:"2"`
	RowID     string              `n:"3"`
	Key       demand.RowKey       `n:"4"`
	Satisfied bool                `n:"5"`
	Reason    int32               `n:"6"` // numbers of bigfleet.v1alpha1.UnmetReason
	Detail    int32               `n:"7"` // numbers of bigfleet.v1alpha1.NeedDetail
	Text      string              `n:"8"`
	Residual  []resource.Quantity `n:"9"`
	Since     int64               `n:"10"` // wall clock; 0 when satisfied
	OnTheWay  int64               `n:"11"`
}

// SendAck acknowledges a Hello or a roll-up, or ends a replay.
type SendAck struct {
	Cluster string  `n:"1"`
	Session int64   `n:"2"`
	Echo    string  `n:"3"`
	Hello   bool    `n:"4"`
	Term    int64   `n:"5"`
	Epoch   int64   `n:"6"`
	Rollup  *Rollup `n:"7"`
	Resync  int64   `n:"8"` // machines replayed, with the end marker
}

// Rollup is the result of a roll-up, for the operator.
type Rollup struct {
	Disposition Disposition `n:"1"`
	Timestamp   int64       `n:"2"`
	Reason      string      `n:"3"`
	Message     string      `n:"4"`
	NeedIndex   int64       `n:"5"`
	FieldPath   string      `n:"6"`
	HeldCount   int64       `n:"7"`
	HeldNeeded  int64       `n:"8"`
	Warnings    []Warning   `n:"9"`
}

// CloseSession ends a stream.
type CloseSession struct {
	Cluster string `n:"1"`
	Session int64  `n:"2"`
	Code    Code   `n:"3"`
	Reason  string `n:"4"`
}

// Persist writes one key of shard.db, or deletes it when Value is nil; it is not waited for.
type Persist struct {
	Bucket string `n:"1"`
	Key    string `n:"2"`
	Value  []byte `n:"3"`
}

// Notice is what the coordinator hears with the next report beside the answers to its instructions.
type Notice struct {
	GivenBack []string  `n:"1"` // machines whose exception ended here, once Store is on the disk
	Violated  string    `n:"2"` // a machine of ours that somebody else acted on
	Store     []Persist `n:"3"`
}

// Sample is one observation for one metric of the table in metric.go.
type Sample struct {
	Metric Metric `n:"1"`
	Label1 string `n:"2"`
	Label2 string `n:"3"`
	Value  int64  `n:"4"` // a count, or nanoseconds
}

// Superseded says that a newer process has this identity. It is a latch.
type Superseded struct {
	Evidence string `n:"1"`
}

// WakeAt asks for a Tick. Each one replaces the last.
type WakeAt struct {
	Mono int64 `n:"1"`
}

// AdminAnswer completes an AdminAsked.
type AdminAnswer struct {
	Ask    int64
	Code   Code
	Text   string
	Answer any // the answer type of the command, immutable
}

func (Command) effect() EffectKind        { return EffectCommand }
func (GetMachine) effect() EffectKind     { return EffectGet }
func (ListMachines) effect() EffectKind   { return EffectList }
func (PullBootstrap) effect() EffectKind  { return EffectPullBootstrap }
func (DropBlob) effect() EffectKind       { return EffectDropBlob }
func (SendReclaim) effect() EffectKind    { return EffectSendReclaim }
func (SendNodeState) effect() EffectKind  { return EffectSendNodeState }
func (SendHint) effect() EffectKind       { return EffectSendHint }
func (SendNeedStatus) effect() EffectKind { return EffectSendNeedStatus }
func (SendAck) effect() EffectKind        { return EffectSendAck }
func (CloseSession) effect() EffectKind   { return EffectCloseSession }
func (AckInstruction) effect() EffectKind { return EffectAckInstruction }
func (Notice) effect() EffectKind         { return EffectNotice }
func (Persist) effect() EffectKind        { return EffectPersist }
func (Record) effect() EffectKind         { return EffectRecord }
func (Sample) effect() EffectKind         { return EffectSample }
func (*Publish) effect() EffectKind       { return EffectPublish }
func (Superseded) effect() EffectKind     { return EffectSuperseded }
func (WakeAt) effect() EffectKind         { return EffectWakeAt }
func (AdminAnswer) effect() EffectKind    { return EffectAdminAnswer }

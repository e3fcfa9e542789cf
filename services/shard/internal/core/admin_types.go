package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"

// AdminCommand is one order of ShardAdmin (SHARD-24).
type AdminCommand uint8

const (
	AdminPause AdminCommand = iota + 1
	AdminResume
	AdminDryRun
	AdminRetry
	AdminForget
	AdminAcceptRollup
	AdminReconcile
	AdminRetire
	AdminUnretire
	AdminAbandon
	AdminClearBackoff
)

func (a AdminCommand) String() string {
	return [...]string{"", "pause", "resume", "dry_run", "retry_machine", "forget_machine", "accept_rollup", "reconcile_now",
		"retire_cluster", "unretire_cluster", "abandon_reservation", "clear_backoff"}[a]
}

// AdminAsked is an order of a person. What must survive a restart is stored before the core sees it (SHARD-5.4).
type AdminAsked struct {
	Ask     int64        `n:"1"` // answered by AdminAnswer with the same number
	Command AdminCommand `n:"2"`
	Actor   string       `n:"3"`
	Reason  string       `n:"4"`
	Check   bool         `n:"5"` // validate_only: answer, change nothing

	Pause    *Pause        `n:"6"`
	PauseID  string        `n:"7"`
	DryRun   bool          `n:"8"`
	Machine  string        `n:"9"`
	Cluster  string        `n:"10"`
	Provider string        `n:"11"`
	Bound    int64         `n:"12"`
	Pool     string        `n:"13"`
	Row      demand.RowKey `n:"14"`
	RowID    string        `n:"15"`
	Move     string        `n:"16"`
}

// Answers of AdminAnswer.
type (
	// AcceptedRollup answers AdminAcceptRollup.
	AcceptedRollup struct{ Before, After, Surplus int }
	// Reconciled answers AdminReconcile.
	Reconciled struct{ Machines, Rejected, Held int }
	// ForgottenCost answers AdminForget: what the machine cost an hour, in millionths of a dollar.
	ForgottenCost struct{ PriceMicro int64 }
	// Retired answers AdminRetire.
	Retired struct {
		Bound int
		Fresh int64
	}
)

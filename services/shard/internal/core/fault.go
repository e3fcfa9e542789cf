package core

// Faults are defects that tests plant, to show that the simulator finds them. The zero value plants none, and nothing
// outside tests can set another: the shell has no way to.
type Faults struct {
	OpenGateAtStart   bool // reclaim before demand is known
	SkipRollupGuard   bool
	SkipRemovalGuard  bool
	SkipReclaimBudget bool
	DropPendingCheck  bool // merge facts while a command is in flight
	IgnorePause       bool
	Unfence           bool // go on after a refusal by the fence
	ForgetIntent      bool // no promise on machines being created
	DrainWithoutAck   bool // voluntary drains do not wait for the cordon
	SilenceIsNoDemand bool // a closed session withdraws its demand
	RetryBlindly      bool // an unknown outcome is taken for a failure
	KeepStamp         bool // an Idle machine keeps the attribution of its last workload
	AcceptOldSession  bool // roll-ups of replaced sessions apply
	WallClockAges     bool // ages follow the wall clock
	SkipOwed          bool // facts set aside are never asked for again
}

// Plant sets defects. For tests.
func (c *Core) Plant(f Faults) { c.faults = f }

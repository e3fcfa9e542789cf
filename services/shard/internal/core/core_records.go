package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// RecordType says what a decision record is about. The numbers are those of bigfleet.v1alpha1.RecordType.
type RecordType uint8

const (
	RecordStarted          RecordType = 1
	RecordEnded            RecordType = 2
	RecordSuppressed       RecordType = 3
	RecordDryRun           RecordType = 4
	RecordRollupAccepted   RecordType = 5
	RecordRollupHeld       RecordType = 6
	RecordRollupRejected   RecordType = 7
	RecordGateOpened       RecordType = 8
	RecordMachineRejected  RecordType = 9
	RecordUnexpectedEdge   RecordType = 10
	RecordBindingConflict  RecordType = 11
	RecordMachineVanished  RecordType = 12
	RecordMachineStuck     RecordType = 13
	RecordMachineFailed    RecordType = 14
	RecordMachineRecovered RecordType = 15
	RecordBackoffChanged   RecordType = 16
	RecordRemovalsHeld     RecordType = 17
	RecordFence            RecordType = 18
	RecordSessionOpened    RecordType = 19
	RecordSessionClosed    RecordType = 20
	RecordInstruction      RecordType = 21
	RecordAdmin            RecordType = 22
	RecordOwnership        RecordType = 23
	RecordProcess          RecordType = 24
	RecordInterruption     RecordType = 25
)

// Record is one readable line of the decision log (SHARD-28.6). Money is in millionths of a dollar per hour.
type Record struct {
	Sequence int64      `n:"1"`
	Wall     int64      `n:"2"`
	Epoch    int64      `n:"3"`
	Cycle    int64      `n:"4"`
	Type     RecordType `n:"5"`
	Op       string     `n:"6"`
	Kind     Kind       `n:"7"`
	Machine  string     `n:"8"`
	Provider string     `n:"9"`
	Cluster  string     `n:"10"`

	Fingerprint string       `n:"11"`
	Group       string       `n:"12"`
	Priority    int32        `n:"13"`
	Cause       engine.Cause `n:"14"`
	Detail      string       `n:"15"`
	Cost        int64        `n:"16"`
	Score       int64        `n:"17"` // micro-points
	Price       int64        `n:"18"`
	Grace       int64        `n:"19"`

	PreemptorPriority int32           `n:"20"`
	Outcome           string          `n:"21"`
	Duration          int64           `n:"22"`
	Token             int64           `n:"23"`
	ProviderOp        string          `n:"24"`
	From              inventory.State `n:"25"`
	To                inventory.State `n:"26"`
	Actor             string          `n:"27"`
	RowID             string          `n:"29"`

	PreemptorCluster     string `n:"30"`
	PreemptorFingerprint string `n:"31"`
	Terms                Terms  `n:"34"`
	Domain               string `n:"35"`
	Node                 string `n:"36"`
	PreemptorRowID       string `n:"37"`
}

// Terms are the four terms of a victim score, in micro-points, as records keep them.
type Terms struct {
	Priority     int64 `n:"1"`
	Drain        int64 `n:"2"`
	Interruption int64 `n:"3"`
	Reclamation  int64 `n:"4"`
}

func termsOf(s engine.ScoreTerms) Terms { return Terms(s) }

// record numbers a record and emits it. The name of the machine's node is in it while the cluster reports the node: it is
// the only name that people know of a node that is gone.
func (c *step) record(r Record) {
	c.records++
	if cl := c.clusters.get(r.Cluster); cl != nil && r.Machine != "" && r.Node == "" {
		if n := cl.nodes[r.Machine]; n != nil {
			r.Node = n.name
		}
	}
	r.Sequence, r.Wall, r.Epoch = c.records, c.wall, c.epoch
	if r.Cycle == 0 {
		r.Cycle = c.cycle.N
	}
	c.emit(r)
}

// recordOp records something about an operation.
func (c *shared) recordOp(t RecordType, o *operation, outcome, detail string) {
	r := Record{Type: t, Op: o.ID, Cycle: o.Cycle, Kind: o.Kind, Machine: o.Machine, Provider: o.Provider, Cluster: o.Cluster,
		Fingerprint: o.Need.Fingerprint, Group: o.Need.Group, RowID: o.RowID, Priority: o.Priority, Cause: o.Cause, Detail: detail,
		Cost: o.Cost, Score: o.Score, Price: o.Price, Grace: o.Grace, PreemptorPriority: o.PreemptorPriority, Outcome: outcome,
		PreemptorCluster: o.PreemptorCluster, PreemptorFingerprint: o.Preemptor.Fingerprint, PreemptorRowID: o.PreemptorRowID, Terms: o.Terms, Domain: o.Domain,
		From: o.Before.State}
	if t == RecordEnded {
		r.Duration, r.Token, r.ProviderOp = c.now-o.Started, o.Token, o.ProviderOp
		if i, ok := c.world.Inventory.Find(o.Machine); ok {
			r.To = c.world.Inventory.State(i)
		}
	}
	c.record(r)
}

func (c *shared) recordOfDecision(t RecordType, d *decision) Record {
	v := &d.view
	return Record{Type: t, Kind: v.Kind, Machine: v.Machine, Provider: c.world.Inventory.Provider(d.index), Cluster: v.Cluster,
		Fingerprint: v.Row.Fingerprint, Group: v.Row.Group, RowID: v.RowID, Priority: v.Priority, Cause: v.Cause, Cost: v.Cost,
		Score: v.Score, Price: v.Price, Grace: v.Grace, PreemptorPriority: v.PreemptorPriority, PreemptorCluster: v.PreemptorCluster,
		PreemptorFingerprint: v.Preemptor.Fingerprint, PreemptorRowID: v.PreemptorRowID, Terms: termsOf(v.Terms), Domain: v.Domain, Cycle: d.cycle}
}

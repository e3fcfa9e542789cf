package coordinatortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ErrCrashed is what a Shard answers when a crash hook ended it in the middle of something.
var ErrCrashed = errors.New("the shard crashed")

// Reporter makes one ReportShard call.
type Reporter func(ctx context.Context, r *v1.ShardReport) (*v1.ReportAck, error)

// Shard is one simulated shard. Its methods are for one goroutine; Inventory may look at it at any time.
type Shard struct {
	ID, ProviderAddress string
	Inventory           *Inventory
	Legacy              bool // knows no extension: neither views nor moves
	Shortfalls          []*v1.Shortfall
	Clusters            []*v1.ClusterLink
	Supply              bool // report supply buckets
	// Busy are machines with an action in flight: the shard does not let go of them yet.
	Busy map[string]bool
	// Crash is asked between steps and ends the process there when it answers true.
	Crash func(step string) bool

	Epoch, Cycle int64
	Executed     map[string]int // by instruction kind: effective executions
	Address      string

	disk disk
	acks []*v1.InstructAck
}

// disk is what survives a crash.
type disk struct {
	view      *v1.ShardView
	term      int64
	uuid      string
	done      map[string]*v1.InstructAck
	reserved  map[string][]string // move -> machines
	adopted   map[string][]string
	given     map[string]bool // machines let go that no view has named yet
	cancelled map[string]bool
	domains   map[string]bool // an older shard's
}

func newDisk() disk {
	return disk{done: map[string]*v1.InstructAck{}, reserved: map[string][]string{}, adopted: map[string][]string{}, given: map[string]bool{},
		cancelled: map[string]bool{}, domains: map[string]bool{}}
}

// NewShard makes a shard of an inventory.
func NewShard(id string, v *Inventory) *Shard {
	s := &Shard{ID: id, ProviderAddress: "sim:9000", Inventory: v, Epoch: 1, Executed: map[string]int{}, Busy: map[string]bool{}, disk: newDisk(),
		Address: id + ":7780", Supply: true}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shards = append(v.shards, s)
	return s
}

// Restart ends the process and starts the next one: what was not on disk is gone.
func (s *Shard) Restart() {
	s.locked(func() { s.Epoch, s.Cycle, s.acks = s.Epoch+1, 0, nil })
}

// Wipe is a restart without the disk.
func (s *Shard) Wipe() {
	s.locked(func() { s.Epoch, s.Cycle, s.acks, s.disk = s.Epoch+1, 0, nil, newDisk() })
}

// Remove takes the shard's process away for good.
func (s *Shard) Remove() {
	s.locked(func() {
		s.Inventory.shards = slices.DeleteFunc(s.Inventory.shards, func(o *Shard) bool { return o == s })
	})
}

func (s *Shard) locked(f func()) {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	f()
}

// View is the one in force.
func (s *Shard) View() *v1.ShardView {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	return s.disk.view
}

// Term is the highest fencing term seen.
func (s *Shard) Term() int64 {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	return s.disk.term
}

// owns is COORD-9.3. Called with the inventory locked.
func (s *Shard) owns(m *Machine) bool {
	v := s.disk.view
	if m.Cluster != "" {
		switch m.Mark {
		case s.ID:
			return !slices.Contains(v.GetReleasedClusters(), m.Cluster)
		case "":
			return slices.Contains(v.GetOwnedClusters(), m.Cluster)
		}
		return slices.ContainsFunc(v.GetInherited(), func(i *v1.InheritedCluster) bool {
			return i.GetClusterId() == m.Cluster && slices.Contains(i.GetFromShardIds(), m.Mark)
		})
	}
	if s.held(m.ID) || s.disk.given[m.ID] {
		return false
	}
	for _, ids := range s.disk.adopted {
		if slices.Contains(ids, m.ID) {
			return true
		}
	}
	is := func(e *v1.MachineException) bool { return e.GetMachineId() == m.ID }
	if slices.ContainsFunc(v.GetExceptionsIn(), is) {
		return true
	}
	if v == nil || slices.ContainsFunc(v.GetExceptionsOut(), is) {
		return false
	}
	for _, key := range v.GetPartitionKeys() {
		here := func(d *v1.DomainRef) bool {
			return d.GetTopologyKey() == key && d.GetTopologyValue() == m.label(key)
		}
		if slices.ContainsFunc(v.GetOwnedDomains(), here) {
			return true
		}
		if slices.ContainsFunc(v.GetForeignDomains(), here) {
			return false
		}
	}
	return v.GetOnlyShard() || v.GetDefaultOwner()
}

// held reports whether a machine is reserved for a move.
func (s *Shard) held(id string) bool {
	for _, ids := range s.disk.reserved {
		if slices.Contains(ids, id) {
			return true
		}
	}
	return false
}

func (s *Shard) crash(step string) bool { return s.Crash != nil && s.Crash(step) }

// Build makes the next report.
func (s *Shard) Build() *v1.ShardReport {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	s.Cycle++
	total := int32(0)
	for _, m := range s.Inventory.machines {
		if s.owns(m) {
			total++
		}
	}
	r := &v1.ShardReport{ShardId: s.ID, Cycle: s.Cycle, ShardEpoch: s.Epoch, TimestampUnixNanos: time.Now().UnixNano(), ShardAddress: s.Address,
		Summary:    &v1.ShardSummary{TotalMachines: total, ProviderAddress: s.ProviderAddress},
		Shortfalls: s.Shortfalls, InstructionAcks: slices.Clone(s.acks)}
	if s.Legacy {
		return r
	}
	r.Capabilities, r.ObservedTerm, r.ClusterUuid = []string{"view/1", "moves/1"}, s.disk.term, s.disk.uuid
	r.Clusters, r.ClustersComplete = s.Clusters, true
	r.ViewVersion = s.disk.view.GetVersion()
	if s.Supply {
		r.Supply, r.SupplyComplete = s.supply(), true
	}
	return r
}

func (s *Shard) supply() []*v1.SupplyBucket {
	buckets := map[string]*v1.SupplyBucket{}
	for _, m := range s.Inventory.machines {
		if !s.owns(m) {
			continue
		}
		key := m.Type + "/" + m.Zone
		b := buckets[key]
		if b == nil {
			b = &v1.SupplyBucket{InstanceType: m.Type, Zone: m.Zone, CapacityType: v1.CapacityType_CAPACITY_TYPE_ON_DEMAND, PricePerHour: 1,
				Allocatable: &v1.Resources{Resources: map[string]string{"cpu": "4"}}}
			buckets[key] = b
		}
		switch m.State {
		case Idle:
			b.Idle++
		case Speculative:
			b.Speculative++
		case Configured:
			b.Configured++
		}
	}
	var out []*v1.SupplyBucket
	for _, key := range slices.Sorted(maps.Keys(buckets)) {
		out = append(out, buckets[key])
	}
	return out
}

// holdings is what a restored coordinator asks for.
func (s *Shard) holdings() *v1.Holdings {
	h := &v1.Holdings{Domains: s.disk.view.GetOwnedDomains(), ExceptionsOut: s.disk.view.GetExceptionsOut(), ReleasedClusters: s.disk.view.GetReleasedClusters()}
	h.ExceptionsIn = append(h.ExceptionsIn, s.disk.view.GetExceptionsIn()...)
	for _, move := range slices.Sorted(maps.Keys(s.disk.adopted)) {
		for _, id := range s.disk.adopted[move] {
			h.ExceptionsIn = append(h.ExceptionsIn, &v1.MachineException{MachineId: id, OwnerShardId: s.ID, MoveId: move})
		}
	}
	for _, move := range slices.Sorted(maps.Keys(s.disk.reserved)) {
		h.Reservations = append(h.Reservations, &v1.Reservation{MoveId: move, MachineIds: s.disk.reserved[move]})
	}
	return h
}

// Report makes one report and carries out the answer, as COORD-7.12 to 7.14 and 8.4 to 8.6 say.
func (s *Shard) Report(ctx context.Context, send Reporter) error {
	return s.report(ctx, send, s.Build())
}

func (s *Shard) report(ctx context.Context, send Reporter, r *v1.ShardReport) error {
	sent := len(r.GetInstructionAcks())
	if s.crash("before report") {
		return ErrCrashed
	}
	answer, err := send(ctx, r)
	if err != nil {
		return err // the acks stay in front of the queue
	}
	if s.crash("after report") {
		return ErrCrashed
	}
	if answer.GetCoordinatorTerm() < s.Term() {
		return nil // dropped whole
	}
	s.locked(func() {
		s.acks = s.acks[sent:]
		s.disk.term, s.disk.uuid = answer.GetCoordinatorTerm(), answer.GetClusterUuid()
	})
	if answer.GetSendHoldings() {
		next := s.Build()
		s.locked(func() { next.Holdings = s.holdings() })
		return s.report(ctx, send, next)
	}
	instructions := slices.Clone(answer.GetInstructions())
	slices.SortFunc(instructions, func(a, b *v1.CoordinatorInstruction) int {
		return int(a.GetSequenceNumber() - b.GetSequenceNumber())
	})
	for _, i := range instructions {
		if s.crash("before instruction") {
			return ErrCrashed
		}
		s.locked(func() {
			if a := s.execute(i); a != nil {
				s.acks = append(s.acks, a)
			}
		})
		if s.crash("after instruction") {
			return ErrCrashed
		}
	}
	return nil
}

// execute carries one instruction out. Called with the inventory locked.
func (s *Shard) execute(i *v1.CoordinatorInstruction) *v1.InstructAck {
	id := i.GetInstructionId()
	if id == "" {
		return nil
	}
	ack := func(o v1.InstructAck_Outcome, reason string, machines ...string) *v1.InstructAck {
		return &v1.InstructAck{InstructionId: id, Outcome: o, Reason: reason, MachineIds: machines}
	}
	if before := s.disk.done[id]; before != nil {
		again := proto.CloneOf(before)
		again.Reason = "duplicate"
		return again
	}
	if i.GetCoordinatorTerm() < s.disk.term {
		return ack(v1.InstructAck_OUTCOME_REJECTED_STALE, "")
	}
	machines, kind, err := s.handle(i)
	var failed *failedError
	switch {
	case errors.As(err, &failed):
		return ack(v1.InstructAck_OUTCOME_FAILED, failed.Error(), failed.machines...)
	case err != nil:
		return ack(v1.InstructAck_OUTCOME_REJECTED_INVALID, err.Error())
	}
	out := ack(v1.InstructAck_OUTCOME_ACCEPTED, "", machines...)
	s.disk.done[id] = out
	s.Executed[kind]++
	return out
}

type failedError struct{ machines []string }

func (e *failedError) Error() string { return fmt.Sprintf("waiting for %v", e.machines) }

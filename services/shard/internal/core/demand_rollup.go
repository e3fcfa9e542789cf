package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// rollupArrived applies a roll-up if its session is the cluster's current one and nothing newer was applied. The
// sender's timestamp orders nothing (SHARD-8.4). Exactly one disposition is sent (SHARD-8.6).
func (c *rollups) rollupArrived(e RollupArrived) {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) || e.Arrival <= cl.Arrival {
		return
	}
	cl.Arrival = e.Arrival
	c.beginRollup(cl, e)
}

// processRollup finds the disposition of a roll-up.
func (c *rollups) processRollup(cl *cluster, e RollupArrived) {
	if e.Reject == nil {
		if until, bad := c.poison[e.Hash]; bad && until > c.now {
			e.Reject = &Rejection{Reason: "poison", NeedIndex: -1,
				Message: "this roll-up made the shard fail before, so it is refused for 24 hours"}
		}
	}
	c.measure(&e)
	switch {
	case e.Reject != nil:
		c.rejectRollup(cl, e)
	case cl.Known && e.Hash == cl.Hash:
		c.rollupUnchanged(cl, e)
	default:
		c.judgeRollup(cl, e)
	}
	c.pub.notifyUnread(cl)
	cl.changed()
}

// measure counts what a roll-up is like.
func (c *step) measure(e *RollupArrived) {
	for _, w := range e.Warnings {
		c.sample(MetricRollupWarnings, w.Rule, 1)
	}
	if e.Bytes > 0 {
		c.sample(MetricRollupBytes, "", e.Bytes)
	}
}

// rejectRollup refuses a roll-up. The last accepted demand stays, the session lives, and nothing counts as a report
// (SHARD-8.7).
func (c *rollups) rejectRollup(cl *cluster, e RollupArrived) {
	r := e.Reject
	cl.Disposition, cl.DispAt, cl.DispReason = DispositionRejected, c.now, r.Reason
	c.sample(MetricRollups, DispositionRejected.String(), 1)
	c.emit(Sample{Metric: MetricRollupsRejected, Label1: cl.Name, Label2: r.Reason, Value: 1})
	c.record(Record{Type: RecordRollupRejected, Cluster: cl.Name, Outcome: r.Reason,
		Detail: fmt.Sprintf("%s (need %d, field %s)", r.Message, r.NeedIndex, r.FieldPath)})
	c.emit(SendAck{Cluster: cl.Name, Session: cl.Session, Echo: echoRejected + ":" + r.Reason, Rollup: &Rollup{
		Disposition: DispositionRejected, Timestamp: e.Timestamp, Reason: r.Reason, Message: r.Message, NeedIndex: r.NeedIndex,
		FieldPath: r.FieldPath, Warnings: e.Warnings}})
}

func (c *rollups) rollupUnchanged(cl *cluster, e RollupArrived) {
	c.confirm(cl)
	c.ackRollup(cl, e, DispositionUnchanged)
	c.tryGate(cl)
}

// confirm notes that a cluster states what it has stated before.
func (c *rollups) confirm(cl *cluster) {
	c.clearHeld(cl)
	c.heardFrom(cl)
	cl.Disposition, cl.DispAt, cl.DispReason = DispositionUnchanged, c.now, ""
}

func (c *rollups) ackRollup(cl *cluster, e RollupArrived, d Disposition) {
	c.sample(MetricRollups, d.String(), 1)
	c.emit(SendAck{Cluster: cl.Name, Session: cl.Session, Echo: echoRollup,
		Rollup: &Rollup{Disposition: d, Timestamp: e.Timestamp, NeedIndex: -1, Warnings: e.Warnings}})
}

// heardFrom notes that this session has delivered demand.
func (c *rollups) heardFrom(cl *cluster) {
	cl.Fresh = c.now
	if !cl.Heard {
		cl.Heard = true
		c.newcomer(cl)
		c.trigger(triggerSession)
	}
}

// judgeRollup asks the guard, replaces the demand and opens the gate: the one way in for every roll-up that passed the
// ingest gate (SHARD-11.1).
func (c *rollups) judgeRollup(cl *cluster, e RollupArrived) {
	if e.Reject = cmp.Or(c.tooManyKeys(&e), cl.stillTooWide(&e, c.now)); e.Reject != nil {
		c.rejectRollup(cl, e)
		return
	}
	totals := totalsOf(e.Rows)
	if why := cmp.Or(c.draining.hides(cl, e.OutOfService), c.suspicious(cl, &e, totals)); why != "" && !c.cfg.RollupGuardOff {
		if !cl.Held.add(c.now) {
			c.holdRollup(cl, e, why)
			return
		}
	}
	if c.isLarge(cl, &e) {
		c.stage(cl, e, totals)
		return
	}
	c.acceptRollup(cl, e, totals, c.world.Demand.StageAll(e.Rows))
}

func (c *rollups) holdRollup(cl *cluster, e RollupArrived, why string) {
	cl.HeldRollup = &e
	cl.Disposition, cl.DispAt, cl.DispReason = DispositionHeld, c.now, "guard"
	c.sample(MetricRollups, DispositionHeld.String(), 1)
	c.emit(Sample{Metric: MetricRollupQuarantined, Label1: cl.Name, Value: int64(cl.Held.Count)})
	c.record(Record{Type: RecordRollupHeld, Cluster: cl.Name, Outcome: "guard",
		Detail: fmt.Sprintf("%s; confirmation %d of %d", why, cl.Held.Count, guardReports)})
	c.emit(SendAck{Cluster: cl.Name, Session: cl.Session,
		Echo: echoHeld + ":" + strconv.Itoa(cl.Held.Count) + "/" + strconv.Itoa(guardReports),
		Rollup: &Rollup{Disposition: DispositionHeld, Timestamp: e.Timestamp, Reason: "guard", Message: why, NeedIndex: -1,
			HeldCount: int64(cl.Held.Count), HeldNeeded: guardReports, Warnings: e.Warnings}})
}

func (c *rollups) clearHeld(cl *cluster) {
	if cl.Held.Count > 0 {
		c.emit(Sample{Metric: MetricRollupQuarantined, Label1: cl.Name, Value: 0})
	}
	cl.Held, cl.HeldRollup = confirmation{}, nil
}

// acceptRollup makes a roll-up whose rows are staged the cluster's demand, and says so.
func (c *rollups) acceptRollup(cl *cluster, e RollupArrived, totals []resource.Quantity, rows *demand.Staging) {
	c.accept(cl, e, totals, rows)
	c.ackRollup(cl, e, DispositionAccepted)
	c.tryGate(cl)
}

func (c *rollups) accept(cl *cluster, e RollupArrived, totals []resource.Quantity, rows *demand.Staging) {
	c.clearHeld(cl)
	first := !cl.Known
	did := c.world.Demand.Commit(cl.Name, rows, e.Overhead, c.now)
	if c.ledger.learn(cl.Name, e.Rooms) {
		did.Changed = true
	}
	if did.Merged > 0 {
		c.sample(MetricRollupWarnings, "equal_rows", int64(did.Merged))
	}
	c.draining.setOutOfService(cl, e.OutOfService)
	cl.Known, cl.Hash, cl.Rows, cl.Totals = true, e.Hash, len(e.Rows), totals
	if cl.Width = e.Width; cl.Width.isWide() { // before it is planned with, the shell looks whether it is too wide
		c.cycle.next = true
	}
	cl.Disposition, cl.DispAt, cl.DispReason = DispositionAccepted, c.now, ""
	cl.holds = true
	c.heardFrom(cl)
	if did.Changed || first {
		c.record(Record{Type: RecordRollupAccepted, Cluster: cl.Name,
			Detail: fmt.Sprintf("A roll-up with %d rows: %d new, %d gone.", len(e.Rows), did.Added, did.Removed)})
	}
	if did.Changed {
		if e.Received == 0 || e.Received > c.now {
			e.Received = c.now
		}
		c.cycle.Rollups = append(c.cycle.Rollups, e.Received)
		c.trigger(triggerRollup)
	}
}

// suspicious says why a roll-up looks like an accident, or "" (SHARD-11.3). Empty lists, wiped stores and zeroed
// quantities are legal messages that mean "drain everything".
func (c *rollups) suspicious(cl *cluster, e *RollupArrived, totals []resource.Quantity) string {
	if !cl.Known {
		return ""
	}
	rows := len(e.Rows)
	if len(e.OutOfService) > 0 { // what is left out with its machines has not gone
		rows, totals = cl.Rows, c.withOutOfService(e, totals)
	}
	if cl.Rows >= guardRows && rows*10 < cl.Rows {
		return fmt.Sprintf("%d rows after %d", rows, cl.Rows)
	}
	if cl.bound() < guardRows || len(cl.Totals) == 0 {
		return ""
	}
	for _, was := range cl.Totals {
		if was.Milli > 0 && !belowTenth(amountOf(totals, was.Name), was.Milli) {
			return ""
		}
	}
	return "each requested resource fell below a tenth while machines are bound to the cluster"
}

// withOutOfService adds what the machines offer that a roll-up takes out of service to what it asks for.
func (c *rollups) withOutOfService(e *RollupArrived, totals []resource.Quantity) []resource.Quantity {
	sum := map[string]int64{}
	for _, q := range totals {
		sum[q.Name] = q.Milli
	}
	for k := range e.OutOfService {
		i, known := c.world.Inventory.Find(e.OutOfService[k].Machine)
		if !known || c.world.Inventory.Cluster(i) != e.Cluster {
			continue
		}
		m := c.world.Inventory.Machine(i)
		offer := m.Allocatable
		if len(offer) == 0 {
			offer = m.Resources
		}
		for _, q := range offer {
			sum[q.Name] = resource.AddSat(sum[q.Name], q.Milli)
		}
	}
	return sortedQuantities(sum)
}

// tryGate opens the cluster's reclaim gate, unless its first demand is next to nothing beside what is bound to it: then
// the same confirmation as of a suspicious roll-up is needed (SHARD-12.2, 12.3).
func (c *rollups) tryGate(cl *cluster) {
	if cl.GateOpen || !cl.Known {
		return
	}
	if !c.allListed() {
		cl.GateWaits = true
		return
	}
	cl.GateWaits = false
	if c.demandsLittle(cl) && !cl.Gate.add(c.now) {
		return
	}
	c.openGate(cl, "first roll-up of this process")
}

func (c *rollups) demandsLittle(cl *cluster) bool {
	if cl.bound() < guardRows {
		return false
	}
	for _, have := range c.boundSupply(cl) {
		if have.Milli > 0 && !belowTenth(amountOf(cl.Totals, have.Name), have.Milli) {
			return false
		}
	}
	return true
}

// boundSupply sums the allocatable of the machines bound to the cluster.
func (c *rollups) boundSupply(cl *cluster) []resource.Quantity {
	sum := map[string]int64{}
	for _, i := range c.machines.machinesOf(cl) {
		m := c.world.Inventory.Machine(i)
		if m.Cluster != cl.Name || !boundState(m.State) {
			continue
		}
		offer := m.Allocatable
		if len(offer) == 0 {
			offer = m.Resources
		}
		for _, q := range offer {
			sum[q.Name] = resource.AddSat(sum[q.Name], q.Milli)
		}
	}
	return sortedQuantities(sum)
}

func (c *rollups) openGate(cl *cluster, why string) {
	if cl.GateOpen {
		return
	}
	cl.GateOpen, cl.Gate, cl.facts = true, confirmation{}, true
	cl.changed()
	c.record(Record{Type: RecordGateOpened, Cluster: cl.Name, Detail: why})
	c.trigger(triggerRollup)
}

// confirmGate is not timed: reports confirm. It exists for gates that waited for the first Lists.
func (c *rollups) confirmGate(name string) {
	if cl := c.clusters.get(name); cl != nil && cl.GateWaits {
		c.tryGate(cl)
	}
}

func belowTenth(v, of int64) bool {
	hi, lo := bits.Mul64(uint64(max(v, 0)), 10)
	return hi == 0 && lo < uint64(of)
}

func totalsOf(rows []demand.Row) []resource.Quantity {
	sum := map[string]int64{}
	for i := range rows {
		for _, q := range rows[i].Aggregate {
			sum[q.Name] = resource.AddSat(sum[q.Name], max(q.Milli, 0))
		}
	}
	return sortedQuantities(sum)
}

func sortedQuantities(sum map[string]int64) []resource.Quantity {
	out := make([]resource.Quantity, 0, len(sum))
	for _, name := range sortedKeys(sum) {
		out = append(out, resource.Quantity{Name: name, Milli: sum[name]})
	}
	return out
}

func amountOf(list []resource.Quantity, name string) int64 {
	i, ok := slices.BinarySearchFunc(list, name, func(q resource.Quantity, n string) int { return strings.Compare(q.Name, n) })
	if !ok {
		return 0
	}
	return list[i].Milli
}

func (c *rollups) dropPoison() {
	for _, h := range sortedKeys(c.poison) {
		if c.poison[h] <= c.now {
			delete(c.poison, h)
			c.emit(Persist{Bucket: BucketPoison, Key: h})
		}
	}
}

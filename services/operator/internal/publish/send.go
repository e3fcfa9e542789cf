package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
)

// Run sends roll-ups when they are due, until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer p.turn.Store(0)
	for {
		p.turn.Store(time.Now().UnixNano())
		timer.Reset(min(p.step(time.Now()), p.Heartbeat)) // a turn at each heartbeat, whether or not there is a session
		p.report()
		p.turn.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// Alive is nil unless Run stands still: it turns at each heartbeat, so a turn that does not end waits for a lock that is
// never released, or for a receiver of an outcome. Only a restart helps then (OP-3.5).
func (p *Publisher) Alive() error {
	began := p.turn.Load()
	if still := time.Since(time.Unix(0, began)); began != 0 && still > p.Heartbeat+stuckAfter {
		return fmt.Errorf("the demand has not been checked for %s", still.Round(time.Second))
	}
	return nil
}

// report passes on what became of a roll-up that was not sent, and which requests a roll-up left out or took in again.
func (p *Publisher) report() {
	p.mu.Lock()
	o, turned := p.unreported, p.turned
	p.unreported, p.turned = nil, nil
	p.mu.Unlock()
	for _, key := range turned {
		p.OnProblem(key)
	}
	if o != nil {
		p.OnOutcome(*o)
	}
}

// step sends a roll-up if one is due, and returns the time until the next may be.
func (p *Publisher) step(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil || !p.synced {
		return time.Hour // the wake channel says when that changes
	}
	p.expireHolds(now)
	next := p.countUnclear(now)
	for _, at := range []time.Time{p.countExtras(now), p.confine(now)} {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if p.due().After(now) {
		return p.nextTurn(now, next)
	}
	p.send(now)
	return p.nextTurn(now, next)
}

// nextTurn is how long it is until a roll-up is due, or a request has waited long enough.
func (p *Publisher) nextTurn(now, waiting time.Time) time.Duration {
	wait := p.due().Sub(now)
	if !waiting.IsZero() {
		wait = min(wait, waiting.Sub(now))
	}
	return max(0, wait)
}

func (p *Publisher) due() time.Time {
	if p.urgent {
		return time.Time{}
	}
	due := p.last.Add(p.Heartbeat)
	if due.Before(p.rests) {
		due = p.rests
	}
	if !p.changed.IsZero() {
		at := p.changed.Add(p.Debounce)
		if earliest := p.nextAllowed.Add(-saved * spacing); at.Before(earliest) {
			at = earliest
		}
		if at.Before(p.rests) {
			at = p.rests
		}
		if at.Before(due) {
			due = at
		}
	}
	return due
}

// send builds a roll-up and hands it to the session.
func (p *Publisher) send(now time.Time) {
	start := time.Now()
	if p.urgent || now.Sub(p.built) >= rebuildEvery {
		p.rebuild()
		p.built = now
	}
	listed := time.Now()
	out := p.suspend()
	p.follow(now)
	needs := p.build(now)
	needs.OutOfService = out
	p.turned = append(p.turned, p.demand.TakeTurned()...)
	if p.OnKeys != nil {
		p.OnKeys(labelKeys(needs.Needs))
	}
	size := proto.Size(needs)
	built := time.Now()
	p.last, p.changed, p.urgent = now, time.Time{}, false
	if p.nextAllowed.Before(now) {
		p.nextAllowed = now
	}
	p.nextAllowed = p.nextAllowed.Add(spacing)
	p.Instruments.RollupBytes.Set(float64(size))
	p.Instruments.RollupRows.Set(float64(len(needs.Needs)))
	p.gauge()
	p.rests = now.Add(restAfter(size))
	if limit := p.limit(); size > limit {
		p.tooLarge(now, size, limit, len(needs.Needs))
		return
	}
	p.oversized = false
	p.Log.Debug("a roll-up is sent", "timestamp", needs.TimestampUnixNanos, "rows", len(needs.Needs), "bytes", size)
	p.link.Rollup(needs)
	p.tracker.sent(needs.TimestampUnixNanos, now, p.demand.TakeWaiting(), outcomeOf(needs, size, p.change))
	p.settle(now)
	done := time.Now()
	p.Instruments.RollupPhase.WithLabelValues("list").Observe(listed.Sub(start).Seconds())
	p.Instruments.RollupPhase.WithLabelValues("build").Observe(built.Sub(listed).Seconds())
	p.Instruments.RollupPhase.WithLabelValues("enqueue").Observe(done.Sub(built).Seconds())
	p.Instruments.RollupDuration.Observe(done.Sub(start).Seconds())
}

// suspend lists the machines out of service and leaves the demand of the Pods on them out, so that supply and demand change in
// one frame. A shard without the feature gets neither.
func (p *Publisher) suspend() (machines []*pb.MachineOutOfService) {
	if p.OutOfService == nil {
		return nil
	}
	var left []types.UID
	if p.greeted && p.link.Has(outofservice.Feature) {
		machines, left = p.OutOfService()
	}
	now := make(map[aggregate.Key]bool, len(left))
	for _, uid := range left {
		if r, ok := p.byPod[uid]; ok {
			now[r.key] = true
			p.demand.Suspend(r.key)
		}
	}
	for key := range p.suspended {
		if !now[key] {
			p.demand.Resume(key)
		}
	}
	p.suspended = now
	return machines
}

// labelKeys are the keys of node labels that rows select, or spread and gather by, sorted.
func labelKeys(needs []*pb.CapacityNeed) []string {
	keys := map[string]bool{}
	for _, n := range needs {
		for _, r := range n.Requirements {
			keys[r.Key] = true
		}
		for _, s := range n.Spread {
			keys[s.TopologyKey] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (p *Publisher) build(now time.Time) *pb.ClusterCapacityNeeds {
	p.timestamp = max(now.UnixNano(), p.timestamp+1) // strictly grows, so that an acknowledgement names one roll-up (OP-5.4)
	needs := &pb.ClusterCapacityNeeds{ClusterId: p.ClusterID, TimestampUnixNanos: p.timestamp, Needs: p.demand.Needs()}
	if p.Overhead != nil {
		needs.NodeOverhead = p.Overhead()
	}
	if p.Rooms != nil && p.demand.Limits() {
		needs.NodeRooms = p.Rooms()
	}
	return needs
}

// rebuild computes the demand again from the requests. A difference is a bug of ours; the rebuild wins (OP-5.9).
func (p *Publisher) rebuild() {
	fresh, equal := p.demand.Rebuild(p.demand.Requests())
	if !equal {
		p.Instruments.AggregationMismatch.Inc()
		p.Log.Error("the incremental demand differed from a rebuild; the rebuild is used")
	}
	p.demand = fresh
}

// limit is the size of the largest roll-up that is sent.
func (p *Publisher) limit() int {
	if stated := p.link.RollupBytesMax(); stated > 0 {
		return int(min(stated, hardBytesMost))
	}
	return hardBytes
}

// restAfter is how much longer the next roll-up waits behind one of this size: large ones slow down, so that a cluster with very many
// shapes costs its shard a bounded part of a processor.
func restAfter(size int) time.Duration {
	return time.Duration(max(0, size-BytesSoft)) * time.Second / bytesPerSecond
}

func (p *Publisher) tooLarge(now time.Time, size, limit, rows int) {
	p.Instruments.Rollups.WithLabelValues("too_large").Inc()
	if !p.oversized {
		p.Log.Error("the roll-up is too large to send; the shard keeps the last demand", "bytes", size, "limit", limit, "rows", rows)
	}
	p.oversized = true
	p.unreported = &Outcome{At: now, Result: "too_large", Rows: rows, Bytes: size, Reason: "too_large",
		Text: "the demand has more distinct shapes than a roll-up can hold; requests with equal constraints aggregate"}
}

func (p *Publisher) gauge() {
	acknowledged, pending := p.demand.Phases()
	p.Instruments.Requests.WithLabelValues("Acknowledged").Set(float64(acknowledged))
	p.Instruments.Requests.WithLabelValues("Pending").Set(float64(pending))
	p.Instruments.RequestsInvalid.Set(float64(p.demand.Invalid()))
}

// release hands requests to the Acknowledger, those that still wait.
func (p *Publisher) release(keys []aggregate.Key) {
	out := keys[:0]
	for _, k := range keys {
		if p.demand.Waits(k) {
			out = append(out, k)
		}
	}
	if len(out) > 0 {
		p.Acknowledge(out)
	}
}

package ledger

import (
	"maps"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

const (
	day          = 24 * 3600 * engine.Second
	NominalCycle = 10 * engine.Second
	reportLife   = 2 * NominalCycle // a report of unplaced Pods older than two heartbeats says nothing (ENG-11.11)
)

// levels are the sharing levels in per mille (ENG-11.10).
var levels = [...]int32{1000, 500, 0}

// SharingLevels lists the levels that clusters can have, per mille, highest first.
func SharingLevels() []int32 { return levels[:] }

// Sharing is the ledger of the sharing level of each cluster (ENG-11.10 to 11.15): it goes down while the scheduler
// cannot place Pods on capacity that shares said was there, and up again after a calm time. The core reports
// sessions and unplaced Pods to it, passes it each plan, and copies the level into demand.Facts and the marks into
// demand.Table.SetUnplaced. The zero value is an empty ledger.
type Sharing struct {
	clusters map[string]*sharingEntry
}

type sharingEntry struct {
	declared   bool // the live session, or else the last one, sends reports
	live       bool
	level      int
	downs      []int64 // steps down in the last 24 h, oldest first
	lastChange int64
	lastStuck  int64
	reported   map[demand.RowKey]int64 // how many Pods
	reportedAt int64
	since      map[demand.RowKey]int64 // since when a reported row has been MET with Ready machines
	waits      map[demand.RowKey]int64 // reported rows that waited for machines: when that ended; waiting: not yet
	headroom   headroom
	elsewhere  elsewhere
	inherited  []KeptRow // of the process before, until the cluster says what it asks for
}

func (s *Sharing) entry(cluster string) *sharingEntry {
	if s.clusters == nil {
		s.clusters = map[string]*sharingEntry{}
	}
	e := s.clusters[cluster]
	if e == nil {
		e = &sharingEntry{since: map[demand.RowKey]int64{}, headroom: headroom{rows: map[demand.RowKey]rowHeadroom{}}, elsewhere: elsewhere{rows: map[demand.RowKey]rowElsewhere{}}}
		s.clusters[cluster] = e
	}
	return e
}

// Session records a new session of the cluster and whether it declares that it reports unplaced Pods.
func (s *Sharing) Session(cluster string, declared bool) {
	e := s.entry(cluster)
	e.declared, e.live = declared, true
	e.elsewhere.stated, e.elsewhere.unbound = false, nil
}

// SessionClosed records that no session lives. Until the next one the level stands.
func (s *Sharing) SessionClosed(cluster string) { s.entry(cluster).live = false }

// Report takes the rows whose Pods the scheduler of a cluster could not place, and how many. A report replaces the one before.
func (s *Sharing) Report(cluster string, pods map[demand.RowKey]int64, now int64) {
	e := s.entry(cluster)
	e.reported, e.reportedAt = pods, now
}

// Forget drops a cluster.
func (s *Sharing) Forget(cluster string) { delete(s.clusters, cluster) }

// PerMille is the level of a cluster.
func (s *Sharing) PerMille(cluster string) int32 {
	e := s.clusters[cluster]
	if e == nil || !e.declared {
		return 0
	}
	return levels[e.level]
}

// Observe takes a plan and updates levels and headroom. It returns the clusters whose level changed, and those whose headroom
// changed, ascending.
func (s *Sharing) Observe(w *engine.World, r *engine.Result, p *engine.Policy) (changed, headroom []string) {
	for at, b := range r.Blocks { // by cluster
		c := b.Cluster
		e := s.clusters[c]
		if e == nil || !e.live {
			continue
		}
		stuck, shared := e.stuck(w, r, b, int32(at), p)
		if stuck {
			e.lastStuck = r.Now
		}
		if e.observeElsewhere(w, b, r.Now, p) || (len(e.since) > 0 || len(e.headroom.rows) > 0) && e.observeHeadroom(w, b, r.Now, p) {
			headroom = append(headroom, c)
		}
		e.downs = slices.DeleteFunc(e.downs, func(t int64) bool { return r.Now-t >= day })
		switch {
		case stuck && shared && e.level < len(levels)-1 && (len(e.downs) == 0 || r.Now-e.downs[len(e.downs)-1] >= p.SharingStep):
			e.level++
			e.downs = append(e.downs, r.Now)
			e.lastChange = r.Now
			changed = append(changed, c)
		case e.level > 0 && r.Now-max(e.lastStuck, e.lastChange) >= e.calm(p):
			e.level--
			e.lastChange = r.Now
			changed = append(changed, c)
		}
	}
	return changed, headroom
}

// calm is how long nothing may be stuck before the level goes up: doubled for each step down in the last day, at most a
// day (ENG-11.13).
func (e *sharingEntry) calm(p *engine.Policy) int64 {
	return doubled(p.SharingCalm, len(e.downs))
}

// stuck reports whether some row is stuck (ENG-11.11), and whether one of those receives or gives shares.
func (e *sharingEntry) stuck(w *engine.World, r *engine.Result, b *engine.Block, at int32, p *engine.Policy) (stuck, shared bool) {
	fresh := r.Now-e.reportedAt <= reportLife
	if len(e.since) == 0 && len(e.waits) == 0 && (!fresh || len(e.reported) == 0) {
		return false, false
	}
	coming := arrivals{w: w, cluster: w.Demand.Cluster(b.Cluster)}
	for i := range b.Needs {
		k := b.Needs[i].RowKey()
		reported := fresh && e.reported[k] > 0
		covered := reported && b.Verdicts[i].Status == engine.Met && allReady(w, b, r, engine.Ref{Block: at, Row: int32(i)})
		e.wait(k, reported, !covered || coming.awaits(b, &b.Needs[i]), r.Now)
		if !covered {
			delete(e.since, k)
			continue
		}
		since, known := e.since[k]
		if !known {
			e.since[k], since = r.Now, r.Now
		}
		if r.Now-since >= p.StuckAfter {
			stuck = true
			shared = shared || sharesWith(b, effectiveRow(b, int32(i)))
		}
	}
	gone := func(k demand.RowKey, _ int64) bool { return e.reported[k] == 0 }
	maps.DeleteFunc(e.since, gone)
	maps.DeleteFunc(e.waits, gone)
	return stuck, shared
}

// waiting stands for a row that waits for machines.
const waiting = math.MaxInt64

// wait keeps when a reported row last waited for machines.
func (e *sharingEntry) wait(k demand.RowKey, reported, waits bool, now int64) {
	switch {
	case !reported:
		delete(e.waits, k)
	case waits:
		if e.waits == nil {
			e.waits = map[demand.RowKey]int64{}
		}
		e.waits[k] = waiting
	case e.waits[k] == waiting:
		e.waits[k] = now
	}
}

// allThere reports whether every machine that the Pods of a row could use was there when they were last reported. A report from
// before says nothing: the scheduler had not tried the machines that came last (ENG-11.16).
func (e *sharingEntry) allThere(k demand.RowKey) bool {
	at, waited := e.waits[k]
	return !waited || e.reportedAt > at
}

// effectiveRow is the row itself, or the folded Need it is a member of.
func effectiveRow(b *engine.Block, row int32) int32 {
	if f := b.Verdicts[row].Fold; f >= 0 {
		return f
	}
	return row
}

// allReady reports whether each machine behind a row is Ready as far as reported.
func allReady(w *engine.World, b *engine.Block, _ *engine.Result, ref engine.Ref) bool {
	row := effectiveRow(b, ref.Row)
	ok := func(i inventory.Index) bool {
		rd := w.Inventory.Readiness(i)
		return rd != inventory.NotReady && rd != inventory.ReadyLost
	}
	for _, c := range b.Claims {
		if c.Row == row && !ok(c.Machine) {
			return false
		}
	}
	for _, s := range b.Shares {
		if s.Row == row && !ok(s.Machine) {
			return false
		}
	}
	return true
}

// sharesWith reports whether a Need receives shares, or others have shares on machines it claims.
func sharesWith(b *engine.Block, row int32) bool {
	on := map[inventory.Index]bool{}
	for _, s := range b.Shares {
		if s.Row == row {
			return true
		}
		on[s.Machine] = true
	}
	return slices.ContainsFunc(b.Claims, func(c engine.Claim) bool { return c.Row == row && on[c.Machine] })
}

// Unplaced reports whether a row is stuck: its Pods cannot be placed although it has been covered for long enough. The
// core marks it with demand.Table.SetUnplaced, which its verdict shows (ENG-11.14).
func (s *Sharing) Unplaced(cluster string, row demand.RowKey, now int64, p *engine.Policy) bool {
	e := s.clusters[cluster]
	if e == nil {
		return false
	}
	since, ok := e.since[row]
	return ok && now-since >= p.StuckAfter
}

// ClustersStuck lists the clusters that may have rows of which Unplaced is true, ascending: those with reports that count.
func (s *Sharing) ClustersStuck() (out []string) {
	for c, e := range s.clusters {
		if len(e.since) > 0 {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// SharingEntry is the ledger of one cluster.
type SharingEntry struct {
	Cluster           string           `n:"1"`
	Declared          bool             `n:"2"`
	Level             int32            `n:"3"` // steps down from 1000 per mille
	Downs             []int64          `n:"4"`
	LastChange        int64            `n:"5"`
	LastStuck         int64            `n:"6"`
	ReportedAt        int64            `n:"7"`
	Reported          []demand.RowKey  `n:"8"`
	Since             []SharingStuckAt `n:"9"`
	Live              bool             `n:"10"`
	Pods              []int64          `n:"11"` // of each row of Reported
	Headroom          []HeadroomEntry  `n:"12"`
	HeadroomGrown     []int64          `n:"13"`
	HeadroomStuck     []HeadroomEntry  `n:"14"` // Pods reported when headroom last grew
	HeadroomAsked     int64            `n:"15"`
	HeadroomHelped    bool             `n:"16"`
	HeadroomFruitless int32            `n:"17"`
	HeadroomMost      int64            `n:"18"`
	Waits             []SharingStuckAt `n:"19"`
	Elsewhere         []ElsewhereEntry `n:"20"`
	Vacant            []VacantEntry    `n:"21"`
	StatesUnbound     bool             `n:"22"`
	Unbound           []demand.RowKey  `n:"23"`
	Inherited         []KeptRow        `n:"24"`
}

// SharingStuckAt says since when a reported row has been met, or until when it waited for machines.
type SharingStuckAt struct {
	Row demand.RowKey `n:"1"`
	At  int64         `n:"2"`
}

// Entries lists the ledger by cluster.
func (s *Sharing) Entries() []SharingEntry {
	out := make([]SharingEntry, 0, len(s.clusters))
	for _, c := range sortedKeys(s.clusters) {
		e := s.clusters[c]
		x := SharingEntry{Cluster: c, Declared: e.declared, Level: int32(e.level), Downs: slices.Clone(e.downs), Live: e.live, LastChange: e.lastChange,
			LastStuck: e.lastStuck, ReportedAt: e.reportedAt}
		x.Reported = slices.SortedFunc(maps.Keys(e.reported), compareRowKeys)
		for _, k := range x.Reported {
			x.Pods = append(x.Pods, e.reported[k])
		}
		for _, k := range slices.SortedFunc(maps.Keys(e.headroom.rows), compareRowKeys) {
			x.Headroom = append(x.Headroom, e.headroom.rows[k].entry(k))
		}
		for _, k := range slices.SortedFunc(maps.Keys(e.headroom.stuck), compareRowKeys) {
			x.HeadroomStuck = append(x.HeadroomStuck, HeadroomEntry{Row: k, Pods: e.headroom.stuck[k]})
		}
		x.HeadroomGrown, x.HeadroomAsked = slices.Clone(e.headroom.grown), e.headroom.asked
		x.HeadroomHelped, x.HeadroomFruitless, x.HeadroomMost = e.headroom.helped, e.headroom.fruitless, e.headroom.most
		x.Since, x.Waits = times(e.since), times(e.waits)
		e.elsewhere.save(&x)
		x.Inherited = slices.Clone(e.inherited)
		out = append(out, x)
	}
	return out
}

func times(m map[demand.RowKey]int64) (out []SharingStuckAt) {
	for _, k := range slices.SortedFunc(maps.Keys(m), compareRowKeys) {
		out = append(out, SharingStuckAt{k, m[k]})
	}
	return out
}

// Restore replaces the ledger.
func (s *Sharing) Restore(entries []SharingEntry) {
	s.clusters = make(map[string]*sharingEntry, len(entries))
	for _, x := range entries {
		e := &sharingEntry{declared: x.Declared, live: x.Live, level: min(max(int(x.Level), 0), len(levels)-1), downs: slices.Clone(x.Downs),
			lastChange: x.LastChange, lastStuck: x.LastStuck, reportedAt: x.ReportedAt,
			reported: map[demand.RowKey]int64{}, since: map[demand.RowKey]int64{},
			headroom: headroom{rows: map[demand.RowKey]rowHeadroom{}, stuck: map[demand.RowKey]int64{}, grown: slices.Clone(x.HeadroomGrown), asked: x.HeadroomAsked, helped: x.HeadroomHelped, fruitless: x.HeadroomFruitless, most: max(x.HeadroomMost, x.HeadroomAsked)}}
		for i, k := range x.Reported {
			e.reported[k] = 1
			if i < len(x.Pods) {
				e.reported[k] = x.Pods[i]
			}
		}
		for _, r := range x.HeadroomStuck {
			e.headroom.stuck[r.Row] = r.Pods
		}
		for _, r := range x.Headroom {
			e.headroom.rows[r.Row] = r.headroom()
		}
		for _, a := range x.Since {
			e.since[a.Row] = a.At
		}
		for _, a := range x.Waits {
			if e.waits == nil {
				e.waits = map[demand.RowKey]int64{}
			}
			e.waits[a.Row] = a.At
		}
		e.elsewhere.restore(&x)
		e.inherited = slices.Clone(x.Inherited)
		s.clusters[x.Cluster] = e
	}
}

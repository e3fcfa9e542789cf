package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inspect"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ReplayConfig says which part of a decision log to run again (SHARD-28.10).
type ReplayConfig struct {
	// Dir is a log directory, or a data directory that holds one as "decisions".
	Dir         string
	Epoch       int64 // only the process of this epoch; 0: the newest
	FromSegment int64 // 0: the first that is there
	StopAt      int64 // stop before this step; 0: at the end
	Records     bool  // write each decision record as a JSON line
	State       bool  // write the machines and clusters of the end

	// Plan plans once more at the end, with these edits and without, as ShardRead.Plan does of the present.
	Plan *pb.PlanRequest
	// Policy sets constants of the engine otherwise for the edited plan, by the names of ENG-24: ParkAfter=4, JoinTimeout=5m.
	Policy map[string]string

	// Cost follows what the machines cost.
	Cost *ReplayCost
}

// ReplayResult is how a replay went. What it says stands even where the log is damaged: it is about everything before.
type ReplayResult struct {
	Shard, Version string // of the process that wrote the log
	Epoch          int64
	Segments       int
	Steps, Records int64 // taken again; decision records that came out equal, byte for byte
	Digests        int   // of the core, compared
	Lost           int64 // entries that the log says are missing
	Stopped        bool  // at StopAt
	Damage         *LogDamage
	Plan           *pb.PlanResponse `json:"-"` // of ReplayConfig.Plan; a message, for protojson
	Costs          []*pb.CostPoint  `json:"-"` // of ReplayConfig.Cost, oldest first; the last is the end of the log
	Spent          float64          `json:"-"` // dollars over the whole log, of ReplayConfig.Cost
}

// LogDamage is where a decision log stops being readable.
type LogDamage struct {
	File   string
	Offset int64  // of the block that cannot be used, in bytes
	Entry  int64  // number of the first entry that cannot be used, from 1 over the whole file
	Why    string // in words
	Tail   bool   // the file ends there, as after a crash
}

func (d *LogDamage) Error() string {
	return fmt.Sprintf("%s: at byte %d, entry %d: %s", d.File, d.Offset, d.Entry, d.Why)
}

// ErrReplayDiverged says that the core of this build decides differently from how it did when the log was written.
var ErrReplayDiverged = audit.ErrDiverged

// Replay runs a decision log through the core of this build, compares every digest and every decision record of the log
// with what comes out, and writes a summary to out. It needs no server and changes no file. The error is
// ErrReplayDiverged when something came out differently; damage to the log is not an error but in the result.
func Replay(ctx context.Context, c ReplayConfig, out io.Writer) (ReplayResult, error) {
	dir := c.Dir
	if info, err := os.Stat(filepath.Join(dir, "decisions")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, "decisions")
	}
	if info, err := os.Stat(dir); err != nil {
		return ReplayResult{}, err
	} else if !info.IsDir() {
		return ReplayResult{}, fmt.Errorf("%s is a file; name the directory that holds the segments", dir)
	}
	r := audit.Replay{Dir: dir, Epoch: c.Epoch, From: c.FromSegment, StopAt: c.StopAt}
	var failed error
	if c.Records {
		r.OnRecord = func(x *pb.DecisionRecord) {
			if raw, err := protojson.Marshal(x); err == nil && failed == nil {
				_, failed = fmt.Fprintf(out, "%s\n", raw)
			}
		}
	}
	var seen core.Publish // where the clocks stand, and what readers last saw
	r.OnEffects = func(_ int64, at core.At, _ core.Event, effects []core.Effect) {
		for _, e := range effects {
			if p, ok := e.(*core.Publish); ok {
				seen = *p
			}
		}
		seen.At, seen.Offset = at.Mono, at.Wall-at.Mono
	}
	var costs *costs
	if c.Cost != nil {
		costs = newCosts(*c.Cost)
		r.Before = costs.before
	}
	got, err := r.Run(ctx)
	result := ReplayResult{Shard: got.Shard, Version: got.Version, Epoch: got.Epoch, Segments: got.Segments, Steps: got.Steps,
		Records: got.Records, Digests: got.Digests, Lost: got.Lost, Stopped: got.Stopped}
	if costs != nil && got.Core != nil {
		result.Costs = costs.end(seen.At+seen.Offset, got.Core)
		result.Spent = costs.spent / 1e6
	}
	if d := got.Damage; d != nil {
		result.Damage = &LogDamage{File: d.File, Offset: d.Offset, Entry: d.Entry, Why: d.Why, Tail: d.Tail}
	}
	if failed == nil && got.Core != nil {
		failed = result.write(out, got.Core, c.State)
	}
	if failed == nil && got.Core != nil && (c.Plan != nil || len(c.Policy) > 0) {
		failed = result.plan(c, got.Core, &seen)
	}
	return result, errors.Join(err, failed)
}

// plan answers what would have been planned next, and what with the edits.
func (r *ReplayResult) plan(c ReplayConfig, at *core.Core, seen *core.Publish) error {
	var limits Config
	limits.defaults()
	gate, err := ingest.New(ingest.Limits{RollupBytes: limits.RollupBytesMax, RollupNeeds: int64(limits.RollupNeedsMax)})
	if err != nil {
		return err
	}
	q := c.Plan
	if q == nil {
		q = &pb.PlanRequest{}
	}
	ask := inspect.Replan{Core: at, View: seen, ShardID: r.Shard, Gate: gate, Policy: c.Policy}
	for _, p := range seen.Status.Providers {
		ask.Providers = append(ask.Providers, p.Name)
	}
	if r.Plan, err = ask.Run(q); err != nil {
		return fmt.Errorf("the requested plan: %w", err)
	}
	return nil
}

// write says in a few lines what was replayed, and what came out of it.
func (r *ReplayResult) write(out io.Writer, c *core.Core, state bool) error {
	_, err := fmt.Fprintf(out, "shard %s, epoch %d, version %s: %d segments, %d steps, %d cycles\n%d decision records and %d digests are as they were\nstate %016x\n",
		r.Shard, r.Epoch, r.Version, r.Segments, r.Steps, c.Cycle(), r.Records, r.Digests, c.StateDigest())
	if err != nil {
		return err
	}
	if r.Lost > 0 {
		fmt.Fprintf(out, "%d entries are missing, as the log itself records; the replay continued at the next checkpoint\n", r.Lost)
	}
	if d := r.Damage; d != nil {
		why := "the log is damaged"
		if d.Tail {
			why = "the log ends early, as after a crash"
		}
		fmt.Fprintf(out, "%s at byte %d, entry %d of %s: %s\neverything before it was replayed\n", why, d.Offset, d.Entry, d.File, d.Why)
	}
	if !state {
		return nil
	}
	return writeState(out, c)
}

// writeState lists what the core knows of machines and clusters.
func writeState(out io.Writer, c *core.Core) error {
	after, more := "", true
	for more {
		ids := c.Ids(after, 4096)
		more = len(ids) == 4096
		for _, id := range ids {
			m, _ := c.Machine(id)
			cluster := m.Machine.Cluster
			if cluster == "" {
				cluster = m.Intended
			}
			if _, err := fmt.Fprintf(out, "machine %s %s %s %s cluster=%q need=%q operation=%q\n", id, m.Machine.State, m.Machine.InstanceType,
				m.Machine.Zone, cluster, m.Attribution.Fingerprint, m.Op); err != nil {
				return err
			}
			after = id
		}
	}
	for _, v := range c.Clusters() {
		fmt.Fprintf(out, "cluster %s connected=%t needs=%d gate=%t configured=%d\n", v.Name, v.Connected, v.Needs, v.GateOpen, v.States[inventory.Configured])
	}
	return nil
}

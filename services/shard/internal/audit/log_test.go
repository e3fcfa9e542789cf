package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history is a core that is driven by hand and written to a log.
type history struct {
	log    *Log
	core   *core.Core
	at     core.At
	errors atomic.Int64
	edit   func(*core.Record) // changes what the log receives
	stop   func() error
}

func newHistory(t *testing.T, dir string, edit func(*Config)) *history {
	h := &history{core: core.New(nil), at: core.At{Mono: 1, Wall: time.Now().UnixNano()}}
	c := Config{Dir: dir, Shard: "s", Epoch: 7, Log: slog.New(slog.DiscardHandler), OnError: func() { h.errors.Add(1) }}
	if edit != nil {
		edit(&c)
	}
	h.log = New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			err := h.log.Run(ctx)
			if err == nil || ctx.Err() != nil {
				done <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	h.stop = func() error { cancel(); return <-done }
	return h
}

func (h *history) step(e core.Event) {
	h.at.Mono += core.Second
	h.at.Wall += core.Second
	effects := h.core.Step(h.at, e)
	h.log.Event(h.core.Steps(), h.at, h.core.Reduced(e), h.core.Digest())
	for _, x := range effects {
		switch x := x.(type) {
		case core.Record:
			if h.edit != nil {
				h.edit(&x)
			}
			h.log.Record(&x)
		case core.CheckpointTaken:
			h.log.Checkpoint(h.at, h.core.Steps(), x.State, h.core.Digest())
		}
	}
}

func (h *history) begin() {
	h.step(core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}}, Epoch: 7})
	var rows []core.Fact
	for i := range 20 {
		rows = append(rows, core.Fact{Machine: inventory.Machine{ID: fmt.Sprintf("m%d", i), Provider: "p", State: inventory.Speculative,
			CapacityType: inventory.Spot, Price: 1000, Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}}}})
	}
	h.step(core.ListPage{List: 1, Rows: rows})
	h.step(core.ListDone{List: 1, Complete: true, Seen: 20})
}

func (h *history) live(clusters int) {
	for i := range clusters {
		name := fmt.Sprintf("c%d", i)
		h.step(core.SessionOpened{Cluster: name, Session: int64(i + 1)})
		row := demand.Row{Aggregate: []resource.Quantity{{Name: "cpu", Milli: 3000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
		row.Seal()
		h.step(core.RollupArrived{Cluster: name, Session: int64(i + 1), Arrival: int64(i + 1), Rows: []demand.Row{row}, Hash: name})
		h.step(core.Tick{})
	}
}

// SHARD-28.2, scenario 71: the log replays to the same digests from its beginning and from every segment.
func TestLogReplaysFromEverySegment(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	h.live(3)
	h.step(core.CheckpointAsked{Full: true})
	h.step(core.Tick{})
	h.live(5)
	h.step(core.CheckpointAsked{Full: true})
	h.live(2)
	want := h.core.StateDigest()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for from := int64(1); from <= 3; from++ {
		got, err := Replay{Dir: dir, From: from}.Run(t.Context())
		if err != nil {
			t.Fatalf("from segment %d: %v", from, err)
		}
		if got.Core.StateDigest() != want || got.Segments != int(4-from) || got.Digests == 0 || got.Lost != 0 {
			t.Errorf("from segment %d: %+v, state %x, want %x", from, got, got.Core.StateDigest(), want)
		}
	}
	if h.errors.Load() != 0 {
		t.Errorf("%d errors", h.errors.Load())
	}
}

// SHARD-28.10: a history that was tampered with, or another policy, is found out.
func TestDivergenceIsFound(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	h.live(2)
	h.at.Mono += core.Hour
	h.core.Step(h.at, core.SessionClosed{Cluster: "c1", Session: 2})
	h.log.Event(h.core.Steps(), h.at, core.Tick{}, h.core.Digest()) // the log says something else
	h.live(1)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := (Replay{Dir: dir}).Run(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("replayed with %v", err)
	}
}

// SHARD-28.10: a decision record that was changed is found out, and so is a step that is not in the log.
func TestChangedRecordsAndMissingStepsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(h *history)
		found func(Replayed, error) bool
	}{
		"changed": {func(h *history) { h.edit = func(r *core.Record) { r.Price++ } }, func(_ Replayed, err error) bool { return errors.Is(err, ErrDiverged) }},
		"missing": {func(h *history) { h.at.Mono += core.Second; h.core.Step(h.at, core.Tick{}) }, func(got Replayed, err error) bool {
			return err == nil && got.Damage != nil && strings.Contains(got.Damage.Why, "follows step")
		}},
	} {
		dir := t.TempDir()
		h := newHistory(t, dir, nil)
		h.begin()
		h.live(2)
		c.do(h)
		h.live(3)
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		if got, err := (Replay{Dir: dir}).Run(t.Context()); !c.found(got, err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// SHARD-28.4: a disk that stays full asks the core for no checkpoint after the first attempt failed, however many events come.
func TestFullDiskAsksForNoCheckpoints(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "decisions")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	var asked atomic.Int64
	var pending atomic.Bool
	h := newHistory(t, dir, func(c *Config) {
		c.SyncEvery = time.Millisecond
		c.Checkpoint = func(bool) bool { asked.Add(1); pending.Store(true); return true }
	})
	h.begin()
	for range 300 {
		h.step(core.Tick{})
		if pending.Swap(false) {
			h.step(core.CheckpointAsked{Full: true})
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := asked.Load(); n > 1 { // one may come before the first failure
		t.Errorf("%d checkpoints were asked for while nothing could be written", n)
	}
	if n := h.errors.Load(); n < 2 || n > 50 {
		t.Errorf("%d errors were counted in 3 s", n)
	}
	_ = h.stop()
}

// SHARD-28.4: a full queue loses entries, counts them, and blocks no caller.
func TestFullQueueNeverBlocks(t *testing.T) {
	var lost atomic.Int64
	l := New(Config{Dir: t.TempDir(), Shard: "s", Epoch: 1, Queue: 4, Log: slog.New(slog.DiscardHandler), OnError: func() { lost.Add(1) }})
	for i := range 100 { // no writer runs
		l.Event(int64(i), core.At{}, core.Tick{}, 0)
	}
	if lost.Load() != 96 {
		t.Errorf("%d were counted", lost.Load())
	}
}

// SHARD-28.8: --audit-log has one JSON object per line, and Reopen follows a rename.
func TestJSONLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	h := newHistory(t, "", func(c *Config) { c.Dir, c.Lines = "", file })
	h.begin()
	h.log.Sync(10 * time.Second)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	h.log.Reopen()
	h.live(1)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, file + ".1"} {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
			if !strings.HasPrefix(line, `{"sequence":"`) || !strings.HasSuffix(line, "}") {
				t.Errorf("%s holds %q", f, line)
			}
		}
	}
}

// SHARD-28.8: a file of --audit-log that cannot be written, because its disk is full or its directory is gone, costs lines of it and nothing of the decision log. When it can be
// written again, each line is whole.
func TestAFullDiskOfTheAuditLogCostsNoDecisionLog(t *testing.T) {
	for _, at := range []string{"/dev/full", filepath.Join(t.TempDir(), "missing", "audit.jsonl")} {
		t.Run(at, func(t *testing.T) {
			dir, said := t.TempDir(), &bytes.Buffer{}
			h := newHistory(t, dir, func(c *Config) { c.Lines, c.Log = at, slog.New(slog.NewTextHandler(said, nil)) })
			h.begin()
			h.live(20)
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
			got, err := Replay{Dir: dir}.Run(t.Context())
			if err != nil || got.Lost != 0 || got.Core.StateDigest() != h.core.StateDigest() {
				t.Errorf("the decision log: %+v, %v", got, err)
			}
			if n := strings.Count(said.String(), "--audit-log cannot be written"); n != 1 {
				t.Errorf("said %d times: %s", n, said)
			}
			if h.errors.Load() == 0 {
				t.Error("nothing was counted")
			}
		})
	}
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l := New(Config{Lines: file, Shard: "s", Log: slog.New(slog.DiscardHandler), OnError: func() {}})
	l.line(&core.Record{Detail: "one"})
	torn, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.lines.close()
	l.lines.file, l.lines.torn = torn, true // a part of a line was written before the disk was full
	l.line(&core.Record{Detail: "two"})
	l.lines.at = time.Time{}
	l.line(&core.Record{Detail: "three"})
	l.lines.close()
	raw, err := os.ReadFile(file)
	if text := string(raw); err != nil || strings.Count(text, "\n{") != 1 || !strings.Contains(text, "three") || strings.Contains(text, "two") || l.lines.lost != 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// SHARD-28.3: the oldest segments go first, by age and by size, and the one being written stays.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, func(c *Config) { c.BytesMax = 1 })
	h.begin()
	for range 4 {
		h.step(core.CheckpointAsked{Full: true})
		h.live(1)
		h.log.Sync(10 * time.Second)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	list, err := segments(dir)
	if err != nil || len(list) != 1 || list[0].number != 5 {
		t.Errorf("left %v, %v", list, err)
	}
}

// SHARD-23.1: history comes newest first, from memory and disk without doubles, and filtered.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, func(c *Config) { c.Recent = 4 })
	h.begin()
	h.live(8)
	h.log.Sync(10 * time.Second)
	all, truncated, err := h.log.History(t.Context(), Query{})
	if err != nil || truncated {
		t.Fatal(err, truncated)
	}
	for i, r := range all {
		if want := all[0].Sequence - int64(i); r.Sequence != want {
			t.Fatalf("record %d has sequence %d, want %d", i, r.Sequence, want)
		}
	}
	if all[len(all)-1].Sequence != 1 {
		t.Errorf("the oldest is %d", all[len(all)-1].Sequence)
	}
	some, _, err := h.log.History(t.Context(), Query{Limit: 3, Match: func(r *pb.DecisionRecord) bool { return r.ClusterId == "c0" }})
	if err != nil || len(some) == 0 || len(some) > 3 || some[0].ClusterId != "c0" {
		t.Errorf("%v, %v", some, err)
	}
	list, next, skipped := h.log.Follow(1)
	if len(list) == 0 || next != all[0].Sequence+1 || skipped != list[0].Sequence-1 {
		t.Errorf("followed %d, next %d, skipped %d", len(list), next, skipped)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
}

// SHARD-10.8 for files: any bytes are refused without a panic.
func FuzzSegment(f *testing.F) {
	b, err := pack(blockEvents, [][]byte{encode(1, core.At{Mono: 1}, core.Tick{}, 0)}, 1, 2)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte(magic), b...))
	f.Add([]byte(magic))
	f.Add([]byte("nothing"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, segmentName(1, 1)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = Replay{Dir: dir}.Run(t.Context())
	})
}

package coordinator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// operator runs the command against a group, as somebody on call does.
type operator struct {
	g      *group
	binary string
}

// does runs one command and returns what it printed. want is its exit code; -1 is any.
func (o *operator) does(want int, args ...string) string {
	o.g.t.Helper()
	ctx, cancel := context.WithTimeout(o.g.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary, args...)
	for _, addr := range o.g.rpc {
		cmd.Args = append(cmd.Args, "--coordinator", addr)
	}
	cmd.Env = append(os.Environ(), "HOME="+o.g.t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		o.g.t.Fatal(err)
	}
	if code != want && want >= 0 {
		o.g.t.Fatalf("bigfleet %s ended with %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// shows fails when an output lacks a word.
func (o *operator) shows(out string, words ...string) {
	o.g.t.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			o.g.t.Errorf("%q is not in:\n%s", w, out)
		}
	}
}

// COORD-21.22, 21.24, 15.4 to 15.13, 13.12, 13.13, 12.22, OPS-4: somebody on call with three replicas and the command: every
// verb that the guide names, then everything is lost and restored from the file, with an old disk among the replicas.
func TestOnCall(t *testing.T) {
	g := newGroup(t, "--rebalance-interval", "500ms")
	o := &operator{g: g, binary: proc.BuildT(t, "services/bigfleet")}
	follow, err := coordclient.New(coordclient.Config{Addrs: g.rpc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follow.Close)
	cycle := int64(0)
	report := func() { // of three shards, the last two without domains
		cycle++
		for n := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			r := fullReport(n, cycle)
			r.Summary.ProviderAddress = "sim:9000"
			if _, err := follow.Report(ctx, r); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	report()

	const domain = zoneKey + "=zone-a"
	const yes = "--yes"
	o.shows(o.does(0, "raft", "status"), "node-0", "node-1", "node-2", "leader", "follower")
	o.shows(o.does(0, "raft", "peers"), "node-0", "node-1", "node-2", "voter")
	o.shows(o.does(0, "shards", "list"), "shard-0000", "shard-0001", "shard-0002")
	o.does(0, "domains", "assign", domain, "shard-0001", yes)
	o.shows(o.does(0, "domains", "list"), "zone-a", "shard-0001")
	o.shows(o.does(0, "domains", "move", domain, "shard-0002", yes, "--dry-run"), "nothing was changed")
	o.does(0, "domains", "move", domain, "shard-0002", yes)
	o.shows(o.does(0, "domains", "list"), "MOVING TO", "shard-0002")
	o.shows(o.does(0, "instructions", "list"), "view/shard-0001/")
	o.does(0, "instructions", "retry", "shard-0001", o.pending("shard-0001", func(i *v1.CoordinatorInstruction) bool { return i.GetSetView() != nil }), yes, "--reason", "it is stuck")
	o.shows(o.does(-1, "instructions", "retry", "shard-0001", "view/shard-0009/1-1/1", yes, "--reason", "it is stuck"), "no pending instruction")
	o.shows(o.does(2, "domains", "finish", domain, yes, "--reason", "it takes too long"), "--reason 'the shard is down'") // COORD-9.6: these are not the words
	o.does(0, "domains", "finish", domain, yes, "--reason", "the shard is down")
	o.does(0, "quota", "set", "sim:9000", "100", "--slice", "shard-0000=60", "--slice", "shard-0001=40", yes)
	o.shows(o.does(0, "quota", "list"), "sim:9000", "100", "shard-0000=60")
	o.does(0, "quota", "delete", "sim:9000", yes, "--reason", "no limit any more")
	o.does(0, "rebalance", "set", "--mode", "dry-run", "--max-tier", "3", yes)
	o.shows(o.does(0, "rebalance", "status"), "dry-run", "drain")
	cycle = o.cancels(follow, cycle)
	o.does(0, "shards", "drain", "shard-0002", yes, "--reason", "it goes")
	o.does(0, "shards", "undrain", "shard-0002", yes)
	o.does(0, "shards", "remove", "shard-0002", "--force", yes, "--reason", "it is gone")
	o.does(0, "shards", "readmit", "shard-0002", yes)
	o.shows(o.does(0, "get", "audit"), "CancelMove", "RetryInstruction", "FinishDomainMove", "the shard is down", "RemoveShard", "it is gone")
	o.does(0, "shards", "reset-epoch", "shard-0001", "1", yes, "--reason", "its disk was lost")
	o.does(2, "shards", "reset-epoch", "shard-0001", "none", yes, "--reason", "its disk was lost")
	o.does(3, "raft", "transfer-leader", "unknown", yes)
	if out := o.does(0, "get", "audit"); strings.Contains(out, "unknown") || !strings.Contains(out, "ResetShardEpoch") { // COORD-16.10: what was refused was not done
		t.Errorf("the audit:\n%s", out)
	}
	next := id((g.leader() + 1) % 3)
	o.shows(o.does(0, "raft", "transfer-leader", next, yes), next+" leads")

	// COORD-13.12: a replica goes and comes back.
	gone := (g.leader() + 1) % 3
	o.does(0, "raft", "remove-peer", id(gone), yes, "--reason", "its machine is replaced")
	g.procs[gone].Kill()
	o.does(0, "raft", "readmit", id(gone), yes)
	wipe(t, g.dirs[gone])
	g.start(gone)
	g.healthy()

	report()
	file := filepath.Join(t.TempDir(), "state.tar")
	o.shows(o.does(0, "snapshot", "save", filepath.Join(filepath.Dir(file), "older.tar")), "verified")
	o.shows(o.does(0, "snapshot", "save", file, "--keep", "1"), "verified", "1 archive kept, 1 deleted")
	o.shows(o.does(0, "snapshot", "inspect", file), "node-0", "node-1", "node-2", "3 shards")
	o.shows(o.does(0, "snapshot", "verify", file), "ok")
	o.disaster(file)
	report() // the shards follow by themselves
	o.shows(o.does(0, "shards", "list"), "shard-0000", "shard-0001", "shard-0002")
}

// pending waits for an instruction to a shard and returns its id.
func (o *operator) pending(shard string, is func(*v1.CoordinatorInstruction) bool) (id string) {
	o.g.t.Helper()
	o.g.eventually("the instruction is pending", func() bool {
		stub, leave := o.g.admin(o.g.leader())
		defer leave()
		got, err := stub.ListInstructions(o.g.t.Context(), connect.NewRequest(&v1.ListInstructionsRequest{}))
		if err != nil {
			return false
		}
		for _, i := range got.Msg.GetInstructions() {
			if i.GetShardId() == shard && is(i.GetInstruction()) {
				id = i.GetInstruction().GetInstructionId()
			}
		}
		return id != ""
	})
	return id
}

// cancels plans a move between two shards that answer no instruction, orders its step again, and cancels it (COORD-12.18,
// 16.1). It returns the cycle of the last report.
func (o *operator) cancels(follow *coordclient.Client, cycle int64) int64 {
	t, g := o.g.t, o.g
	var acks []*v1.InstructAck
	uneven := func() {
		cycle++
		for n := range 2 {
			r := fullReport(n, cycle)
			r.Summary.ProviderAddress = "sim:9000"
			if n == 0 {
				r.Shortfalls, r.Supply = r.Shortfalls[:1], nil
				r.Shortfalls[0].AgeSeconds = 600
			} else {
				r.Shortfalls, r.Supply = nil, r.Supply[:1]
				r.Supply[0].Idle, r.InstructionAcks = 50, acks
			}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			if _, err := follow.Report(ctx, r); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	newest := func() *v1.Move {
		stub, leave := g.admin(g.leader())
		defer leave()
		got, err := stub.ListMoves(t.Context(), connect.NewRequest(&v1.ListMovesRequest{}))
		if err != nil {
			return nil
		}
		for _, m := range got.Msg.GetMoves() {
			if m.GetState() != v1.Move_STATE_PROPOSED {
				return m
			}
		}
		return nil
	}
	o.does(0, "rebalance", "set", "--mode", "on", "--max-tier", "1", "--yes")
	g.eventually("a move is planned", func() bool {
		uneven()
		return newest().GetState() == v1.Move_STATE_PLANNED
	})
	move := newest().GetMoveId()
	o.shows(o.does(0, "rebalance", "moves"), move, "planned")
	o.does(0, "rebalance", "set", "--mode", "dry-run", "--max-tier", "1", "--yes") // no other one; dry-run cancels nothing
	o.does(0, "instructions", "retry", "shard-0001", o.pending("shard-0001", func(i *v1.CoordinatorInstruction) bool { return i.GetReserveMachines() != nil }), "--yes", "--reason", "it is stuck")
	o.shows(o.does(0, "rebalance", "cancel", move, "--yes", "--dry-run", "--reason", "not now"), "nothing was changed")
	o.does(0, "rebalance", "cancel", move, "--yes", "--reason", "not now")
	o.shows(o.does(0, "rebalance", "moves"), move, "cancelling")
	withdrawn := o.pending("shard-0001", func(i *v1.CoordinatorInstruction) bool { return i.GetCancelMove() != nil })
	acks = []*v1.InstructAck{{InstructionId: withdrawn, Outcome: v1.InstructAck_OUTCOME_ACCEPTED}}
	g.eventually("the move is aborted", func() bool {
		uneven()
		return newest().GetState() == v1.Move_STATE_ABORTED
	})
	o.shows(o.does(-1, "rebalance", "cancel", "no-such-move", "--yes", "--reason", "not now"), "there is no move")
	return cycle
}

func wipe(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// disaster loses all replicas and restores the group from an archive, in the worst order: a replica with its old disk and
// one with an empty disk are there before the restored one.
func (o *operator) disaster(file string) {
	g, t := o.g, o.g.t
	before, err := g.status(g.leader())
	if err != nil {
		t.Fatal(err)
	}
	raft := ""
	for _, p := range before.GetPeers() {
		if p.GetNodeId() == id(0) {
			raft = p.GetRaftAddress()
		}
	}
	restore := []string{"snapshot", "restore", file, "--data-dir", g.dirs[0], "--node-id", id(0), "--raft-advertise", raft, "--yes", "--reason", "the site is gone"}
	o.does(7, restore...) // COORD-15.7: somebody runs there
	g.each(func(i int) { g.procs[i].Kill() })
	o.shows(o.does(0, restore...), "empty")
	wipe(t, g.dirs[2])
	g.start(1)
	g.start(2)
	out := o.does(-1, "raft", "status") // no replica leads, and one does not answer
	t.Log(out)
	o.shows(out, "node-1", "node-2")
	g.start(0)
	g.eventually("the restored group has its second voter", func() bool {
		s, err := g.status(0)
		voters := 0
		for _, p := range s.GetPeers() {
			if p.GetSuffrage() == "voter" {
				voters++
			}
		}
		return err == nil && s.GetRole() == "leader" && voters == 2
	})
	after, err := g.status(0)
	if err != nil || after.GetClusterUuid() == before.GetClusterUuid() || after.GetFencingTerm() < before.GetFencingTerm()+1_000_000 {
		t.Fatalf("%v, %v", after, err)
	}
	if old, err := g.status(1); err != nil || old.GetClusterUuid() != before.GetClusterUuid() || old.GetRole() == "leader" {
		t.Fatalf("the replica with its old disk: %v, %v", old, err)
	}
	g.procs[1].Kill()
	wipe(t, g.dirs[1])
	g.start(1)
	g.healthy()
}

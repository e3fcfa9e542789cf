package coordinator_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// save streams the state into an archive, as the CLI does.
func save(t *testing.T, c *coordclient.Client, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var meta, state, sum []byte
	err := c.Do(ctx, func(ctx context.Context, at coordclient.Target) error {
		meta, state, sum = nil, nil, nil
		stream, err := at.Coordinator.SnapshotSave(ctx, connect.NewRequest(&v1.SnapshotSaveRequest{}))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			meta = append(meta, stream.Msg().GetMetaJson()...)
			state = append(state, stream.Msg().GetData()...)
			sum = stream.Msg().GetSha256()
		}
		return stream.Err()
	}, coordclient.Unbounded())
	if err != nil {
		t.Fatal(err)
	}
	if got := sha256.Sum256(state); !bytes.Equal(got[:], sum) {
		t.Fatal("COORD-15.4: the digest does not fit")
	}
	if err := archive.Save(path, meta, state, false); err != nil {
		t.Fatal(err)
	}
}

// COORD-21.22, 21.23, 21.24, 15.7 to 15.12, 6.1.3: save, lose everything, restore: three voters, the same fleet under a
// new identity, shards with higher terms are followed at once, and a replica with its old disk is refused.
func TestDisaster(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	register(t, c, "shard-0", "shard-1")
	must(t, c, core.AssignDomain, &v1.AssignDomainRequest{TopologyKey: zone, TopologyValue: "eu-1a", ShardId: "shard-1"})
	must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-0"})
	file := filepath.Join(t.TempDir(), "state.tar")
	save(t, c, file)
	read, err := archive.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if read.Meta.Counts["shards"] != 2 || read.Meta.ClusterUUID == "" || len(read.Meta.Configuration) != 3 || read.Hash() != read.Meta.StateHash || len(read.Warnings) > 0 {
		t.Fatalf("%+v", read.Meta)
	}
	last := must(t, c, core.ReportShard, report("shard-0", 2))
	if _, err := archive.Restore(read, archive.Restoration{DataDir: r.dirs[0], NodeID: id(0), RaftAdvertise: id(0) + ":7791"}); err == nil || !strings.Contains(err.Error(), "runs on this data directory") {
		t.Fatalf("COORD-21.25: a running replica's directory: %v", err)
	}
	r.stopAll()

	old := r.dirs[1] // replica 1 keeps its disk and comes back with it
	r.dirs[0], r.dirs[2] = t.TempDir(), t.TempDir()
	restored, err := archive.Restore(read, archive.Restoration{DataDir: r.dirs[0], NodeID: id(0), RaftAdvertise: id(0) + ":7791", Reason: "the site is gone"})
	if err != nil {
		t.Fatal(err)
	}
	if restored.ClusterUUID == read.Meta.ClusterUUID || restored.PreviousUUID != read.Meta.ClusterUUID || restored.FencingTerm < last.GetCoordinatorTerm()+archive.FenceStride/2 {
		t.Fatalf("%+v", restored)
	}
	// The worst order: the old replica and an empty one, two of three of the lost group, are there before the restored one.
	r.start(1, 2)
	time.Sleep(2 * time.Second) // some elections of the old replica
	for _, i := range []int{1, 2} {
		if s := r.status(i); s.GetRole() == "leader" || i == 2 && (s.GetHasState() || s.GetClusterUuid() != "") {
			t.Fatalf("COORD-13.10: the lost group lives again: %v", s)
		}
	}
	r.start(0)
	c = r.client(nil)
	status := r.group(c, 2)
	if len(status.GetShards()) != 2 || status.GetClusters() != 1 || status.GetDomains() != 1 {
		t.Fatalf("%v", status)
	}
	if s := r.status(1); s.GetClusterUuid() == restored.ClusterUUID || s.GetRole() == "leader" {
		t.Fatalf("the old replica is part of the restored group: %v", s)
	}

	// COORD-16.10, OPS-4.8: why it was restored is in the audit ring.
	audit := must(t, c, admin.ListAudit, &v1.ListAuditRequest{Method: "snapshot-restore"}).GetRecords()
	if len(audit) != 1 || audit[0].GetReason() != "the site is gone" || audit[0].GetAtUnixNanos() == 0 {
		t.Fatalf("the audit of the restore is %v", audit)
	}

	// A shard that saw a far higher term from the lost group, for instance because the archive is old.
	again := report("shard-0", 3)
	again.ObservedTerm, again.ClusterUuid = restored.FencingTerm+5_000_000, read.Meta.ClusterUUID
	ack := must(t, c, core.ReportShard, again)
	if ack.GetCoordinatorTerm() <= again.ObservedTerm || ack.GetClusterUuid() != restored.ClusterUUID || len(ack.GetPreviousUuids()) != 1 || !ack.GetSendHoldings() {
		t.Fatalf("%v", ack)
	}

	// The old replica with its disk never gets in; with an empty one it does.
	r.stop(1)
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	r.start(1)
	r.group(c, 3)
}

// COORD-21.25, 15.6: what is not a whole archive is refused before anything is touched.
func TestDamagedArchives(t *testing.T) {
	r, c := single(t, nil)
	register(t, c, "shard-0")
	dir := t.TempDir()
	file := filepath.Join(dir, "good.tar")
	save(t, c, file)
	if err := archive.Save(file, []byte("{}"), []byte("x"), false); err == nil {
		t.Error("COORD-15.4: an archive was replaced without a flag that allows it")
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.stopAll()
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0xff
	for name, data := range map[string][]byte{"truncated": good[:len(good)/2], "flipped": flipped, "empty": nil, "text": []byte("not an archive")} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Read(path); err == nil {
			t.Errorf("a %s archive was read", name)
		}
	}
	read, err := archive.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows bytes.Buffer
	if err := read.WriteRows(&rows, "shards"); err != nil || !strings.Contains(rows.String(), `"shard-0"`) || strings.Count(rows.String(), "\n") != 1 {
		t.Fatalf("%v: %s", err, rows.String())
	}
	meta, state := parts(t, file)
	reversed := filepath.Join(dir, "reversed")
	writeTar(t, reversed, [][2]string{{"state", string(state)}, {"meta.json", string(meta)}})
	if _, err := archive.Read(reversed); err == nil {
		t.Error("reversed entries were read")
	}
	zero := filepath.Join(dir, "zero")
	writeTar(t, zero, [][2]string{{"meta.json", strings.Replace(string(meta), `"index": `, `"index": 0, "was": `, 1)}, {"state", string(state)}})
	if _, err := archive.Read(zero); err == nil || !strings.Contains(err.Error(), "index 0") {
		t.Errorf("an archive at index 0: %v", err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.Mkdir(plain, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"meta.json": meta, "state": state} {
		if err := os.WriteFile(filepath.Join(plain, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := archive.Read(plain); err != nil || len(a.Warnings) != 1 {
		t.Errorf("COORD-15.1: a directory without sums: %v", err)
	}
}

// COORD-21.27, 15.2, 15.3: continuous export keeps so many copies and a valid latest; a target that cannot be written
// costs nothing else.
func TestExports(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "exports")
	r, c := single(t, func(c *coordinator.Config) {
		c.ExportDir, c.ExportInterval, c.ExportKeep = dir, 100*time.Millisecond, 2
	})
	latest := filepath.Join(dir, "latest")
	for n, shard := range []string{"shard-0", "shard-1", "shard-2"} {
		register(t, c, shard)
		eventually(t, "an export with "+shard, func() bool {
			a, err := archive.Read(latest)
			return err == nil && a.Meta.Counts["shards"] == uint64(n+1)
		})
	}
	eventually(t, "two copies are kept", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 3
	})
	if s := r.status(0); s.GetLastExportAtUnixNanos() == 0 {
		t.Error("the status does not show the export")
	}
	// What a crash in the middle of an export leaves behind does not disturb the next one.
	if err := os.Mkdir(filepath.Join(dir, ".export-crashed"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The target goes away: a file stands where the directory was.
	moved := dir + ".moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	register(t, c, "shard-3")
	time.Sleep(300 * time.Millisecond)
	register(t, c, "shard-4")
	if _, err := archive.Read(filepath.Join(moved, "latest")); err != nil {
		t.Errorf("the last good copy is damaged: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "exports go on", func() bool {
		a, err := archive.Read(latest)
		return err == nil && a.Meta.Counts["shards"] == 5
	})
}

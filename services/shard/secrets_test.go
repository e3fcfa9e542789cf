package shard_test

import (
	"bytes"
	"compress/flate"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/wal"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// unpacked is a segment of the decision log, or one of its states, with its blocks in plain bytes.
func unpacked(t *testing.T, raw []byte) []byte {
	t.Helper()
	_, rest, _ := bytes.Cut(raw, []byte("\n"))
	out := append([]byte{}, raw...)
	blocks := wal.Format{BodyMax: 64 << 20}
	for {
		block, err := blocks.Parse(rest)
		if err != nil { // the end, or a part of a block that is being written
			break
		}
		plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(block.Body)))
		if err != nil {
			t.Fatal(err)
		}
		out, rest = append(out, plain...), rest[block.Size:]
	}
	return out
}

// SHARD-28.5, 16.6, 4.6, 33.5.12: boot data goes from the operator to the provider and stands nowhere else: not in the
// decision log, shard.db, the audit log or what is logged at any level. What is too large is an error that is said without it.
func TestBootDataIsKeptNowhere(t *testing.T) {
	const secret = "token-9f8e7d6c5b4a"
	p := NewProvider(slots(3)...).Serve(t)
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	s := start(t, p, func(c *shard.Config) { c.AuditLog = audit; c.DecisionLogRetention = time.Hour })
	large := true
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Set(func(o *Operator) {
		o.Bootstrap = func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
			blob := []byte("join with " + secret)
			if large {
				large = false
				blob = bytes.Repeat(blob, 1<<20/len(blob)+1)
			}
			return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), UserData: blob, TtlSeconds: 60}
		}
	})
	o.Rollup(Need("4", 0))
	Eventually(t, "the blob that is too large is an error", func() bool {
		_, rows := s.needs(t, &pb.InspectNeedsRequest{})
		return len(rows) == 1 && rows[0].GetDetail() == pb.NeedDetail_NEED_DETAIL_BOOTSTRAP_ERROR && !strings.Contains(rows[0].GetDetailText(), secret)
	})
	o.Close() // a new session ends the pause
	o = Connect(t, s.Addr, "red", AllFeatures...)
	o.Set(func(o *Operator) {
		o.Bootstrap = func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
			return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), UserData: []byte("join with " + secret), TtlSeconds: 60}
		}
	})
	o.Rollup(Need("4", 0))
	Eventually(t, "a machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
	if c := p.Calls("Configure"); len(c) == 0 || !strings.Contains(c[len(c)-1].Blob, secret) {
		t.Fatalf("the provider did not get the blob: %+v", c)
	}
	o.Close()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	read := 0
	look := func(path string) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(filepath.Base(filepath.Dir(path)), "decisions") {
			raw = unpacked(t, raw)
		}
		if read += len(raw); bytes.Contains(raw, []byte(secret)) {
			t.Errorf("%s holds boot data", path)
		}
	}
	if err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			look(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	look(audit)
	if log := s.Log.String(); strings.Contains(log, secret) || !strings.Contains(log, "red") {
		t.Error("the log holds boot data, or nothing")
	}
	if !bytes.Contains(decisionsOf(t, s.Dir), []byte("red")) {
		t.Errorf("%d bytes were looked at, and none of them is of the decision log", read)
	}
}

func decisionsOf(t *testing.T, dir string) (out []byte) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "decisions", "*.log"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no decision log: %v", err)
	}
	for _, path := range list {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, unpacked(t, raw)...)
	}
	return out
}

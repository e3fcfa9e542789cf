package crash

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-28.8: the program reopens its audit log at a SIGHUP, as log rotation asks for, and continues running: nothing that was
// written to the old file is lost, and what comes after is in the new one.
func TestHangupOpensTheAuditLogAgain(t *testing.T) {
	p := NewProvider(Slot("m1", 1, "4", "16Gi")).Serve(t)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := run(t, program(t, false), dataDir(t), p.Addr, nil, "--audit-log", path)
	addr := s.serving(t)
	has := func(file, what string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), what)
	}
	red := Connect(t, addr, "red", AllFeatures...)
	red.Rollup(Need("4", 0))
	Eventually(t, "records of red are in the file", func() bool { return has(path, `"red"`) })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the file is there again", func() bool { _, err := os.Stat(path); return err == nil })
	Connect(t, addr, "blue", AllFeatures...).Rollup(Need("1", 0))
	Eventually(t, "records of blue are in the new file", func() bool { return has(path, `"blue"`) })
	if has(path+".1", `"blue"`) || !has(path+".1", `"red"`) {
		t.Error("the files do not follow each other")
	}
	s.stop()
	if code := s.ended(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

package provider_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheGuide runs every command of docs/providers.md from top to bottom in one shell, as a reader would. Only the ports
// are exchanged for free ones, and what it installs goes into a directory of the test.
func TestTheGuide(t *testing.T) {
	root, err := filepath.Abs("../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/providers.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllSubmatch(text, -1)
	script := &strings.Builder{}
	script.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		if string(b[1]) != "sh" {
			t.Errorf("a block of kind %q is not run: the guide has commands and nothing else in blocks\n%s", b[1], b[2])
		}
		script.WriteString("set -x\n" + string(b[2]))
	}
	if len(blocks) < 10 {
		t.Fatalf("%d blocks found", len(blocks))
	}
	commands := script.String()
	for _, port := range []string{"9000", "9001", "9090"} {
		commands = strings.ReplaceAll(commands, "127.0.0.1:"+port, free(t))
	}
	bin := filepath.Join(t.TempDir(), "bin")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", commands)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(), "GOWORK=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it leaves running ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out := filepath.Join(t.TempDir(), "out")
	log, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = log.Close()
	said, readErr := os.ReadFile(out)
	if err != nil || readErr != nil {
		t.Fatalf("%v %v\n%s", err, readErr, said)
	}
	if n := strings.Count(string(said), "\nCONFORMANT"); n != 3 {
		t.Errorf("CONFORMANT %d times, want 3:\n%s", n, said)
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

package provider_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// page reads a page of docs and returns the commands of its blocks by heading of the second level, "" before the first, and
// the headings in order. A block that is not run is an error: these pages have commands and nothing else in blocks.
func page(t *testing.T, name string) (commands map[string]string, headings []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	commands, heading := map[string]string{}, ""
	headings = append(headings, "")
	for _, m := range regexp.MustCompile("(?ms)^## ([^\n]*)$|^```(\\w*)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		switch {
		case len(m[1]) > 0:
			heading = string(m[1])
			headings = append(headings, heading)
		case string(m[2]) != "sh":
			t.Errorf("%s: a block of kind %q is not run\n%s", name, m[2], m[3])
		default:
			commands[heading] += string(m[3])
		}
	}
	return commands, headings
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// shell runs commands as a reader would, in one shell that begins in the checkout. Only the ports are exchanged for free
// ones, and what is installed goes into a directory of the test.
func shell(t *testing.T, commands string) (said string) {
	t.Helper()
	for _, port := range []string{"9000", "9001", "9090"} {
		commands = strings.ReplaceAll(commands, "127.0.0.1:"+port, loopback.Addr(t))
	}
	bin := filepath.Join(t.TempDir(), "bin")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euxo pipefail\n"+commands)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -modcacherw")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it leaves running ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(t.TempDir(), "out")) // a file: what stays in the background would hold a pipe open
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = log.Close()
	out, readErr := os.ReadFile(log.Name())
	if err != nil || readErr != nil {
		t.Fatalf("%v %v\n%s", err, readErr, out)
	}
	return string(out)
}

// The author's guide, every command from top to bottom in one shell.
func TestTheGuide(t *testing.T) {
	commands, headings := page(t, "providers.md")
	all := ""
	for _, h := range headings {
		all += commands[h]
	}
	said := shell(t, all)
	if n := strings.Count(said, "\nCONFORMANT"); n != 3 {
		t.Errorf("CONFORMANT %d times, want 3:\n%s", n, said)
	}
}

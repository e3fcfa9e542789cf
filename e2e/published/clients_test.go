package published

import (
	"crypto/sha1" //nolint:gosec // the registry's protocol has it
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
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

// WIRE-4.1, WIRE-13.1: each client of docs/clients.md is made from what the release publishes and talks to the simulated cloud.
func TestClientsUsePublishedArtefacts(t *testing.T) {
	commands, headings := page(t, "clients.md")
	want := map[string]struct{ says, needs string }{
		"curl":                   {"MACHINE_STATE_CONFIGURED", "command -v curl"},
		"Go":                     {"machines, complete: true", "true"},
		"Go, with plain grpc-go": {"machines, one full life", "true"},
		"TypeScript":             {"with a GPU", needsNode},
		"Python":                 {"machines, first", `command -v protoc && /usr/bin/python3 -c "import google.protobuf"`},
	}
	if len(headings) != len(want)+1 {
		t.Errorf("sections %v, the test knows %d", headings[1:], len(want))
	}
	r := theRelease(t)
	for _, h := range headings[1:] {
		t.Run(strings.ReplaceAll(h, " ", "-"), func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), "bash", "-c", want[h].needs).CombinedOutput(); err != nil {
				t.Skipf("this machine lacks what the section needs: %s: %s", want[h].needs, out)
			}
			if said := r.shell(t, commands[""]+commands[h]); !strings.Contains(said, want[h].says) {
				t.Errorf("no %q in\n%s", want[h].says, said)
			}
		})
	}
}

// PROV-1.3: a provider in another language, without our SDK, is certified by the suite of the installed command.
func TestProviderInTypeScriptIsCertified(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", needsNode).CombinedOutput(); err != nil {
		t.Skipf("this machine lacks Node 20 and npm: %s", out)
	}
	t.Parallel()
	commands, headings := page(t, "provider-guide-typescript.md")
	all := ""
	for _, h := range headings {
		all += commands[h]
	}
	if said := theRelease(t).shell(t, all); !strings.Contains(said, "\nCONFORMANT") {
		t.Errorf("not certified:\n%s", said)
	}
}

const needsNode = `command -v npm && node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)'`

// page reads a page of docs and returns the commands of its blocks by heading of the second level, "" before the first, and
// the headings in order. A block that is not run is an error: these pages have commands and nothing else in blocks.
func page(t *testing.T, name string) (commands map[string]string, headings []string) {
	t.Helper()
	text := read(t, filepath.Join(checkout(t), "docs"), name)
	commands, heading := map[string]string{}, ""
	headings = append(headings, "")
	for _, m := range regexp.MustCompile("(?ms)^## ([^\n]*)$|^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		switch {
		case m[1] != "":
			heading = m[1]
			headings = append(headings, heading)
		case m[2] != "sh":
			t.Errorf("%s: a block of kind %q is not run\n%s", name, m[2], m[3])
		default:
			commands[heading] += m[3]
		}
	}
	return commands, headings
}

// shell runs commands as a reader would, in one shell outside the checkout. Version and ports are those of the test; the
// registries are the release's for what is ours, and the usual ones for the rest.
func (r release) shell(t *testing.T, commands string) (said string) {
	t.Helper()
	commands = strings.ReplaceAll(commands, "BIGFLEET_VERSION=v0.2.0", "BIGFLEET_VERSION="+r.version)
	for _, port := range []string{"9000", "9001", "9090"} {
		commands = strings.ReplaceAll(commands, "127.0.0.1:"+port, loopback.Addr(t))
	}
	buf := filepath.Join(checkout(t), ".bin")
	run(t, checkout(t), nil, filepath.Join("tools", "install.sh"), "api")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euxo pipefail\n"+commands)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), r.env(t)...), r.git(t)...)
	cmd.Env = append(cmd.Env, "GOBIN="+bin(), "PATH="+bin()+":"+buf+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(), "GOFLAGS=-modcacherw",
		"NPM_CONFIG_USERCONFIG="+r.npmrc(t))
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
	out := read(t, filepath.Dir(log.Name()), "out")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// npmrc is the npm configuration of somebody for whom the scope @bigfleet is published: at a registry that holds the archive of the
// release and nothing else.
func (r release) npmrc(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, "npm", "*.tgz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the release has %d npm archives: %v", len(found), err)
	}
	archive := read(t, filepath.Dir(found[0]), filepath.Base(found[0]))
	var described map[string]any
	decode(t, run(t, t.TempDir(), nil, "tar", "-xzOf", found[0], "package/package.json"), &described)
	version, _ := described["version"].(string)
	short, long := sha1.Sum([]byte(archive)), sha512.Sum512([]byte(archive)) //nolint:gosec // as above
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	described["dist"] = map[string]string{"tarball": server.URL + "/archive.tgz", "shasum": hex.EncodeToString(short[:]),
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:])}
	mux.HandleFunc("/archive.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(archive)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"name": described["name"], "dist-tags": map[string]string{"latest": version},
			"versions": map[string]any{version: described}})
	})
	own, err := exec.CommandContext(t.Context(), "npm", "config", "get", "userconfig").Output()
	if err != nil {
		return os.DevNull // without npm the sections that need it are skipped
	}
	usual, err := os.ReadFile(strings.TrimSpace(string(own)))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "npmrc", string(usual)+"\n@bigfleet:registry="+server.URL+"/\n")
	return filepath.Join(dir, "npmrc")
}

package template_test

import (
	"debug/elf"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/template"
)

// image is a Dockerfile carried out without a container engine: a directory per stage, and the toolchain of this machine in
// the place of the base image's.
type image struct {
	t        *testing.T
	contexts map[string]string // stage or named context -> directory; "" is the build context
	ignored  []string
	root     string // of the current stage
	workdir  string
	env      []string
	user     string
	ports    []string
	entry    string
	base     string
}

func build(t *testing.T, context string, named map[string]string) *image {
	t.Helper()
	b := &image{t: t, contexts: map[string]string{"": context}}
	for k, v := range named {
		b.contexts[k] = v
	}
	if text, err := os.ReadFile(filepath.Join(context, ".dockerignore")); err == nil {
		b.ignored = strings.Fields(string(text))
	}
	text, err := os.ReadFile(filepath.Join(context, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			word, rest, _ := strings.Cut(line, " ")
			b.do(word, strings.TrimSpace(rest))
		}
	}
	return b
}

func (b *image) do(word, rest string) {
	b.t.Helper()
	switch words := strings.Fields(rest); word {
	case "FROM":
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
		b.root, b.workdir, b.env, b.base = b.t.TempDir(), "/", nil, words[0]
		if len(words) == 3 && words[1] == "AS" {
			b.contexts[words[2]] = b.root
		}
	case "WORKDIR":
		b.workdir = rest
		if err := os.MkdirAll(filepath.Join(b.root, rest), 0o755); err != nil {
			b.t.Fatal(err)
		}
	case "ARG":
		for _, arg := range words {
			if name, value, set := strings.Cut(arg, "="); set {
				b.env = append(b.env, name+"="+value)
			} else {
				b.env = append(b.env, name+"="+map[string]string{"TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH}[name])
			}
		}
	case "COPY":
		from := ""
		if strings.HasPrefix(words[0], "--from=") {
			from, words = strings.TrimPrefix(words[0], "--from="), words[1:]
		}
		dir, known := b.contexts[from]
		if !known {
			b.t.Fatalf("COPY from %q, which is no stage and no context", from)
		}
		for _, source := range words[:len(words)-1] {
			b.copy(dir, source, words[len(words)-1], from == "")
		}
	case "RUN":
		// Paths of the stage that the line names are those of its directory.
		line := regexp.MustCompile(`(^|[\s"=])(/out)\b`).ReplaceAllString(rest, "${1}"+b.root+"$2")
		cmd := exec.CommandContext(b.t.Context(), "sh", "-c", line)
		cmd.Dir = filepath.Join(b.root, b.workdir)
		cmd.Env = append(append(os.Environ(), "GOWORK=off"), b.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("RUN %s: %v\n%s", rest, err, out)
		}
	case "USER":
		b.user = rest
	case "EXPOSE":
		b.ports = words
	case "ENTRYPOINT":
		b.entry = strings.Trim(rest, `[]"`)
	default:
		b.t.Fatalf("%s is no instruction that this test knows", word)
	}
}

func (b *image) copy(dir, source, target string, ignore bool) {
	b.t.Helper()
	from, to := filepath.Join(dir, source), target
	if !filepath.IsAbs(to) {
		to = filepath.Join(b.workdir, to)
	}
	into := strings.HasSuffix(target, "/")
	to = filepath.Join(b.root, to)
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if first, _, _ := strings.Cut(rel, "/"); ignore && slices.Contains(b.ignored, first) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		file := filepath.Join(to, rel)
		if rel == "." && into {
			file = filepath.Join(to, filepath.Base(path))
		}
		if d.IsDir() {
			return os.MkdirAll(file, 0o755)
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, text, info.Mode().Perm())
	})
	if err != nil {
		b.t.Fatalf("COPY %s: %v", source, err)
	}
}

// PROV-23.2, 28.15: the Dockerfile of a new provider, carried out step by step: what it copies is there, its build line
// builds, the binary needs nothing of the base image, and it runs as the image's user in a root that it cannot write.
func TestTheImage(t *testing.T) {
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := template.Write(template.Params{Name: "acme", Dir: filepath.Join(t.TempDir(), "acme"), Checkout: root})
	if err != nil {
		t.Fatal(err)
	}
	goes(t, dir, "mod", "tidy")
	b := build(t, dir, map[string]string{"bigfleet": root})
	if b.user != "65532:65532" || b.entry != "/bigfleet-provider" || !slices.Equal(b.ports, []string{"9000", "9090"}) || !strings.HasPrefix(b.base, "gcr.io/distroless/static") {
		t.Errorf("user %s, entry %s, ports %v, base %s", b.user, b.entry, b.ports, b.base)
	}
	if _, err := os.Stat(filepath.Join(b.contexts["build"], "src", "chart")); err == nil {
		t.Error(".dockerignore does not keep the chart out")
	}
	program := filepath.Join(b.root, b.entry)
	if runtime.GOOS != "linux" {
		t.Skip("images are built for Linux; the rest runs the binary in a root of its own")
	}
	binary, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 || slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("the binary is not static: %v %v", libraries, err)
	}
	if os.Getuid() != 0 {
		t.Skip("to change root and user takes root")
	}
	runInImage(t, b.root, dir)
}

// runInImage starts the program as the image's user, with the image as its root: nothing is writable but the volume.
func runInImage(t *testing.T, root, module string) {
	config, err := os.ReadFile(filepath.Join(module, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	etc, volume := filepath.Join(root, "etc", "bigfleet"), filepath.Join(root, "var", "lib", "bigfleet")
	for _, d := range []string{etc, volume} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for d := root; d != "/" && d != os.TempDir(); d = filepath.Dir(d) { // the way to it, for a user without rights
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(etc, "config.yaml"), config, 0o444); err != nil {
		t.Fatal(err)
	}
	const unprivileged = 65532
	if err := os.Chown(volume, unprivileged, unprivileged); err != nil {
		t.Fatal(err)
	}
	addr := loopback.Addr(t)
	cmd := exec.CommandContext(t.Context(), "/bigfleet-provider", "--config=/etc/bigfleet/config.yaml", "--use-fake-backend", "--addr=127.0.0.1:0",
		"--metrics-addr="+addr, "--data-dir=/var/lib/bigfleet")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = &out, &out, "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := false
	for deadline := time.Now().Add(time.Minute); !ready && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + addr + "/readyz"); err == nil {
			_ = answer.Body.Close()
			ready = answer.StatusCode == http.StatusOK
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !ready {
		t.Fatalf("ready: %v, %v\n%s", ready, err, out.String())
	}
	if _, err := os.Stat(filepath.Join(volume, "provider.db")); err != nil {
		t.Error("no state on the volume:", err)
	}
}

package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// Environment of a test binary that is an agent on a pretended machine.
const (
	asAgent = "BIGFLEET_AGENT_TEST_DIR" // directory of journal and machine
	atURL   = "BIGFLEET_AGENT_TEST_URL" // of the provider
	dieAt   = "BIGFLEET_AGENT_TEST_DIE" // point at which it kills itself, once
	hostOne = "host-1"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asAgent); dir != "" {
		runAsAgent(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// runAsAgent is an agent that dies with SIGKILL at one point, and says each point that it passes.
func runAsAgent(dir string) {
	m := NewPretended(dir)
	point := os.Getenv(dieAt)
	m.At = func(at string) {
		fmt.Println(at)
		if at == point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	a, err := New(Config{Name: hostOne, URL: os.Getenv(atURL), StateDir: dir, Host: m, Wait: time.Second, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err == nil {
		err = a.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// provider plays the provider: it gives one task until the host says how it ended.
type provider struct {
	mu      sync.Mutex
	task    *pb.ReportHostResponse
	reports chan *pb.ReportHostRequest
}

func (d *provider) ReportHost(ctx context.Context, req *connect.Request[pb.ReportHostRequest]) (*connect.Response[pb.ReportHostResponse], error) {
	select {
	case d.reports <- req.Msg:
	default:
	}
	d.mu.Lock()
	task := d.task
	d.mu.Unlock()
	if task != nil && req.Msg.GetOperationId() != id(task) {
		return connect.NewResponse(task), nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return connect.NewResponse(&pb.ReportHostResponse{}), nil
}

func id(t *pb.ReportHostResponse) string {
	if c := t.GetConfigure(); c != nil {
		return c.GetOperationId()
	}
	return t.GetReset_().GetOperationId()
}

func startProvider(t *testing.T) (*provider, string) {
	d := &provider{reports: make(chan *pb.ReportHostRequest, 1000)}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewHostAgentHandler(d))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return d, s.URL
}

// give sets the task and waits until a report says that it ended.
func (d *provider) give(t *testing.T, task *pb.ReportHostResponse, phases ...pb.HostPhase) *pb.ReportHostRequest {
	t.Helper()
	d.mu.Lock()
	d.task = task
	d.mu.Unlock()
	limit := time.After(time.Minute)
	for {
		select {
		case r := <-d.reports:
			if r.GetOperationId() == id(task) && slices.Contains(phases, r.GetPhase()) {
				return r
			}
		case <-limit:
			t.Fatalf("no report says that %s ended", id(task))
		}
	}
}

const bootData = `#cloud-config
write_files:
- path: /etc/kubernetes/bootstrap-kubelet.conf
  permissions: "0600"
  content: token
- path: /etc/systemd/system/kubelet.service.d/90-bigfleet.conf
  content: |
    [Service]
    ExecStart=
    ExecStart=/usr/bin/kubelet \
      --kubeconfig=/etc/kubernetes/kubelet.conf \
      --node-labels=a=b
runcmd:
- [systemctl, daemon-reload]
- [systemctl, enable, --now, kubelet]
`

func configureTask(operation, cluster string) *pb.ReportHostResponse {
	return &pb.ReportHostResponse{Task: &pb.ReportHostResponse_Configure{Configure: &pb.ConfigureHost{
		OperationId: operation, MachineId: "m1", ClusterId: cluster, BootData: []byte(bootData),
	}}}
}

func resetTask(operation string) *pb.ReportHostResponse {
	return &pb.ReportHostResponse{Task: &pb.ReportHostResponse_Reset_{Reset_: &pb.ResetHost{OperationId: operation}}}
}

// process is an agent in a process of its own, started again whenever it dies.
type process struct {
	t      *testing.T
	dir    string
	url    string
	points []string // that it passed
	deaths int
	end    chan struct{}
	ended  chan struct{}
}

func startProcess(t *testing.T, url, point string) *process {
	p := &process{t: t, dir: t.TempDir(), url: url, end: make(chan struct{}), ended: make(chan struct{})}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), asAgent+"="+p.dir, atURL+"="+url, dieAt+"="+point)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			read := make(chan struct{})
			go func() {
				defer close(read)
				for lines := bufio.NewScanner(out); lines.Scan(); {
					p.points = append(p.points, lines.Text())
				}
			}()
			dead := make(chan struct{})
			go func() { <-read; _ = cmd.Wait(); close(dead) }()
			select {
			case <-dead:
				p.deaths++
				point = "" // once
			case <-p.end:
				_ = cmd.Process.Kill()
				<-dead
				return
			}
		}
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	select {
	case <-p.ended:
	default:
		close(p.end)
		<-p.ended
	}
}

// PROV-32.5: whatever step the agent is killed at, the host is configured once and reset whole.
func TestKilledAtEachStep(t *testing.T) {
	life := func(t *testing.T, point string) *process {
		d, url := startProvider(t)
		p := startProcess(t, url, point)
		r := d.give(t, configureTask("configure-1", "red"), pb.HostPhase_HOST_PHASE_CONFIGURED, pb.HostPhase_HOST_PHASE_QUARANTINED)
		if r.GetPhase() != pb.HostPhase_HOST_PHASE_CONFIGURED || r.GetProblem() != "" {
			t.Fatalf("configure ended in %v", r)
		}
		m := NewPretended(p.dir)
		if f := m.Facts(); f.Joins != 1 || len(f.Keys) != 1 || len(f.Processes) != 2 {
			t.Fatalf("after configure: %+v", f)
		}
		r = d.give(t, resetTask("reset-1"), pb.HostPhase_HOST_PHASE_CLEAN, pb.HostPhase_HOST_PHASE_QUARANTINED)
		if r.GetPhase() != pb.HostPhase_HOST_PHASE_CLEAN || r.GetClusterId() != "" {
			t.Fatalf("reset ended in %v", r)
		}
		p.stop()
		if f := m.Facts(); len(f.Files)+len(f.Keys)+len(f.Processes) > 0 || f.Remembered || f.Joins != 1 || f.Resets != 1 {
			t.Fatalf("after reset: %+v", f)
		}
		return p
	}
	whole := life(t, "")
	var points []string
	for _, point := range whole.points {
		if !slices.Contains(points, point) {
			points = append(points, point)
		}
	}
	if len(points) < 2*(len(configureSteps)+len(resetSteps)-1) {
		t.Fatalf("only %d points were passed: %v", len(points), points)
	}
	for _, point := range points {
		t.Run(strings.ReplaceAll(point, " ", "-"), func(t *testing.T) {
			t.Parallel()
			if p := life(t, point); p.deaths != 1 {
				t.Errorf("it died %d times", p.deaths)
			}
		})
	}
}

// inProcess runs an agent in this process.
func inProcess(t *testing.T, m *Pretended, dir, url string) {
	a, err := New(Config{Name: hostOne, URL: url, StateDir: dir, Host: m, Wait: time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done; http.DefaultClient.CloseIdleConnections() })
}

// PROV-32.6: a reset that leaves something, or fails, quarantines the host with the reason; a later reset that succeeds frees it.
func TestQuarantine(t *testing.T) {
	d, url := startProvider(t)
	dir := t.TempDir()
	m := NewPretended(dir)
	inProcess(t, m, dir, url)
	d.give(t, configureTask("c1", "red"), pb.HostPhase_HOST_PHASE_CONFIGURED)
	m.mu.Lock()
	m.broken["wipe"] = errors.New("a volume hangs")
	m.mu.Unlock()
	r := d.give(t, resetTask("r1"), pb.HostPhase_HOST_PHASE_QUARANTINED, pb.HostPhase_HOST_PHASE_CLEAN)
	if !strings.Contains(r.GetProblem(), "a volume hangs") || r.GetStep() != "files" || r.GetClusterId() != "red" {
		t.Fatalf("report %v", r)
	}
	// A quarantined host takes nothing but a reset.
	r = d.give(t, configureTask("c2", "blue"), pb.HostPhase_HOST_PHASE_QUARANTINED, pb.HostPhase_HOST_PHASE_CONFIGURED)
	if r.GetPhase() != pb.HostPhase_HOST_PHASE_QUARANTINED || !strings.Contains(r.GetProblem(), "it must be reset first") {
		t.Fatalf("report %v", r)
	}
	m.mu.Lock()
	delete(m.broken, "wipe")
	m.mu.Unlock()
	d.give(t, resetTask("r2"), pb.HostPhase_HOST_PHASE_CLEAN)
	d.give(t, configureTask("c3", "blue"), pb.HostPhase_HOST_PHASE_CONFIGURED)
}

// PROV-32.4: a host that holds things of a node before its first task is not offered.
func TestFirstLookFindsSomething(t *testing.T) {
	d, url := startProvider(t)
	dir := t.TempDir()
	m := NewPretended(dir)
	if err := m.Write(t.Context(), []File{{Path: "/etc/kubernetes/pki/ca.crt"}}); err != nil {
		t.Fatal(err)
	}
	inProcess(t, m, dir, url)
	r := <-d.reports
	if r.GetPhase() != pb.HostPhase_HOST_PHASE_QUARANTINED || !slices.Equal(r.GetRemains(), []string{"/etc/kubernetes/pki/ca.crt"}) {
		t.Fatalf("report %v", r)
	}
}

// PROV-32.7: what made the host a node is started again when it ends by itself.
func TestTend(t *testing.T) {
	d, url := startProvider(t)
	dir := t.TempDir()
	m := NewPretended(dir)
	inProcess(t, m, dir, url)
	d.give(t, configureTask("c1", "red"), pb.HostPhase_HOST_PHASE_CONFIGURED)
	for _, stop := range []func(context.Context) error{m.StopKubelet, m.StopRuntime} {
		if err := stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if kubelet, runtime := m.Runs(); kubelet && runtime {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal("it is not started again")
			}
		}
	}
}

// PROV-32.3: boot data that asks for more than files of a kubelet and its flags is refused, and the answer holds no content.
func TestBootDataIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"script":     {"#!/bin/sh\nrm -rf /\n", "not a #cloud-config"},
		"command":    {strings.Replace(bootData, "[systemctl, daemon-reload]", "[curl, http://evil]", 1), "runs only the commands"},
		"other file": {strings.Replace(bootData, "/etc/kubernetes/bootstrap-kubelet.conf", "/root/.ssh/authorized_keys", 1), "only files below"},
		"dots":       {strings.Replace(bootData, "/etc/kubernetes/bootstrap-kubelet.conf", "/etc/kubernetes/../shadow", 1), "only files below"},
		"users":      {bootData + "users: [{name: eve}]\n", "more than write_files and runcmd"},
		"root dir":   {strings.Replace(bootData, "--node-labels=a=b", "--root-dir=/srv", 1), "set by the host"},
		"far path":   {strings.Replace(bootData, "--kubeconfig=/etc/kubernetes/kubelet.conf", "--kubeconfig=/etc/passwd", 1), "paths must be below"},
		"program":    {strings.Replace(bootData, "ExecStart=/usr/bin/kubelet", "ExecStart=/bin/sh", 1), "not with /usr/bin/kubelet"},
		"variable":   {strings.Replace(bootData, "--node-labels=a=b", "--node-labels=$EVIL", 1), "not a flag of the form"},
		"none":       {"#cloud-config\nwrite_files: []\n", "starts no kubelet"},
		"owner":      {strings.Replace(bootData, `permissions: "0600"`, "owner: eve", 1), "not root"},
		"before":     {strings.Replace(bootData, "    [Service]\n", "    [Service]\n    ExecStartPre=/bin/sh -c evil\n", 1), "only [Service] and ExecStart"},
		"spaced":     {strings.Replace(bootData, "    ExecStart=\n", "    ExecStart = /bin/sh\n", 1), "only [Service] and ExecStart"},
		"plugin":     {strings.Replace(bootData, "--node-labels=a=b", "--image-credential-provider-bin-dir=/etc/kubernetes/bin", 1), "set by the host"},
		"exec":       {strings.Replace(bootData, "content: token", "content: 'users: [{name: u, user: {exec: {command: /bin/sh}}}]'", 1), "runs a program"},
		"unit":       {strings.Replace(bootData, "runcmd:\n", "- path: /etc/systemd/system/kubelet.service.d/91.conf\n  content: \"# \\\\\\nusers: [{user: {exec: {command: /bin/sh}}}]\\n\"\nruncmd:\n", 1), "runs a program"},
		"relative":   {strings.Replace(bootData, "--kubeconfig=/etc/kubernetes/kubelet.conf", "--kubeconfig=etc/systemd/system/kubelet.service.d/91.conf", 1), "paths must be below"},
		"two":        {bootData + "---\na: b\n", "more than one document"},
	} {
		if _, err := ParseBootData([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "token\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b, err := ParseBootData([]byte(bootData))
	if err != nil || len(b.Files) != 2 || b.Files[0].Mode != 0o600 || !slices.Equal(b.Kubelet, []string{"--kubeconfig=/etc/kubernetes/kubelet.conf", "--node-labels=a=b"}) {
		t.Errorf("%+v, %v", b, err)
	}
}

// PROV-32.3: only a kubeconfig can run a program. A label or a certificate that holds the letters does not.
func TestBootDataWithTheLettersOfExec(t *testing.T) {
	for name, data := range map[string]string{
		"label":        strings.Replace(bootData, "--node-labels=a=b", "--node-labels=role=executor", 1),
		"certificate":  strings.Replace(bootData, "content: token", `content: "-----BEGIN CERTIFICATE-----\nMIIexecA\n-----END CERTIFICATE-----\n"`, 1),
		"certificates": strings.Replace(bootData, "content: token", `content: "-----BEGIN CERTIFICATE-----\nMIIexecA\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nMIIAexec\n-----END CERTIFICATE-----\n"`, 1),
	} {
		if _, err := ParseBootData([]byte(data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	hidden := strings.Replace(bootData, "content: token", `content: "users: [{user: {exec: {command: /bin/sh}}}, &\n-----BEGIN CERTIFICATE-----\nMIIA\n-----END CERTIFICATE-----\n"`, 1)
	if _, err := ParseBootData([]byte(hidden)); err == nil || !strings.Contains(err.Error(), "runs a program") {
		t.Errorf("a certificate behind a damaged kubeconfig: %v", err)
	}
}

// PROV-32: any flipped bit in the journal is found, and any cut; a journal of an earlier agent, which has no checksum, is read.
func TestAnyFlippedBitOfTheJournalIsFound(t *testing.T) {
	j := journal{filepath.Join(t.TempDir(), "journal.json")}
	want := State{Phase: pb.HostPhase_HOST_PHASE_CONFIGURED, Operation: "op-1", Kind: "configure", Machine: "m-1", Cluster: "red", Kubelet: []string{"--node-labels=a=b"}}
	if err := j.save(want); err != nil {
		t.Fatal(err)
	}
	if got, err := j.load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	whole, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(whole) {
		text := bytes.Clone(whole)
		text[i/8] ^= 1 << (i % 8)
		if err := os.WriteFile(j.file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := j.load(); err == nil || !strings.Contains(err.Error(), "command reset") {
			t.Fatalf("bit %d: %+v, %v", i, got, err)
		}
	}
	for n := range whole {
		if err := os.WriteFile(j.file, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := j.load(); err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%d bytes: %+v", n, got)
		}
	}
	legacy, _, _ := bytes.Cut(whole, []byte("\n"))
	if err := os.WriteFile(j.file, legacy, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := j.load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("without a checksum: %+v, %v", got, err)
	}
}

// A damaged journal stops the agent with the way out.
func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{Name: hostOne, URL: "http://x", StateDir: dir, Host: NewPretended(dir), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "command reset") {
		t.Errorf("%v", err)
	}
}

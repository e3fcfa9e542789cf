// Package proc runs the programs of an end-to-end test: it starts a binary, waits until it is ready, keeps its log,
// and stops, kills, pauses or restarts it on the same command line.
//
// A Process is one program with one set of arguments. Its log file outlives restarts. Everything it starts is in a
// process group of its own, so that a signal to the test does not reach it, and Stop and Kill reach its children too.
// On Linux the kernel kills it when the test dies without cleaning up. A start that fails says which program, why, and
// shows the end of its log.
//
// Build compiles a main package of this repository. Nothing here knows what the programs do; package controlplane
// runs Kubernetes with it, scenario tests run BigFleet's services with it. Safe for concurrent use.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Defaults of Config.
const (
	DefaultReadyTimeout = 60 * time.Second // a cold kube-apiserver on a busy two-core machine needs 10 s
	DefaultStopTimeout  = 30 * time.Second // a shard may take 25 s (SHARD-3.9)

	probeInterval = 25 * time.Millisecond
	tailLines     = 25 // of the log, in the error of a start that failed
)

// Errors that callers tell apart.
var (
	ErrRunning    = errors.New("already running")
	ErrNotRunning = errors.New("not running")
	ErrExited     = errors.New("exited before it was ready")
	ErrNotReady   = errors.New("not ready in time")
	ErrKilled     = errors.New("did not stop in time and was killed")
	ErrNotPaused  = errors.New("not paused in time")
)

// Config describes a program to run.
type Config struct {
	Name string   // required; names the process in errors
	Path string   // required; the binary
	Args []string // without the program name
	Env  []string // "KEY=value", on top of the environment of this process
	Dir  string   // working directory; "" means that of this process

	LogFile string // required; stdout and stderr are appended to it, directories are created

	Ready        Probe         // nil means ready as soon as it runs
	ReadyTimeout time.Duration // 0 means DefaultReadyTimeout
	StopTimeout  time.Duration // from SIGTERM to SIGKILL; 0 means DefaultStopTimeout
}

// Process is a program that can be started again and again. Make one with New or Start.
type Process struct {
	cfg Config

	change sync.Mutex // serialises Start, Stop, Kill and Restart

	mu  sync.Mutex // guards run
	run *run       // the current or latest incarnation; nil before the first start
}

// run is one incarnation.
type run struct {
	pid       int
	logOffset int64 // where its part of the log begins
	exited    chan struct{}
	err       error // from Wait; read after exited is closed
}

// New checks c and starts nothing.
func New(c Config) (*Process, error) {
	switch {
	case c.Name == "":
		return nil, errors.New("proc: Config.Name is required")
	case c.Path == "":
		return nil, fmt.Errorf("proc: Config.Path of %s is required", c.Name)
	case c.LogFile == "":
		return nil, fmt.Errorf("proc: Config.LogFile of %s is required", c.Name)
	}
	if c.ReadyTimeout == 0 {
		c.ReadyTimeout = DefaultReadyTimeout
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	return &Process{cfg: c}, nil
}

// Start makes a Process and starts it. ctx bounds the wait for readiness, not the life of the process.
func Start(ctx context.Context, c Config) (*Process, error) {
	p, err := New(c)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Start runs the program and waits until it is ready. When it does not become ready, it is killed and the error is a
// *StartError. ctx bounds the wait, not the life of the process.
func (p *Process) Start(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.start(ctx)
}

func (p *Process) start(ctx context.Context) error {
	if p.Running() {
		return fmt.Errorf("%s: %w", p.cfg.Name, ErrRunning)
	}
	r, err := p.launch()
	if err != nil {
		return p.startError(err)
	}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()

	if err := p.waitReady(ctx, r); err != nil {
		p.end(r)
		return p.startError(err)
	}
	return nil
}

// launch starts one incarnation, from a goroutine that lives as long as the child: see Isolate.
func (p *Process) launch() (*run, error) {
	if err := os.MkdirAll(filepath.Dir(p.cfg.LogFile), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.cfg.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	if _, err := fmt.Fprintf(log, "--- %s %s\n", p.cfg.Path, strings.Join(p.cfg.Args, " ")); err != nil {
		return nil, err
	}
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(p.cfg.Path, p.cfg.Args...)
	cmd.Dir = p.cfg.Dir
	cmd.Env = append(os.Environ(), p.cfg.Env...)
	cmd.Stdout, cmd.Stderr = log, log

	r := &run{logOffset: info.Size(), exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer Isolate(cmd, syscall.SIGKILL)()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

func (p *Process) waitReady(ctx context.Context, r *run) error {
	if p.cfg.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.ReadyTimeout, fmt.Errorf("%w: %s", ErrNotReady, p.cfg.ReadyTimeout))
	defer cancel()
	probeCtx, stopProbe := context.WithCancel(ctx)
	defer stopProbe()
	go func() { // a probe that hangs on a dead process must not hold the caller
		select {
		case <-r.exited:
			stopProbe()
		case <-probeCtx.Done():
		}
	}()

	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	var lastProbe error
	for {
		if err := p.cfg.Ready(probeCtx, p); err == nil {
			return nil
		} else if probeCtx.Err() == nil {
			lastProbe = err // what the probe said before it was cut short
		}
		select {
		case <-r.exited:
			return fmt.Errorf("%w: %s", ErrExited, exitStatus(r.err))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), lastProbe)
		case <-tick.C:
		}
	}
}

// Stop asks the program to end (SIGTERM) and waits. After StopTimeout it is killed and the error is ErrKilled. A
// process that does not run is stopped already.
func (p *Process) Stop() error {
	p.change.Lock()
	defer p.change.Unlock()
	return p.stop()
}

func (p *Process) stop() error {
	r := p.current()
	if r == nil {
		return nil
	}
	defer p.end(r)
	if err := r.signal(syscall.SIGTERM); err != nil {
		return p.wrap(err)
	}
	select {
	case <-r.exited:
		return nil
	case <-time.After(p.cfg.StopTimeout):
		return p.wrap(fmt.Errorf("%w after %s", ErrKilled, p.cfg.StopTimeout))
	}
}

// Kill ends the program and its children at once (SIGKILL) and waits until they are gone. A process that does not run
// is killed already.
func (p *Process) Kill() {
	p.change.Lock()
	defer p.change.Unlock()
	if r := p.current(); r != nil {
		p.end(r)
	}
}

// Restart stops the program and starts it again on the same arguments. A stop that needed SIGKILL is not an error here.
func (p *Process) Restart(ctx context.Context) error {
	p.change.Lock()
	defer p.change.Unlock()
	if err := p.stop(); err != nil && !errors.Is(err, ErrKilled) {
		return err
	}
	return p.start(ctx)
}

// Signal sends s to the program and its children.
func (p *Process) Signal(s syscall.Signal) error {
	r := p.current()
	if r == nil || r.done() {
		return p.wrap(ErrNotRunning)
	}
	return p.wrap(r.signal(s))
}

// Running tells whether the program runs now.
func (p *Process) Running() bool {
	r := p.current()
	return r != nil && !r.done()
}

// PID returns the process id of the current or latest incarnation, 0 before the first.
func (p *Process) PID() int {
	if r := p.current(); r != nil {
		return r.pid
	}
	return 0
}

// Exited returns a channel that is closed when the current incarnation ends. Before the first start it is closed.
func (p *Process) Exited() <-chan struct{} {
	if r := p.current(); r != nil {
		return r.exited
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// ExitCode returns the exit status of the latest incarnation: -1 while it runs, when a signal ended it, and before the
// first start.
func (p *Process) ExitCode() int {
	r := p.current()
	if r == nil || !r.done() {
		return -1
	}
	if exit, found := errors.AsType[*exec.ExitError](r.err); found {
		return exit.ExitCode()
	}
	if r.err != nil {
		return -1
	}
	return 0
}

// Name returns Config.Name.
func (p *Process) Name() string { return p.cfg.Name }

// LogFile returns Config.LogFile.
func (p *Process) LogFile() string { return p.cfg.LogFile }

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// end kills what is left of the group of r, the program or children that outlived it, and waits for the program.
func (p *Process) end(r *run) {
	_ = r.signal(syscall.SIGKILL)
	<-r.exited
}

// signal sends s to the whole group. A group that is gone is not an error.
func (r *run) signal(s syscall.Signal) error {
	if err := syscall.Kill(-r.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) && !(r.done() && errors.Is(err, syscall.EPERM)) {
		return fmt.Errorf("signal %s: %w", s, err)
	}
	return nil
}

func (r *run) done() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

func (p *Process) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.cfg.Name, err)
}

func exitStatus(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// StartError is a program that did not start or did not become ready.
type StartError struct {
	Name    string // of the process
	PID     int    // of the latest incarnation, gone by now; 0 when there was none
	LogFile string
	Tail    string // the end of the log
	Err     error  // ErrExited, ErrNotReady, the cause of ctx, or why the program could not be run
}

func (p *Process) startError(err error) error {
	return &StartError{Name: p.cfg.Name, PID: p.PID(), LogFile: p.cfg.LogFile, Tail: p.Tail(tailLines), Err: err}
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s: %v; the end of %s:\n%s", e.Name, e.Err, e.LogFile, e.Tail)
}

func (e *StartError) Unwrap() error { return e.Err }

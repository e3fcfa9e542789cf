package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Pretended is a Host whose facts lie in a file, so that they outlive the agent's process as a real machine does. It is for tests and
// for providers that run against no real host. A process of the machine is a file, so that it can be killed at any moment.
type Pretended struct {
	// At, if set, is called at the begin and at the end of each call, with its name; it does not return when the agent dies there.
	At func(point string)

	dir  string
	file string
	mu   sync.Mutex
	// broken makes a call fail.
	broken map[string]error
}

// NewPretended keeps its facts in dir, which must exist.
func NewPretended(dir string) *Pretended {
	return &Pretended{dir: dir, file: filepath.Join(dir, "facts.json"), broken: map[string]error{}}
}

// Facts are what is on a pretended machine.
type Facts struct {
	Files, Keys   []string
	Processes     []string `json:"-"`
	Remembered    bool
	Joins, Resets int // effects: how often the kubelet joined, and how often something was wiped
	Mixed         int // how often files were written beside the keys of an earlier node
}

// Facts are what is on the machine now.
func (m *Pretended) Facts() (f Facts) {
	for _, one := range []Service{Kubelet, Runtime} {
		if _, err := os.Stat(m.process(one)); err == nil {
			f.Processes = append(f.Processes, string(one))
		}
	}
	if text, err := os.ReadFile(m.file); err == nil {
		if err := json.Unmarshal(text, &f); err != nil {
			panic(err) // it wrote the file itself
		}
	}
	return f
}

func (m *Pretended) process(s Service) string { return filepath.Join(m.dir, "process-"+string(s)) }

// Kill ends a process of the machine, as kill -9 does. It says whether it ran.
func (m *Pretended) Kill(s Service) (ran bool) { return os.Remove(m.process(s)) == nil }

func (m *Pretended) change(call string, do func(*Facts)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.At != nil {
		m.At("before " + call)
	}
	if err := m.broken[call]; err != nil {
		return err
	}
	f := m.Facts()
	do(&f)
	text, err := json.Marshal(f)
	if err := errors.Join(err, os.WriteFile(m.file+".new", text, 0o600), os.Rename(m.file+".new", m.file)); err != nil {
		return err
	}
	if m.At != nil {
		m.At("after " + call)
	}
	return nil
}

// Remember implements Host.
func (m *Pretended) Remember(context.Context) error {
	return m.change("remember", func(f *Facts) { f.Remembered = true })
}

// Write implements Host.
func (m *Pretended) Write(_ context.Context, files []File) error {
	return m.change("write", func(f *Facts) {
		if len(f.Keys) > 0 {
			f.Mixed++
		}
		f.Files = nil
		for _, file := range files {
			f.Files = append(f.Files, file.Path)
		}
	})
}

func (m *Pretended) start(call string, s Service) error {
	var err error
	return errors.Join(m.change(call, func(*Facts) { err = os.WriteFile(m.process(s), nil, 0o600) }), err)
}

// StartRuntime implements Host.
func (m *Pretended) StartRuntime(context.Context) error { return m.start("start runtime", Runtime) }

// StartKubelet implements Host.
func (m *Pretended) StartKubelet(context.Context, []string) error {
	return m.start("start kubelet", Kubelet)
}

// Joined implements Host.
func (m *Pretended) Joined(ctx context.Context) error {
	joined := false
	for {
		err := m.change("join", func(f *Facts) {
			if len(f.Processes) < 2 {
				return // no kubelet, or one without its runtime
			}
			if joined = true; len(f.Keys) == 0 { // a kubelet asks for a certificate once
				f.Joins++
				f.Keys = []string{"kubelet-client-current.pem"}
			}
		})
		if err != nil || joined {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the kubelet or the container runtime is not running")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *Pretended) stop(call string, s Service) error {
	return m.change(call, func(*Facts) { m.Kill(s) })
}

// StopKubelet implements Host.
func (m *Pretended) StopKubelet(context.Context) error { return m.stop("stop kubelet", Kubelet) }

// StopRuntime implements Host.
func (m *Pretended) StopRuntime(context.Context) error { return m.stop("stop runtime", Runtime) }

// EndContainers implements Host.
func (m *Pretended) EndContainers(context.Context, time.Duration) error {
	return m.change("end containers", func(*Facts) {})
}

// Unmount implements Host.
func (m *Pretended) Unmount(context.Context) error { return m.change("unmount", func(*Facts) {}) }

// Wipe implements Host.
func (m *Pretended) Wipe(context.Context) error {
	return m.change("wipe", func(f *Facts) {
		if len(f.Keys) > 0 {
			f.Resets++
		}
		f.Files, f.Keys = nil, nil
	})
}

// RestoreNetwork implements Host.
func (m *Pretended) RestoreNetwork(context.Context) error {
	return m.change("network", func(*Facts) {})
}

// Forget implements Host.
func (m *Pretended) Forget(context.Context) error {
	return m.change("forget", func(f *Facts) { f.Remembered = false })
}

// Look implements Host.
func (m *Pretended) Look(context.Context) (left []string, err error) {
	err = m.change("look", func(f *Facts) { left = slices.Concat(f.Files, f.Keys, f.Processes) })
	return left, err
}

// BoundLogs implements Host.
func (m *Pretended) BoundLogs() error { return nil }

// Runs implements Host.
func (m *Pretended) Runs() (kubelet, runtime bool) {
	f := m.Facts()
	return slices.Contains(f.Processes, string(Kubelet)), slices.Contains(f.Processes, string(Runtime))
}

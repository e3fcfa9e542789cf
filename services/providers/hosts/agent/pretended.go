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
// for providers that run against no real host.
type Pretended struct {
	file string
	mu   sync.Mutex
	// die is called at the begin and at the end of each call, with its name; it does not return when the agent dies there.
	die func(point string)
	// broken makes a call fail.
	broken map[string]error
}

// NewPretended keeps its facts in dir, which must exist.
func NewPretended(dir string) *Pretended {
	return &Pretended{file: filepath.Join(dir, "facts.json"), broken: map[string]error{}}
}

type facts struct {
	Files, Processes, Keys []string
	Remembered             bool
	Joins, Resets          int // effects: how often the kubelet joined, and how often something was wiped
	Calls                  []string
}

func (m *Pretended) read() (f facts) {
	if text, err := os.ReadFile(m.file); err == nil {
		if err := json.Unmarshal(text, &f); err != nil {
			panic(err) // it wrote the file itself
		}
	}
	return f
}

func (m *Pretended) change(call string, do func(*facts)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.die != nil {
		m.die("before " + call)
	}
	if err := m.broken[call]; err != nil {
		return err
	}
	f := m.read()
	do(&f)
	f.Calls = append(f.Calls, call)
	text, err := json.Marshal(f)
	if err := errors.Join(err, os.WriteFile(m.file+".new", text, 0o600), os.Rename(m.file+".new", m.file)); err != nil {
		return err
	}
	if m.die != nil {
		m.die("after " + call)
	}
	return nil
}

// Remember implements Host.
func (m *Pretended) Remember(context.Context) error {
	return m.change("remember", func(f *facts) { f.Remembered = true })
}

// Write implements Host.
func (m *Pretended) Write(_ context.Context, files []File) error {
	return m.change("write", func(f *facts) {
		f.Files = nil
		for _, file := range files {
			f.Files = append(f.Files, file.Path)
		}
	})
}

func (m *Pretended) start(call, process string) error {
	return m.change(call, func(f *facts) {
		if !slices.Contains(f.Processes, process) {
			f.Processes = append(f.Processes, process)
		}
	})
}

// StartRuntime implements Host.
func (m *Pretended) StartRuntime(context.Context) error {
	return m.start("start runtime", "containerd")
}

// StartKubelet implements Host.
func (m *Pretended) StartKubelet(context.Context, []string) error {
	return m.start("start kubelet", "kubelet")
}

// Joined implements Host.
func (m *Pretended) Joined(context.Context) error {
	return m.change("join", func(f *facts) {
		if len(f.Keys) == 0 { // a kubelet asks for a certificate once
			f.Joins++
			f.Keys = []string{"kubelet-client-current.pem"}
		}
	})
}

func (m *Pretended) stop(call, process string) error {
	return m.change(call, func(f *facts) {
		f.Processes = slices.DeleteFunc(f.Processes, func(p string) bool { return p == process })
	})
}

// StopKubelet implements Host.
func (m *Pretended) StopKubelet(context.Context) error { return m.stop("stop kubelet", "kubelet") }

// StopRuntime implements Host.
func (m *Pretended) StopRuntime(context.Context) error { return m.stop("stop runtime", "containerd") }

// EndContainers implements Host.
func (m *Pretended) EndContainers(context.Context, time.Duration) error {
	return m.change("end containers", func(*facts) {})
}

// Unmount implements Host.
func (m *Pretended) Unmount(context.Context) error { return m.change("unmount", func(*facts) {}) }

// Wipe implements Host.
func (m *Pretended) Wipe(context.Context) error {
	return m.change("wipe", func(f *facts) {
		if len(f.Keys) > 0 {
			f.Resets++
		}
		f.Files, f.Keys = nil, nil
	})
}

// RestoreNetwork implements Host.
func (m *Pretended) RestoreNetwork(context.Context) error {
	return m.change("network", func(*facts) {})
}

// Forget implements Host.
func (m *Pretended) Forget(context.Context) error {
	return m.change("forget", func(f *facts) { f.Remembered = false })
}

// Look implements Host.
func (m *Pretended) Look(context.Context) (left []string, err error) {
	err = m.change("look", func(f *facts) { left = slices.Concat(f.Files, f.Keys, f.Processes) })
	return left, err
}

// Runs implements Host.
func (m *Pretended) Runs() (kubelet, runtime bool) {
	f := m.read()
	return slices.Contains(f.Processes, "kubelet"), slices.Contains(f.Processes, "containerd")
}

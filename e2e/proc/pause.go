package proc

import (
	"fmt"
	"syscall"
	"time"
)

const (
	pauseTimeout  = 10 * time.Second // a thread stops when it leaves the kernel, which takes long only on a slow disk
	pauseInterval = time.Millisecond
)

// Pause freezes the program and its children (SIGSTOP): sockets stay open and nothing answers. Resume undoes it.
//
// Pause returns when every thread has stopped: a signal that was sent is not yet a process that stands still. When that
// takes longer than ten seconds the error is ErrNotPaused, and Resume undoes what happened so far.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r := p.current()
	for deadline := time.Now().Add(pauseTimeout); ; time.Sleep(pauseInterval) {
		running, err := runningInGroup(r.pid)
		switch {
		case err != nil:
			return p.wrap(fmt.Errorf("pause: %w", err))
		case r.done():
			return p.wrap(ErrNotRunning)
		case running == "":
			return nil
		case time.Now().After(deadline):
			return p.wrap(fmt.Errorf("%w: after %s %s", ErrNotPaused, pauseTimeout, running))
		}
	}
}

// Resume continues a paused program.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

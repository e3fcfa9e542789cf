package agent

import (
	"context"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// tend starts kubelet and runtime again when they ended by themselves, as after a reboot.
func (a *Agent) tend(ctx context.Context) {
	ticker := time.NewTicker(a.config.Tend)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.tendOnce(ctx)
		}
	}
}

// shouldRun says that kubelet and runtime have been started and must run: of a node, and of a host that is about to become one.
func (s State) shouldRun() bool {
	return s.Phase == pb.HostPhase_HOST_PHASE_CONFIGURED || s.Phase == pb.HostPhase_HOST_PHASE_CONFIGURING && s.Step == stepJoin
}

func (a *Agent) tendOnce(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, stepTimeout)
	defer stop()
	one := &running{stop: stop, done: make(chan struct{})}
	defer close(one.done)
	a.mu.Lock()
	s := a.now
	if !s.shouldRun() {
		a.mu.Unlock()
		return
	}
	a.tending = one
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.tending = nil
		a.mu.Unlock()
	}()
	if err := a.host.BoundLogs(); err != nil {
		a.log.Warn("the log of the kubelet or of the container runtime cannot be cut; it grows", "err", err)
	}
	kubelet, runtime := a.host.Runs()
	var err error
	if !runtime {
		err = a.host.StartRuntime(ctx)
	}
	if err == nil && !kubelet {
		err = a.host.StartKubelet(ctx, s.Kubelet)
	}
	switch {
	case ctx.Err() != nil: // a reset, or the end of the agent
	case err != nil:
		a.log.Error("the kubelet or the container runtime ended and cannot be restarted; it is retried", "err", err)
	case !kubelet || !runtime:
		a.log.Warn("the kubelet or the container runtime had ended and was restarted", "kubelet", !kubelet, "runtime", !runtime)
	}
}

// endTending returns once nothing is started any more behind the back of a reset. The state must say already that the host is reset.
func (a *Agent) endTending() {
	a.mu.Lock()
	one := a.tending
	a.mu.Unlock()
	if one != nil {
		one.stop()
		<-one.done
	}
}

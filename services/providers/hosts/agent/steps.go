package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Host is what the steps do to a machine. Every call may be repeated and ends with its context. Linux is the real one.
type Host interface {
	// Remember notes what the clean host looks like: links, mounts, firewall, plugins. What is noted already stays.
	Remember(ctx context.Context) error
	// Write writes the files of boot data, and those that the host itself adds.
	Write(ctx context.Context, files []File) error
	StartRuntime(ctx context.Context) error
	StartKubelet(ctx context.Context, flags []string) error
	// Joined returns once the kubelet has a certificate of the cluster and is healthy.
	Joined(ctx context.Context) error
	StopKubelet(ctx context.Context) error
	// EndContainers ends what runs in Pods: SIGTERM, the grace, SIGKILL.
	EndContainers(ctx context.Context, grace time.Duration) error
	StopRuntime(ctx context.Context) error
	Unmount(ctx context.Context) error
	// Wipe removes keys, certificates, images, volumes, logs.
	Wipe(ctx context.Context) error
	RestoreNetwork(ctx context.Context) error
	// Look lists what a cluster left: nothing on a clean host.
	Look(ctx context.Context) ([]string, error)
	// Forget drops what Remember noted.
	Forget(ctx context.Context) error
	// BoundLogs keeps what kubelet and runtime say from filling the disk. It is called every few seconds.
	BoundLogs() error
	// Runs says whether kubelet and runtime run.
	Runs() (kubelet, runtime bool)
}

// step is one part of a task. The journal names it before it begins.
type step struct {
	name string
	do   func(ctx context.Context, a *Agent, t *task) error
}

// task is what a step may need beside the journal.
type task struct {
	boot  *BootData // nil after a restart of the agent
	grace time.Duration
	flags []string
}

const (
	joinTimeout  = 4 * time.Minute // the provider gives a Configure 5 min by default
	stepTimeout  = 2 * time.Minute
	stepFiles    = "files" // the last step that needs the boot data itself
	stepJoin     = "join"
	remainsShown = 32
)

// configureSteps make a clean host a node.
var configureSteps = []step{
	{"look", func(ctx context.Context, a *Agent, _ *task) error { return a.mustBeClean(ctx) }},
	{"remember", func(ctx context.Context, a *Agent, _ *task) error { return a.host.Remember(ctx) }},
	{stepFiles, func(ctx context.Context, a *Agent, t *task) error { return a.host.Write(ctx, t.boot.Files) }},
	{"runtime", func(ctx context.Context, a *Agent, _ *task) error { return a.host.StartRuntime(ctx) }},
	{"kubelet", func(ctx context.Context, a *Agent, t *task) error { return a.host.StartKubelet(ctx, t.flags) }},
	{stepJoin, func(ctx context.Context, a *Agent, _ *task) error { return a.host.Joined(ctx) }},
}

// resetSteps leave nothing of a cluster.
var resetSteps = []step{
	{"kubelet", func(ctx context.Context, a *Agent, _ *task) error { return a.host.StopKubelet(ctx) }},
	{"containers", func(ctx context.Context, a *Agent, t *task) error { return a.host.EndContainers(ctx, t.grace) }},
	{"runtime", func(ctx context.Context, a *Agent, _ *task) error { return a.host.StopRuntime(ctx) }},
	{"mounts", func(ctx context.Context, a *Agent, _ *task) error { return a.host.Unmount(ctx) }},
	{"files", func(ctx context.Context, a *Agent, _ *task) error { return a.host.Wipe(ctx) }},
	{"network", func(ctx context.Context, a *Agent, _ *task) error { return a.host.RestoreNetwork(ctx) }},
	{"look", func(ctx context.Context, a *Agent, _ *task) error { return a.mustBeClean(ctx) }},
	{"forget", func(ctx context.Context, a *Agent, _ *task) error { return a.host.Forget(ctx) }},
}

// leftError is a look that found something.
type leftError struct{ left []string }

func (e *leftError) Error() string {
	return fmt.Sprintf("a cluster left %d items on the host, such as %s", len(e.left), e.left[0])
}

func (a *Agent) mustBeClean(ctx context.Context) error {
	left, err := a.host.Look(ctx)
	if err == nil && len(left) > 0 {
		err = &leftError{left}
	}
	return err
}

// perform runs the steps of the journal's task from its step on. It returns when the task is done, failed or cut off.
func (a *Agent) perform(ctx context.Context, t *task) {
	s := a.state()
	steps, done, doing := resetSteps, pb.HostPhase_HOST_PHASE_CLEAN, pb.HostPhase_HOST_PHASE_RESETTING
	if s.Kind == kindConfigure {
		steps, done, doing = configureSteps, pb.HostPhase_HOST_PHASE_CONFIGURED, pb.HostPhase_HOST_PHASE_CONFIGURING
	}
	from := 0
	for i, one := range steps {
		if one.name == s.Step {
			from = i
		}
	}
	s.Phase, s.Problem, s.Remains = doing, "", nil
	for _, one := range steps[from:] {
		s.Step = one.name
		if !a.save(s) {
			return
		}
		began := time.Now()
		err := a.step(ctx, one, t)
		if ctx.Err() != nil {
			return // the journal says where to continue
		}
		if err != nil {
			s.Phase, s.Problem = pb.HostPhase_HOST_PHASE_QUARANTINED, fmt.Sprintf("%s, step %s: %v", s.Kind, one.name, err)
			if left, ok := errors.AsType[*leftError](err); ok {
				s.Remains = left.left[:min(len(left.left), remainsShown)]
			}
			a.log.Error("a task failed; the host stays as it is until a reset succeeds", "operation", s.Operation, "problem", s.Problem)
			a.save(s)
			return
		}
		a.log.Info("step done", "task", s.Kind, "step", one.name, "took", time.Since(began).Round(time.Millisecond))
	}
	s.Phase, s.Step = done, ""
	if done == pb.HostPhase_HOST_PHASE_CLEAN {
		s = State{Phase: done, Operation: s.Operation, Kind: s.Kind}
	}
	a.save(s)
}

func (a *Agent) step(ctx context.Context, one step, t *task) error {
	limit := stepTimeout + t.grace
	if one.name == stepJoin {
		limit = joinTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return one.do(ctx, a, t)
}

// Package controlplane runs real Kubernetes control planes on this machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and kwok in the place of kubelets.
//
// Start gives one, ready to use, StartAll several, StartT one that ends with a test. Each has its own free ports on
// 127.0.0.1, its own certificate authority and its own directory, so any number run side by side. Every component is a
// process that a test may stop, kill, pause or restart (Component). Users with chosen names and groups are minted on
// demand (UserConfig, UserKubeconfig), so that programs under test run with the RBAC they would have in production.
//
// A Node object that anybody creates is made Ready and kept so by kwok; a Pod bound to it runs. No container starts.
// The state lives in memory as far as users are concerned: storage is not synced and Stop throws it away.
//
// It owns the processes, ports and files it makes, and Stop leaves none of them. It never reads the user's own
// kubeconfig and never listens beyond loopback, unless Config.Address is set. Binaries come from package build. Safe for concurrent use.
// Start at Start, then component.go for the exact command lines.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane/build"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// DefaultName is the name of a control plane whose Config has none.
const DefaultName = "cluster"

// namespaceTimeout bounds the wait for the namespaces that a ready kube-apiserver is about to create.
const namespaceTimeout = 2 * time.Minute

// Config describes a control plane. The zero value is a complete one in a temporary directory.
type Config struct {
	// Name tells control planes apart in errors, contexts and directories. It is a DNS label. "" means DefaultName.
	Name string

	// Dir receives certificates, kubeconfig, data and logs and is kept after Stop. It must be absent or empty.
	// "" means a temporary directory that Stop removes.
	Dir string

	// Args are appended to the command line of a component, so that they win over ours.
	Args map[Component][]string

	// Address is an IP address of this machine on which kube-apiserver answers too, for kubelets that have a network of their
	// own. Its certificate names it. "" means loopback alone.
	Address string

	// Omit lists components that are not started. Etcd and APIServer cannot be omitted.
	Omit []Component

	// Binaries to run. nil means those of build.Ensure, built if this machine lacks them.
	Binaries *build.Binaries

	// Progress receives what build.Ensure has to say. nil means stderr.
	Progress io.Writer
}

// ControlPlane is a running control plane. Start makes one.
type ControlPlane struct {
	cfg       Config
	bin       build.Binaries
	dir       *stateDir
	ca        *authority
	token     string // of the administrator
	ports     ports
	processes map[Component]*proc.Process
	client    *kubernetes.Clientset

	users sync.Mutex // serialises writing kubeconfigs of users

	stop    sync.Once
	stopErr error
}

// ports are the ports of one control plane, reserved until Stop so that a restarted component finds its own free.
type ports struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler, kwok *loopback.Port
	all                                                           []*loopback.Port
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Start starts a control plane and waits until kube-apiserver, kube-controller-manager, kube-scheduler and kwok say
// they are ready and the built-in namespaces exist. ctx bounds the start, not the life. On failure nothing is left
// behind, and the error names the component and shows the end of its log. The caller must call Stop.
func Start(ctx context.Context, c Config) (*ControlPlane, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	cp := &ControlPlane{cfg: c, processes: map[Component]*proc.Process{}}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane %q: %w", c.Name, err), cp.Stop())
	}
	return cp, nil
}

// StartAll starts several control planes at once, or none.
func StartAll(ctx context.Context, configs ...Config) ([]*ControlPlane, error) {
	for i, c := range configs { // build once and with one voice, then start side by side
		if c.Binaries == nil {
			bin, err := ensureBinaries(ctx, c)
			if err != nil {
				return nil, err
			}
			configs = slices.Clone(configs)
			configs[i].Binaries = &bin
		}
	}
	started := make([]*ControlPlane, len(configs))
	failed := make([]error, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() { started[i], failed[i] = Start(ctx, c) })
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		for _, cp := range started {
			if cp != nil {
				err = errors.Join(err, cp.Stop())
			}
		}
		return nil, err
	}
	return started, nil
}

func ensureBinaries(ctx context.Context, c Config) (build.Binaries, error) {
	if c.Binaries != nil {
		return *c.Binaries, nil
	}
	progress := c.Progress
	if progress == nil {
		progress = os.Stderr
	}
	return build.Ensure(ctx, build.Config{Progress: progress})
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.cfg.check(); err != nil {
		return err
	}
	var err error
	if cp.bin, err = ensureBinaries(ctx, cp.cfg); err != nil {
		return err
	}
	if cp.dir, err = newStateDir(cp.cfg); err != nil {
		return err
	}
	if cp.ports, err = reservePorts(); err != nil {
		return err
	}
	if err := cp.writeFiles(); err != nil {
		return err
	}
	if cp.client, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return err
	}
	for _, c := range []Component{Etcd, APIServer} { // the others need an apiserver that answers
		if err := cp.startComponent(ctx, c); err != nil {
			return err
		}
	}
	if err := cp.waitForNamespaces(ctx); err != nil {
		return err
	}
	return cp.startTogether(ctx, ControllerManager, Scheduler, Kwok)
}

func (c Config) check() error {
	if !validName.MatchString(c.Name) {
		return fmt.Errorf("Config.Name %q is not a DNS label", c.Name)
	}
	for _, o := range c.Omit {
		if o == Etcd || o == APIServer || !slices.Contains(Components(), o) {
			return fmt.Errorf("Config.Omit: %q cannot be omitted", o)
		}
	}
	for a := range c.Args {
		if !slices.Contains(Components(), a) {
			return fmt.Errorf("Config.Args: there is no component %q", a)
		}
	}
	return nil
}

func reservePorts() (ports, error) {
	all, err := loopback.ReserveN(6)
	if err != nil {
		return ports{}, err
	}
	return ports{all[0], all[1], all[2], all[3], all[4], all[5], all}, nil
}

func (cp *ControlPlane) startComponent(ctx context.Context, c Component) error {
	p, err := proc.New(cp.processConfig(c))
	if err != nil {
		return err
	}
	cp.processes[c] = p
	return p.Start(ctx)
}

func (cp *ControlPlane) startTogether(ctx context.Context, components ...Component) error {
	var all sync.WaitGroup
	var failed []error
	var mu sync.Mutex
	for _, c := range components {
		if slices.Contains(cp.cfg.Omit, c) {
			continue
		}
		p, err := proc.New(cp.processConfig(c))
		if err != nil {
			return err
		}
		cp.processes[c] = p
		all.Go(func() {
			if err := p.Start(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// waitForNamespaces waits for what kube-apiserver creates shortly after it says it is ready.
func (cp *ControlPlane) waitForNamespaces(ctx context.Context) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"} {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, namespaceTimeout, true, func(ctx context.Context) (bool, error) {
			_, err := cp.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("waiting for namespace %s: %w", name, err)
		}
	}
	return nil
}

// Stop ends every process, frees the ports and removes the directory unless Config.Dir named it. It uses SIGKILL:
// nothing of the state is kept, and what is killed cannot hang. It may be called more than once.
func (cp *ControlPlane) Stop() error {
	cp.stop.Do(func() {
		for _, c := range slices.Backward(Components()) {
			if p := cp.processes[c]; p != nil {
				p.Kill()
			}
		}
		for _, p := range cp.ports.all {
			p.Release()
		}
		if cp.dir != nil {
			cp.stopErr = cp.dir.close()
		}
	})
	return cp.stopErr
}

// Component returns the process of c, to kill, pause or restart it; nil when Config.Omit names it. Its files and port
// stay the same. A new kwok takes over Nodes that it did not see appear when the leases of the old one end: up to 40 s.
func (cp *ControlPlane) Component(c Component) *proc.Process { return cp.processes[c] }

// RestartAPIServer stops kube-apiserver as an upgrade would (SIGTERM), starts it again on the same port, and waits
// until it is ready. Component(APIServer).Kill is the unfriendly variant.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	return cp.processes[APIServer].Restart(ctx)
}

// Name returns Config.Name or its default.
func (cp *ControlPlane) Name() string { return cp.cfg.Name }

// Dir returns the directory of certificates, data and logs.
func (cp *ControlPlane) Dir() string { return cp.dir.path }

// LogDir returns the directory with one log per component.
func (cp *ControlPlane) LogDir() string { return filepath.Join(cp.dir.path, "logs") }

// Endpoint returns the URL of kube-apiserver.
func (cp *ControlPlane) Endpoint() string { return "https://" + cp.ports.apiServer.Addr() }

// EndpointAt returns the URL of kube-apiserver on Config.Address.
func (cp *ControlPlane) EndpointAt() string {
	return "https://" + net.JoinHostPort(cp.cfg.Address, cp.ports.apiServer.String())
}

// CACertificate returns the PEM of the authority that signs kube-apiserver's certificate and those of its clients.
func (cp *ControlPlane) CACertificate() []byte { return slices.Clone(cp.ca.certPEM) }

// Kubectl returns the path of a kubectl of the same version.
func (cp *ControlPlane) Kubectl() string { return cp.bin.Kubectl }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (cp *ControlPlane) Kubeconfig() string { return filepath.Join(cp.dir.path, "kubeconfig") }

// RESTConfig returns the administrator's client configuration, without client-side rate limits. The caller owns it.
func (cp *ControlPlane) RESTConfig() *rest.Config { return cp.TokenConfig(cp.token) }

// Client returns the administrator's clientset.
func (cp *ControlPlane) Client() kubernetes.Interface { return cp.client }

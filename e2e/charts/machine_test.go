package charts

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// machine runs Pods of a rendered chart as processes: each name and port of the cluster is a port of this machine.
type machine struct {
	t      testing.TB
	binary string
	mu     sync.Mutex
	ports  map[string]*loopback.Port
	// secrets are directories with tls.crt, tls.key and ca.crt, by name of the Secret.
	secrets map[string]string
}

// issue makes what the rendered Job asks the command for. e2e/published runs the Job itself.
func (m *machine) issue(render []byte) {
	m.t.Helper()
	ca, err := devca.New("fleet")
	if err != nil {
		m.t.Fatal(err)
	}
	m.secrets = map[string]string{}
	for _, a := range rendered[batchv1.Job](m.t, render, "Job").Spec.Template.Spec.Containers[0].Args {
		asked, ok := strings.CutPrefix(a, "--secret=")
		if !ok {
			continue
		}
		name, what, _ := strings.Cut(asked, "=")
		names := strings.Split(what, ",")
		r := devca.Request{Hosts: append(names[1:], "127.0.0.1")}
		if names[0] != "server" {
			r.URIs = []string{"bigfleet://" + names[0]}
		}
		cert, key, err := ca.Issue(r)
		if err != nil {
			m.t.Fatal(err)
		}
		dir := m.t.TempDir()
		for file, data := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				m.t.Fatal(err)
			}
		}
		m.secrets[name] = dir
	}
}

// mounted maps the path at which a Pod reads its certificate to the files of the Secret that it mounts there.
func (m *machine) mounted(spec corev1.PodSpec, pod string) *strings.Replacer {
	var pairs []string
	for _, v := range spec.Volumes {
		switch {
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if own, _, _ := strings.Cut(source.Secret.Items[0].Path, "/"); own == pod {
					pairs = append(pairs, "/etc/bigfleet/tls/"+pod, m.secrets[source.Secret.Name])
				}
			}
		case v.Secret != nil && v.Name == "tls":
			pairs = append(pairs, "/etc/bigfleet/tls", m.secrets[v.Secret.SecretName])
		}
	}
	return strings.NewReplacer(pairs...)
}

var clusterAddress = regexp.MustCompile(`[a-z0-9-]+(\.[a-z0-9-]+)*\.svc:[0-9]+`)

// at is where an address of the cluster is on this machine.
func (m *machine) at(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.ports[address]
	if p == nil {
		var err error
		if p, err = loopback.Reserve(); err != nil {
			m.t.Error(err)
			return ""
		}
		m.t.Cleanup(p.Release)
		m.ports[address] = p
	}
	return p.Addr()
}

// start runs one Pod until the test ends and waits until its readiness probe succeeds.
func (m *machine) start(s *appsv1.StatefulSet, ordinal int) error {
	pod := s.Name + "-" + string(rune('0'+ordinal))
	return m.run(s.Spec.Template.Spec, s.Namespace, pod, pod+"."+s.Spec.ServiceName+"."+s.Namespace+".svc")
}

// run starts a Pod whose ports are those of host.
func (m *machine) run(spec corev1.PodSpec, namespace, pod, host string) error {
	c := spec.Containers[0]
	dir := m.t.TempDir()
	files := m.mounted(spec, pod)
	var metrics string
	var args []string
	for _, a := range c.Args {
		a = strings.NewReplacer("$(POD_NAME)", pod, "$(POD_NAMESPACE)", namespace).Replace(a)
		a = clusterAddress.ReplaceAllStringFunc(files.Replace(a), m.at)
		flag, value, _ := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(value, ":"), flag == "--listen": // a port of the Pod
			value = m.at(host + value[strings.LastIndex(value, ":"):])
			if flag == "--metrics-addr" {
				metrics = value
			}
			a = flag + "=" + value
		case flag == "--data-dir":
			a = flag + "=" + filepath.Join(dir, "data")
		}
		args = append(args, a)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	p, err := proc.Start(ctx, proc.Config{Name: pod, Path: m.binary, Args: args, LogFile: filepath.Join(dir, "log"),
		Ready: proc.HTTP("http://"+metrics+c.ReadinessProbe.HTTPGet.Path, nil), ReadyTimeout: 2 * time.Minute})
	if err != nil {
		return err
	}
	m.t.Cleanup(func() { _ = p.Stop() })
	return nil
}

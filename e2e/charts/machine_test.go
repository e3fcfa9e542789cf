package charts

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/loopback"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// machine runs Pods of a rendered chart as processes: each name and port of the cluster is a port of this machine.
type machine struct {
	t      testing.TB
	binary string
	mu     sync.Mutex
	ports  map[string]*loopback.Port
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
	c := s.Spec.Template.Spec.Containers[0]
	pod := s.Name + "-" + string(rune('0'+ordinal))
	host := pod + "." + s.Spec.ServiceName + "." + s.Namespace + ".svc"
	dir := m.t.TempDir()
	var metrics string
	var args []string
	for _, a := range c.Args {
		a = strings.NewReplacer("$(POD_NAME)", pod, "$(POD_NAMESPACE)", s.Namespace).Replace(a)
		a = clusterAddress.ReplaceAllStringFunc(a, m.at)
		flag, value, _ := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(value, ":"): // a port of the Pod
			value = m.at(host + value)
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

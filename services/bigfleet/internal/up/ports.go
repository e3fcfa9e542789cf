package up

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// taken says what to do about an address that cannot be listened on.
func taken(err error, flag string) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return fmt.Errorf("%w: is another `bigfleet up` running? %s chooses another address", err, flag)
}

// free says whether an address can be listened on.
func free(addr, flag string) error {
	probe, err := net.Listen("tcp", addr)
	if err != nil {
		return taken(err, flag)
	}
	return probe.Close()
}

// checkPorts finds the addresses that cannot be listened on.
func (c *Config) checkPorts() error {
	var errs []error
	const required, optional = false, true // whether 0 turns the port off
	for _, a := range []struct {
		flag, addr string
		off        bool
	}{
		{"--shard-listen", c.ShardListen, required}, {"--provider-listen", c.ProviderListen, required}, {"--control-listen", c.ControlListen, optional},
		{"--coordinator-listen", c.CoordinatorListen, required}, {"--raft-bind", c.RaftBind, required}, {"--demo-listen", c.DemoListen, required},
		{"--console", c.ConsoleListen, optional}, {"--shard-metrics-addr", c.ShardMetrics, optional}, {"--coordinator-metrics-addr", c.CoordinatorMetrics, optional},
	} {
		if a.addr == "" || a.off && a.addr == telemetry.Off {
			continue
		}
		_, port, err := net.SplitHostPort(a.addr)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
			errs = append(errs, fmt.Errorf("%s %q: want host:port, with a port of 0 to 65535", a.flag, a.addr))
		}
	}
	return errors.Join(errs...)
}

// port is an address that is held from the moment on that it was chosen: others learn it before it is served, and worlds that
// start at the same time must not take each other's.
type port struct {
	addr, flag string

	mu   sync.Mutex
	held net.Listener
}

func hold(addr, flag string) (*port, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, taken(err, flag)
	}
	return &port{addr: l.Addr().String(), flag: flag, held: l}, nil
}

// How long a role that comes back waits for its port: long enough for a program that looked for a free one, and took this one meanwhile.
const (
	portPatience = 10 * time.Second
	portPause    = 100 * time.Millisecond
)

// listen returns what is held, or binds again for a role that comes back.
func (p *port) listen(ctx context.Context) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.held; l != nil {
		p.held = nil
		return l, nil
	}
	for limit := time.Now().Add(portPatience); ; {
		l, err := net.Listen("tcp", p.addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		if time.Now().After(limit) {
			return nil, p.takenFor(portPatience)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(portPause):
		}
	}
}

func (p *port) takenFor(d time.Duration) error {
	err := fmt.Errorf("another program took %s while this role was stopped, and has kept it for %v: stop that program", p.addr, d)
	if p.flag == "" {
		return err
	}
	return fmt.Errorf("%w, or choose another address with %s", err, p.flag)
}

// drop closes the ports that were not taken.
func (p *port) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		_ = p.held.Close()
	}
}

// hold is hold for the world, which gives the port up when it ends.
func (w *World) hold(addr, flag string) (*port, error) {
	p, err := hold(addr, flag)
	if err == nil {
		w.ports = append(w.ports, p)
	}
	return p, err
}

// after is the address i ports further; port 0 stays.
func after(addr string, i int) (string, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("%s: the port must be a number", addr)
	}
	if port != 0 {
		port += i
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// scrape is where one role has its metrics.
type scrape struct{ job, instance, addr string }

// metrics chooses where a role has its metrics and health: asked for, well-known, or any that is free. No user should be kept
// from trying because something else listens at 8080, so only an address that was asked for must be free.
func (w *World) metrics(job, instance, asked, usual, flag string) (*port, error) {
	if asked == telemetry.Off {
		return nil, nil
	}
	p, err := w.hold(cmp.Or(asked, usual), flag)
	if err != nil && asked == "" {
		p, err = w.hold("127.0.0.1:0", flag)
	}
	if err == nil {
		w.scrapes = append(w.scrapes, scrape{job, instance, p.addr})
	}
	return p, err
}

// writeScrapes says where each role's metrics are, in the form that Prometheus reads (file_sd_configs).
func (w *World) writeScrapes() error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, s := range w.scrapes {
		groups = append(groups, group{[]string{s.addr}, map[string]string{"job": "bigfleet-" + s.job, "role": s.instance}})
	}
	raw, err := json.MarshalIndent(groups, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	w.scrapeFile = filepath.Join(w.dir, "metrics.json")
	return os.WriteFile(w.scrapeFile, append(raw, '\n'), 0o600)
}

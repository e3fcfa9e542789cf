package proc

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Probe tells whether p is ready: nil means yes, an error says why not. It is called again and again, one call at a
// time, and must return when ctx ends.
type Probe func(ctx context.Context, p *Process) error

// probeTimeout bounds one attempt, so that a process that accepts and never answers is asked again.
const probeTimeout = 2 * time.Second

// HTTP is ready when a GET of url answers 200. config is needed for https and may be nil otherwise.
func HTTP(url string, config *tls.Config) Probe {
	return func(ctx context.Context, _ *Process) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		// One connection per attempt: a pooled one would outlive the probe.
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}

// TCP is ready when address accepts a connection.
func TCP(address string) Probe {
	return func(ctx context.Context, _ *Process) error {
		d := net.Dialer{Timeout: probeTimeout}
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// LogContains is ready when the log holds text, written since this incarnation started.
func LogContains(text string) Probe {
	return func(_ context.Context, p *Process) error {
		log, err := p.logSinceStart()
		if err != nil {
			return err
		}
		if !bytes.Contains(log, []byte(text)) {
			return fmt.Errorf("the log does not say %q yet", text)
		}
		return nil
	}
}

// All is ready when each of probes is; they are asked in order.
func All(probes ...Probe) Probe {
	return func(ctx context.Context, p *Process) error {
		for _, probe := range probes {
			if err := probe(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p *Process) logSinceStart() ([]byte, error) {
	r := p.current()
	if r == nil {
		return nil, p.wrap(ErrNotRunning)
	}
	f, err := os.Open(p.cfg.LogFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(r.logOffset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

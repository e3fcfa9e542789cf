package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Power says how a host is switched on. Empty means that it is always on.
type Power struct {
	Redfish  string `yaml:"redfish"`       // URL of the system, such as https://bmc-7/redfish/v1/Systems/1
	User     string `yaml:"user"`          // of Redfish
	Password string `yaml:"password_file"` // name of a file in --secrets-dir
	WakeMAC  string `yaml:"wake_on_lan"`   // hardware address
	WakeTo   string `yaml:"broadcast"`     // host:port that the packet goes to; empty: 255.255.255.255:9
}

func (p Power) check() error {
	var all []error
	if p.Redfish != "" && p.WakeMAC != "" {
		all = append(all, errors.New("power: give redfish or wake_on_lan, not both"))
	}
	if p.Redfish != "" {
		if u, err := url.Parse(p.Redfish); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			all = append(all, errors.New("power: redfish is not the URL of a system, or holds a password"))
		}
	}
	if p.WakeMAC != "" {
		if mac, err := net.ParseMAC(p.WakeMAC); err != nil || len(mac) != 6 {
			all = append(all, fmt.Errorf("power: wake_on_lan %q is not a hardware address", p.WakeMAC))
		}
	}
	if p.Password != "" && p.Password != filepath.Base(p.Password) {
		all = append(all, fmt.Errorf("power: password_file %q is not a plain file name", p.Password))
	}
	return errors.Join(all...)
}

// switcher switches one host on. Every call may be repeated.
type switcher interface {
	// ready says what is missing, without asking the host.
	ready() error
	on(ctx context.Context) error
}

func (b *backend) power(h *Entry) switcher {
	switch p := h.Power; {
	case p.Redfish != "":
		return redfish{url: strings.TrimSuffix(p.Redfish, "/"), user: p.User, file: filepath.Join(b.config.Secrets, p.Password), client: http.DefaultClient}
	case p.WakeMAC != "":
		return wakeOnLAN{mac: p.WakeMAC, to: cmp.Or(p.WakeTo, "255.255.255.255:9")}
	}
	return alwaysOn{}
}

// wakeDefault is how long a host that was switched on may take to report before it is switched on again.
const wakeDefault = 30 * time.Second

// wake switches on a host whose agent is silent. The task waits for it.
func (b *backend) wake(ctx context.Context, h *Entry) error {
	if r, at := b.desk.last(h.Name); r != nil && time.Since(at) < b.config.wakeEvery {
		return nil
	}
	if err := b.power(h).on(ctx); err != nil {
		return fmt.Errorf("switch host %s on: %w", h.Name, err)
	}
	return nil
}

type alwaysOn struct{}

func (alwaysOn) ready() error             { return nil }
func (alwaysOn) on(context.Context) error { return nil }

// wakeOnLAN sends the packet that network cards wait for: six bytes of 255, then the address sixteen times.
type wakeOnLAN struct{ mac, to string }

func (wakeOnLAN) ready() error { return nil }

func (w wakeOnLAN) on(ctx context.Context) error {
	mac, err := net.ParseMAC(w.mac)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", w.to)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16)...))
	return errors.Join(err, conn.Close())
}

// redfish asks a management controller.
type redfish struct {
	url, user, file string
	client          *http.Client
}

const (
	redfishTimeout  = 20 * time.Second
	redfishBytesMax = 1 << 20
)

func (r redfish) ready() error {
	_, err := r.password()
	return err
}

func (r redfish) password() (string, error) {
	if r.user == "" {
		return "", nil
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return "", fmt.Errorf("the password for Redfish: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (r redfish) on(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redfishTimeout)
	defer cancel()
	answer, err := r.call(ctx, http.MethodGet, "", nil)
	if err != nil {
		return err
	}
	var system struct{ PowerState string }
	if err := json.Unmarshal(answer, &system); err != nil {
		return fmt.Errorf("the answer of %s is not a Redfish system: %w", r.url, err)
	}
	if system.PowerState == "On" || system.PowerState == "PoweringOn" {
		return nil
	}
	_, err = r.call(ctx, http.MethodPost, "/Actions/ComputerSystem.Reset", []byte(`{"ResetType":"On"}`))
	return err
}

func (r redfish) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	password, err := r.password()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.user != "" {
		request.SetBasicAuth(r.user, password)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, provider.Transient(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, redfishBytesMax))
	if err != nil {
		return nil, provider.Transient(err)
	}
	switch {
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return nil, provider.Credentials(fmt.Errorf("%s rejects the user: %s", r.url, answer.Status))
	case answer.StatusCode >= 500:
		return nil, provider.Transient(fmt.Errorf("%s: %s", r.url, answer.Status))
	case answer.StatusCode >= 300:
		return nil, fmt.Errorf("%s: %s", r.url, answer.Status)
	}
	return text, nil
}

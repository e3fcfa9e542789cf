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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Power says how a host is switched on. Empty means that it is always on.
type Power struct {
	Redfish  string `yaml:"redfish"`       // URL of the system, such as https://bmc-7/redfish/v1/Systems/1
	User     string `yaml:"user"`          // of Redfish, or that the program gets
	Password string `yaml:"password_file"` // name of a file in --secrets-dir
	Program  string `yaml:"program"`       // name of one of power_programs, for what is neither Redfish nor wake-on-LAN
	Address  string `yaml:"address"`       // that the program gets
	WakeMAC  string `yaml:"wake_on_lan"`   // hardware address
	WakeTo   string `yaml:"broadcast"`     // host:port that the packet goes to; empty: 255.255.255.255:9
}

func (p Power) check() error {
	var all []error
	given := 0
	for _, one := range []string{p.Redfish, p.WakeMAC, p.Program} {
		if one != "" {
			given++
		}
	}
	if given > 1 {
		all = append(all, errors.New("power: give one of redfish, wake_on_lan and program"))
	}
	if strings.HasPrefix(p.Address, "-") || strings.HasPrefix(p.User, "-") {
		all = append(all, errors.New("power: address and user must not begin with '-', because a program would take them as flags"))
	}
	if p.Redfish != "" {
		if u, err := url.Parse(p.Redfish); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			all = append(all, errors.New("power: redfish is not the URL of a system, or contains a password"))
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
		return redfish{url: strings.TrimSuffix(p.Redfish, "/"), user: p.User, file: b.secret(p.Password), client: http.DefaultClient}
	case p.Program != "":
		return b.powerProgram(p)
	case p.WakeMAC != "":
		return wakeOnLAN{mac: p.WakeMAC, to: cmp.Or(p.WakeTo, "255.255.255.255:9")}
	}
	return alwaysOn{}
}

// secret is the file of a password, below a directory that does not exist where none is configured: the error names what to set.
func (b *backend) secret(name string) string {
	return filepath.Join(cmp.Or(b.config.Secrets, "(--secrets-dir is not set)"), name)
}

// wakeDefault is how long a host that was switched on may take to report before it is switched on again.
const wakeDefault = 30 * time.Second

// wake switches on a host whose agent is silent. The task waits for it.
func (b *backend) wake(ctx context.Context, h *Entry) error {
	if r, at := b.hostAgents.last(h.Name); r != nil && time.Since(at) < b.config.wakeEvery {
		return nil
	}
	if err := b.power(h).on(ctx); err != nil {
		return fmt.Errorf("switch host %s on: %w", h.Name, err)
	}
	return nil
}

// powerProgram fills what the inventory says into the command line that the configuration gives. Only the configuration says what runs.
func (b *backend) powerProgram(p Power) switcher {
	out := powerProgram{name: p.Program}
	if p.Password != "" {
		out.file = b.secret(p.Password)
	}
	fill := strings.NewReplacer("{address}", p.Address, "{user}", p.User, "{password_file}", out.file)
	for _, word := range b.config.PowerPrograms[p.Program] {
		out.words = append(out.words, fill.Replace(word))
	}
	return out
}

// powerProgram is a program that takes "status" and "on" as its last word and answers status with a line that ends with "on" or "off", as
// ipmitool does.
type powerProgram struct {
	name  string
	words []string
	file  string // of the password; empty: none
}

// programTimeout is how long one call of a program may take.
const programTimeout = 30 * time.Second

func (p powerProgram) ready() error {
	if len(p.words) == 0 {
		return fmt.Errorf("power: the configuration has no power_programs[%s]", p.name)
	}
	_, err := exec.LookPath(p.words[0])
	if p.file != "" {
		if _, failed := os.Stat(p.file); failed != nil {
			err = errors.Join(err, fmt.Errorf("the password for power program %s: %w", p.name, failed))
		}
	}
	return err
}

func (p powerProgram) on(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	said, err := p.call(ctx, "status")
	if err != nil {
		return err
	}
	words := strings.Fields(strings.ToLower(said))
	if len(words) > 0 && words[len(words)-1] == "on" {
		return nil
	}
	_, err = p.call(ctx, "on")
	return err
}

func (p powerProgram) call(ctx context.Context, what string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.words[0], append(slices.Clone(p.words[1:]), what)...)
	cmd.WaitDelay = time.Second // a child that keeps its output open does not hold this call
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", provider.Transient(fmt.Errorf("power program %s %s: %w: %.300s", p.name, what, err, bytes.TrimSpace(out)))
	}
	return string(out), nil
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
		return fmt.Errorf("%s did not answer with a Redfish system: %w", r.url, err)
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

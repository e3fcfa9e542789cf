package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Shared holds the flags of every role (OPS-2.1).
type Shared struct {
	ConfigFile   string
	PrintConfig  bool
	LogFormat    string
	LogLevel     string
	MetricsAddr  string
	EnablePprof  bool
	OTLPEndpoint string
	TLS          identity.Files
	RequireTLS   bool
}

// Bind adds the flags to fs. metricsAddr is the role's default for --metrics-addr.
func (s *Shared) Bind(fs *pflag.FlagSet, metricsAddr string) {
	fs.StringVar(&s.ConfigFile, "config", "", "YAML file with settings; its keys are flag names")
	fs.BoolVar(&s.PrintConfig, "print-config", false, "print the effective settings with the source of each, and exit")
	fs.StringVar(&s.LogFormat, "log-format", "text", "log lines as text or json")
	fs.StringVar(&s.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&s.MetricsAddr, "metrics-addr", metricsAddr, "where /metrics, /healthz and /readyz are served, without TLS; 0 = off")
	fs.BoolVar(&s.EnablePprof, "enable-pprof", false, "serve profiles under /debug/pprof/ on the metrics port to loopback peers (off by default: profiles show memory)")
	fs.StringVar(&s.OTLPEndpoint, "otlp-endpoint", "", "OTLP gRPC endpoint for traces, host:port or http(s)://host:port; empty = tracing off")
	fs.StringVar(&s.TLS.Cert, "tls-cert", "", "certificate of this process, PEM, with intermediates; all three TLS files or none")
	fs.StringVar(&s.TLS.Key, "tls-key", "", "private key of --tls-cert, PEM")
	fs.StringVar(&s.TLS.CA, "tls-ca", "", "CA bundle, PEM, for peers of both directions")
	fs.BoolVar(&s.RequireTLS, "require-tls", false, "refuse to start without TLS")
}

// Check reports what is wrong with the shared settings. Loader.Load calls it.
func (s *Shared) Check() error {
	var errs []error
	if s.LogFormat != "text" && s.LogFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format %q: want text or json", s.LogFormat))
	}
	switch s.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		errs = append(errs, fmt.Errorf("--log-level %q: want debug, info, warn or error", s.LogLevel))
	}
	if s.MetricsAddr != "" { // empty is off as well, as for providers
		errs = append(errs, CheckListen("metrics-addr", s.MetricsAddr))
	}
	on, err := s.TLS.Enabled()
	if err != nil {
		errs = append(errs, err)
	} else if s.RequireTLS && !on {
		errs = append(errs, errors.New("--require-tls is set, but --tls-cert, --tls-key and --tls-ca are empty"))
	}
	return errors.Join(errs...)
}

// CheckListen reports whether addr is a listen address: host:port, :port, or 0 for off.
func CheckListen(flag, addr string) error {
	if addr == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("--%s %q: want host:port, :port, or 0 for off", flag, addr)
	}
	return nil
}

// CheckDial reports whether addr can be dialled: host:port with both parts. A port may have a name.
func CheckDial(flag, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" || strings.ContainsAny(addr, "=/ ") {
		return fmt.Errorf("--%s %q: want host:port", flag, addr)
	}
	if n, err := strconv.ParseUint(port, 10, 64); err == nil && (n == 0 || n > 65535) || errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("--%s %q: the port is not between 1 and 65535", flag, addr)
	}
	return nil
}

package provider

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// loader merges defaults, file, environment and flags, in rising order (PROV-20.2).
type loader[C any] struct {
	program Program[C]
	common  Common
	own     C
	file    []byte

	config                          string
	printConfig, printSchema, check bool
}

const envPrefix = "BIGFLEET_PROVIDER_"

// flags declares the flags of PROV-20.4. Each writes into a field of the common part; the file is read below them.
func (l *loader[C]) flags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &l.common
	f.StringVar(&l.config, "config", "", "configuration file (YAML)")
	f.StringVar(&c.Addr, "addr", c.Addr, "listen address of the RPC port")
	f.StringVar(&c.MetricsAddr, "metrics-addr", c.MetricsAddr, "listen address of /metrics, /healthz and /readyz; 0 turns it off")
	f.StringVar(&c.Provider, "provider", c.Provider, "name of this provider; it is the prefix of each machine id")
	f.StringVar(&c.State, "state", c.State, `state file, or "memory" (default <data-dir>/provider.db)`)
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the state file")
	f.StringVar(&c.OfferingsFile, "offerings", c.OfferingsFile, "file with the offerings; reloaded when it changes")
	f.IntVar(&c.SeedCount, "seed-count", c.SeedCount, "number of slots to take from the built-in catalogue when no offerings are given")
	f.BoolVar(&c.UseFake, "use-fake-backend", c.UseFake, "use the simulated cloud instead of the real one")
	f.StringVar(&c.ControlAddr, "control-addr", c.ControlAddr, "listen address of SubstrateControl, which controls the simulated cloud; 0 or empty turns it off")
	f.DurationVar(&c.ReconcileInterval, "reconcile-interval", c.ReconcileInterval, "how often the provider lists the hosts of the substrate")
	f.BoolVar(&c.Server.Reflection, "reflection", c.Server.Reflection, "serve gRPC reflection")
	f.BoolVar(&c.Server.Pprof, "enable-pprof", c.Server.Pprof, "serve pprof profiles on the metrics port, to loopback callers only")
	f.StringVar(&c.TLS.Cert, "tls-cert", c.TLS.Cert, "path of the certificate (PEM); give all three TLS files or none")
	f.StringVar(&c.TLS.Key, "tls-key", c.TLS.Key, "path of the private key (PEM)")
	f.StringVar(&c.TLS.CA, "tls-ca", c.TLS.CA, "path of the CA bundle (PEM)")
	f.BoolVar(&c.TLS.Require, "require-tls", c.TLS.Require, "refuse to start without TLS")
	f.Var((*onOff)(&c.TLS.ShardSAN), "shard-san", "whether each peer's certificate must have the SAN of the shard that it acts for: on or off")
	f.StringVar(&c.AdoptStore, "adopt-store", c.AdoptStore, "id of a lost store; the provider adopts the hosts that carry it")
	f.StringVar(&c.Log.Level, "log-level", c.Log.Level, "debug, info, warn or error")
	f.StringVar(&c.Log.Format, "log-format", c.Log.Format, "text or json")
	f.BoolVar(&l.printConfig, "print-config", false, "print the effective configuration with the source of each value, and exit")
	f.BoolVar(&l.printSchema, "print-schema", false, "print the JSON Schema of the configuration file, and exit")
	f.BoolVar(&l.check, "check", false, "check configuration and credentials, and exit with 0 (no findings), 1 (warnings) or 2 (errors)")
	f.StringVar(&c.OTLPEndpoint, "otlp-endpoint", c.OTLPEndpoint, "OTLP gRPC endpoint for traces, host:port or http(s)://host:port; empty turns traces off")
	if l.program.Flags != nil {
		l.program.Flags(cmd, &l.own)
	}
}

// onOff is a boolean that is written on or off.
type onOff bool

func (o *onOff) String() string {
	if o != nil && bool(*o) {
		return "on"
	}
	return "off"
}

func (o *onOff) Set(s string) error {
	switch s {
	case "on", "true":
		*o = true
	case "off", "false":
		*o = false
	default:
		return fmt.Errorf("%q is neither on nor off", s)
	}
	return nil
}

func (o *onOff) Type() string { return "on|off" }

// notSettings are flags that ask for something and set nothing.
var notSettings = map[string]bool{"config": true, "print-config": true, "print-schema": true, "check": true, "help": true, "version": true}

// load reads the file below what flags and environment say: the flags have written their fields already, so those that
// were given are put back after the file.
func (l *loader[C]) load(cmd *cobra.Command) error {
	var all []error
	given := map[string]string{} // flag -> value, from the command line or the environment
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given[f.Name] = f.Value.String()
			return
		}
		if v, ok := os.LookupEnv(envName(f.Name)); ok {
			if notSettings[f.Name] && f.Name != "config" {
				return
			}
			given[f.Name] = v
		}
	})
	if file := given["config"]; file != "" {
		l.config = file
		if err := l.read(file); err != nil {
			return err
		}
	}
	for name, value := range given {
		if notSettings[name] {
			continue
		}
		if err := cmd.Flags().Lookup(name).Value.Set(value); err != nil {
			all = append(all, fmt.Errorf("--%s (%s): %w", name, envName(name), err))
		}
	}
	return errors.Join(all...)
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (l *loader[C]) read(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	l.file = b
	v := l.document()
	if err := decodeStrict(b, v.Interface()); err != nil {
		return fmt.Errorf("configuration %s: %w", file, err)
	}
	l.common = v.Elem().Field(0).Interface().(Common)
	l.own = v.Elem().Field(1).Interface().(C)
	return nil
}

// print writes the effective configuration as YAML; each value carries its source, secrets are hidden.
func (l *loader[C]) print(w io.Writer) error {
	var effective, defaults, file yaml.Node
	base := loader[C]{program: l.program, common: DefaultCommon(l.program.Name), own: l.program.Config}
	if err := errors.Join(effective.Encode(l.document().Interface()), defaults.Encode(base.document().Interface())); err != nil {
		return err
	}
	if len(l.file) > 0 {
		if err := yaml.Unmarshal(l.file, &file); err != nil {
			return err
		}
	}
	hide(&effective, l.document().Elem())
	annotate(&effective, &defaults, &file)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return errors.Join(e.Encode(&effective), e.Close())
}

// annotate writes the source behind each scalar. A value that is neither the default nor the file's came from a flag or
// the environment.
func annotate(now, before, file *yaml.Node) {
	if now.Kind == yaml.DocumentNode {
		now = now.Content[0]
	}
	for _, n := range []**yaml.Node{&before, &file} {
		if *n != nil && (*n).Kind == yaml.DocumentNode && len((*n).Content) > 0 {
			*n = (*n).Content[0]
		}
	}
	if now.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(now.Content); i += 2 {
			annotate(now.Content[i+1], child(before, now.Content[i].Value), child(file, now.Content[i].Value))
		}
		return
	}
	switch {
	case file != nil && (file.Kind != yaml.ScalarNode || file.Value == now.Value || now.Value == hidden):
		now.LineComment = "file"
	case before != nil && before.Kind == now.Kind && before.Value == now.Value:
		now.LineComment = "default"
	default:
		now.LineComment = "flag or environment"
	}
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

const hidden = "(hidden)"

// hide blanks fields that are tagged secret:"true".
func hide(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.MappingNode || v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "" {
			hide(n, v.Field(i)) // inline
			continue
		}
		value := child(n, name)
		if value == nil {
			continue
		}
		if field.Tag.Get("secret") == "true" && value.Value != "" {
			value.SetString(hidden)
			continue
		}
		hide(value, v.Field(i))
	}
}

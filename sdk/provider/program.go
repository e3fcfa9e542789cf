package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/server"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
)

// Program is a whole provider program: flags, configuration file, logs, store, ports, signals, exit code. C is the
// provider's own part of the file, a struct; its keys stand beside the common ones and must differ from them. Its fields
// carry yaml and doc tags, and secret:"true" where --print-config must not show the value.
type Program[C any] struct {
	Name  string // of the command, and the default name of the provider
	Short string // one line for --help
	// Config holds the defaults of the provider's own part.
	Config C
	// Build makes the backend and the options that only it knows, such as WithReadiness. It may talk to the substrate:
	// an error ends the program with exit code 2.
	Build func(ctx context.Context, s Setup[C]) (Backend, []Option, error)
	// Fake makes the backend for --use-fake-backend. Nil: the program has none.
	Fake func(ctx context.Context, s Setup[C]) (Backend, []Option, error)
	// Catalogue makes about that many slots when there are no offerings and --seed-count is given. Nil: a small general
	// catalogue.
	Catalogue func(slots int) []Offering
	// Default is the offerings without --seed-count, --offerings and a list in the file. Nil: none, which is an error.
	Default func() []Offering
	// Flags lets a program add flags that write into its own part.
	Flags   func(cmd *cobra.Command, config *C)
	Version string
}

// Setup is what Build gets.
type Setup[C any] struct {
	Common    Common
	Config    C
	Offerings []Offering // those in force, wherever they come from
	Log       *slog.Logger
	// Registerer is where a provider may add metrics of its own; the SDK's are there already.
	Registerer prometheus.Registerer
	// Tracer is where a provider may add spans of its own, inside those of the context of each call.
	Tracer trace.TracerProvider
}

// Main runs the program with the process's arguments and signals, and exits.
func Main[C any](p Program[C]) {
	go collectSeldom()
	cmd := p.Command()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	os.Exit(ExitCode(err))
}

// ExitCode is 0 after a stop on request, 2 when a program could not start, 1 otherwise (PROV-20.8).
func ExitCode(err error) int {
	var start *StartError
	var check *CheckError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &check):
		return check.Code
	case errors.As(err, &start):
		return 2
	}
	return 1
}

// CheckError is the answer of --check when it is not "all well": code 1 with warnings, 2 with errors.
type CheckError struct {
	Code int
	Err  error
}

func (e *CheckError) Error() string { return e.Err.Error() }
func (e *CheckError) Unwrap() error { return e.Err }

// Command is the program as a command, for callers that have their own root. Errors are returned, nothing exits.
func (p Program[C]) Command() *cobra.Command {
	if p.Version == "" {
		p.Version = builtVersion()
	}
	l := &loader[C]{program: p, common: DefaultCommon(p.Name), own: p.Config}
	cmd := &cobra.Command{
		Use: "bigfleet-provider-" + p.Name, Short: p.Short, Args: noArguments, SilenceUsage: true, SilenceErrors: true,
		Version: p.Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd)
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasParent() { // whose root looks again itself
			return &StartError{err}
		}
		return &StartError{l.flagErrors(cmd, os.Args[1:], err)}
	})
	l.flags(cmd)
	return cmd
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &StartError{fmt.Errorf("%q is not a flag, and only flags are allowed; --help lists them", args[0])}
	}
	return nil
}

// builtVersion is what the Go toolchain wrote into the binary: a release, or the revision of a checkout.
func builtVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	if version != "" && version != "(devel)" {
		return version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

// run loads, answers the questions that start nothing, or serves.
func (l *loader[C]) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if l.printSchema {
		return printSchema(cmd.OutOrStdout(), l.program.Name, l.document())
	}
	if err := l.load(cmd); err != nil {
		return &StartError{err}
	}
	if l.printConfig {
		if err := l.wrong(); err != nil {
			return &StartError{err}
		}
		return l.print(cmd.OutOrStdout())
	}
	if err := l.wrong(); err != nil {
		if l.check {
			err = &CheckError{2, err}
		}
		return &StartError{err}
	}
	log, err := newLogger(cmd.ErrOrStderr(), l.common.Log)
	if err != nil {
		return &StartError{err}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	traces, endTraces, err := l.common.traces(ctx, l.program.Version)
	if err != nil {
		return &StartError{err}
	}
	defer endTraces()
	p, err := l.build(ctx, log, registry, traces)
	if l.check {
		return checked(ctx, cmd.OutOrStdout(), p, err)
	}
	if err != nil {
		return &StartError{err}
	}
	return l.serve(ctx, p, registry, log)
}

// wrong is everything that is wrong with what was loaded, and can be known before anything starts.
func (l *loader[C]) wrong() error {
	_, noLog := newLogger(io.Discard, l.common.Log)
	_, err := l.gather()
	return errors.Join(noLog, err)
}

// gathered is what a Provider is made of, apart from the backend.
type gathered struct {
	offerings []Offering
	options   []Option
}

// gather turns the configuration into options; the error holds everything that can be known without the backend.
func (l *loader[C]) gather() (g gathered, err error) {
	var all [4]error
	if v, ok := any(&l.own).(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			if all[0] = err; !strings.HasPrefix(err.Error(), l.program.Name+": ") {
				all[0] = fmt.Errorf("%s: %w", l.program.Name, err)
			}
		}
	}
	g.offerings, all[1] = l.offerings()
	if all[1] == nil {
		_, all[1] = newCatalogue(l.common.Provider, g.offerings, nil)
	}
	g.options, all[2] = l.common.Options()
	s := defaults()
	for _, o := range g.options {
		o(&s)
	}
	all[3] = s.checkSettings(l.common.Provider)
	if l.common.UseFake && l.program.Fake == nil {
		all[3] = errors.Join(all[3], errors.New("this provider has no simulated cloud (--use-fake-backend)"))
	}
	return g, errors.Join(all[:]...)
}

// build makes the Provider from what was loaded.
func (l *loader[C]) build(ctx context.Context, log *slog.Logger, registry prometheus.Registerer, traces trace.TracerProvider) (*Provider, error) {
	g, err := l.gather()
	if err != nil {
		return nil, err
	}
	offerings, options := g.offerings, g.options
	build := l.program.Build
	if l.common.UseFake {
		build = l.program.Fake
		log.Warn("running against the simulated cloud: no real machine is touched")
	}
	backend, own, err := build(ctx, Setup[C]{Common: l.common, Config: l.own, Offerings: offerings, Log: log, Registerer: registry, Tracer: traces})
	if err != nil {
		return nil, err
	}
	options = append(options, WithOfferings(offerings...), WithLogger(log), WithRegisterer(registry), WithTracerProvider(traces), WithVersion(l.program.Version))
	return New(l.common.Provider, backend, append(options, own...)...)
}

// offerings come from the file, else from the seed count, else from the program (PROV-20.5).
func (l *loader[C]) offerings() ([]Offering, error) {
	seeds := min(l.common.SeedCount, seedCountMax) // more is refused by name, and must not be tried before that
	switch {
	case l.common.OfferingsFile != "":
		return ReadOfferings(l.common.OfferingsFile)
	case len(l.common.Offerings) > 0:
		return offeringsOf(l.common.Offerings)
	case seeds > 0 && l.program.Catalogue != nil:
		return l.program.Catalogue(seeds), nil
	case seeds > 0:
		return GeneralCatalogue(seeds), nil
	case l.program.Default != nil:
		return l.program.Default(), nil
	}
	return nil, errors.New("there are no offerings: add some to the configuration, or use --offerings FILE or --seed-count N")
}

// serve runs the Provider, its metrics port and the reload of the offerings until ctx ends.
func (l *loader[C]) serve(ctx context.Context, p *Provider, registry *prometheus.Registry, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a := l.common.MetricsAddr; a != "" && a != "0" { // 0 is how all programs of BigFleet say off (OPS-2.1)
		listener, err := listenOn("metrics port", "--metrics-addr", l.common.MetricsAddr)
		if err != nil {
			return &StartError{err}
		}
		ops := server.NewOps(p.ReadyHandler(), registry, l.common.Server.Pprof)
		served := make(chan struct{})
		go func() { defer close(served); _ = ops.Serve(listener) }()
		defer func() { _ = ops.Close(); <-served }()
		log.Info("metrics port", "addr", listener.Addr().String())
	}
	if l.common.OfferingsFile != "" {
		reloads := make(chan struct{})
		go func() { defer close(reloads); watchOfferings(ctx, p, l.common.OfferingsFile, log) }()
		defer func() { cancel(); <-reloads }()
	}
	return p.Run(ctx)
}

// watchOfferings takes a changed file into force: on SIGHUP, and when its time or size changed (PROV-15.9).
func watchOfferings(ctx context.Context, p *Provider, file string, log *slog.Logger) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	select {
	case <-ctx.Done():
		return
	case <-p.Ready():
	}
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	last := versionOf(file)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		case <-ticker.C:
			now := versionOf(file)
			if now == last {
				continue
			}
			last = now
		}
		list, err := ReadOfferings(file)
		if err == nil {
			err = p.SetOfferings(list...)
		}
		if err != nil {
			log.Error("the changed offerings are rejected; the previous ones stay in force", "err", err)
			continue
		}
		log.Info("offerings reloaded", "file", file, "offerings", len(list))
	}
}

// fileVersion tells one content of a file from the next.
type fileVersion struct {
	at   time.Time
	size int64
}

func versionOf(file string) fileVersion {
	info, err := os.Stat(file)
	if err != nil {
		return fileVersion{}
	}
	return fileVersion{info.ModTime(), info.Size()}
}

func newLogger(w io.Writer, c LogSection) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("unknown log level %q; use debug, info, warn or error", c.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q is neither text nor json", c.Format)
}

// checked answers --check.
func checked(ctx context.Context, w io.Writer, p *Provider, err error) error {
	if err != nil {
		return &CheckError{2, err}
	}
	if c, ok := p.backend.(io.Closer); ok {
		defer func() { _ = c.Close() }() // the answer is given
	}
	slots := p.offers.wanted.slots()
	fmt.Fprintf(w, "provider %s: %d offerings, %d slots, readiness %s\n", p.name, len(p.offers.wanted.order), slots, p.set.readiness.mode)
	var warnings []error
	if slots == 0 && !is[Resetter](p.backend) { // whose hosts exist already
		warnings = append(warnings, errors.New("no offering has slots"))
	}
	if p.set.readiness.mode == "none" {
		warnings = append(warnings, errors.New("readiness is none: capacity is counted before a Pod can use it"))
	}
	if c, ok := p.backend.(Checker); ok {
		more, err := c.Check(ctx, p.set.offerings)
		if err != nil {
			return &CheckError{2, err}
		}
		warnings = append(warnings, more...)
	}
	if err := p.reach(ctx); err != nil {
		return &CheckError{2, err}
	}
	if len(warnings) > 0 {
		return &CheckError{1, errors.Join(warnings...)}
	}
	fmt.Fprintln(w, "all well")
	return nil
}

// reachTime is how long the substrate may take to answer --check.
const reachTime = 30 * time.Second

// reach asks the substrate for its hosts once and looks at none, so that --check notices an endpoint that does not answer.
func (p *Provider) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(p.callers.in(ctx), min(reachTime, p.set.describe))
	defer cancel()
	if a, ok := p.backend.(Attacher); ok {
		a.Attach(nothing{})
	}
	if err := p.backend.Describe(ctx, func(Host) error { return nil }); err != nil {
		return fmt.Errorf("the substrate does not answer: %w", err)
	}
	return nil
}

// Checker lets a backend compare the offerings with the account behind it, for --check: credentials, quota, catalogue.
type Checker interface {
	Check(ctx context.Context, offerings []Offering) (warnings []error, err error)
}

// document is the whole configuration as one struct: the common part and the provider's own.
func (l *loader[C]) document() reflect.Value {
	t := reflect.StructOf([]reflect.StructField{
		{Name: "Common", Type: reflect.TypeFor[Common](), Tag: `yaml:",inline"`},
		{Name: "Own", Type: reflect.TypeFor[C](), Tag: `yaml:",inline"`},
	})
	v := reflect.New(t)
	v.Elem().Field(0).Set(reflect.ValueOf(l.common))
	v.Elem().Field(1).Set(reflect.ValueOf(&l.own).Elem())
	return v
}

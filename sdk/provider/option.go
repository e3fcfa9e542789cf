package provider

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Option sets one property of a Provider.
type Option func(*settings)

type settings struct {
	offerings     []Offering
	readiness     Readiness
	openStore     func() (store.Store, error)
	listener      net.Listener
	addr          string
	tls           identity.Files
	requireTLS    bool
	anyShard      bool
	reflection    bool
	log           *slog.Logger
	registerer    prometheus.Registerer
	tracer        trace.TracerProvider
	random        io.Reader
	version       string
	locations     []string
	timeouts      Timeouts
	retention     Retention
	janitor       bool
	resume        bool
	adopt         string
	reconcile     time.Duration
	describe      time.Duration
	prices        time.Duration
	priceAgeMax   time.Duration
	lossRounds    int
	shutdownGrace time.Duration
	callsMax      map[string]CallLimit
	transitions   int
	queue         int
	blobBytes     int
	bindingsBytes int
	unknownMarks  int
	tombstones    int
	tombstoneTTL  time.Duration
}

func defaults() settings {
	return settings{
		addr: ":9000", reflection: true, janitor: true,
		log: slog.Default(), registerer: prometheus.NewRegistry(), tracer: noop.NewTracerProvider(), random: rand.Reader,
		reconcile: 2 * time.Minute, describe: DescribeTimeout, prices: 5 * time.Minute, priceAgeMax: 24 * time.Hour,
		lossRounds: 3, shutdownGrace: ShutdownGrace,
		transitions: TransitionsMax, queue: QueueMax, blobBytes: BlobBytesMax, bindingsBytes: bindingsBytesMax, unknownMarks: UnknownMarksMax,
		tombstones: TombstonesMax, tombstoneTTL: TombstoneTTL,
	}
}

// WithOfferings sets the quota: which slots exist. Default none.
func WithOfferings(o ...Offering) Option { return func(s *settings) { s.offerings = o } }

// WithReadiness sets the gate in front of Configured. Required.
func WithReadiness(r Readiness) Option { return func(s *settings) { s.readiness = r } }

// WithStateFile keeps the state in a file, with a log beside it (store.Open). This or WithStore is required.
func WithStateFile(file string) Option {
	return func(s *settings) { s.openStore = func() (store.Store, error) { return store.Open(file) } }
}

// WithStore keeps the state in st, which the Provider closes. store.Memory() forgets everything with the process.
func WithStore(st store.Store) Option {
	return func(s *settings) { s.openStore = func() (store.Store, error) { return st, nil } }
}

// WithAddr sets the address of the RPC port. Default ":9000".
func WithAddr(addr string) Option { return func(s *settings) { s.addr = addr } }

// WithListener serves on l instead of an address. The Provider closes it.
func WithListener(l net.Listener) Option { return func(s *settings) { s.listener = l } }

// WithTLS serves mTLS from files that are read again when they change. Default plaintext.
func WithTLS(f identity.Files) Option { return func(s *settings) { s.tls = f } }

// WithRequireTLS refuses to start in plaintext. Default off.
func WithRequireTLS(on bool) Option { return func(s *settings) { s.requireTLS = on } }

// WithShardSAN says whether a peer must carry the SAN bigfleet://shard/<id> of the shard it speaks for. Default on; off
// lets any certificate of the CA mutate as any shard (PROV-2.10).
func WithShardSAN(on bool) Option { return func(s *settings) { s.anyShard = !on } }

// WithReflection serves gRPC reflection. Default on.
func WithReflection(on bool) Option { return func(s *settings) { s.reflection = on } }

// WithLogger sets the logger. Default slog.Default().
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// WithRegisterer sets where metrics are registered. Default a registry of its own that is not served.
func WithRegisterer(r prometheus.Registerer) Option { return func(s *settings) { s.registerer = r } }

// WithTracerProvider sets where spans go. Default nowhere.
func WithTracerProvider(t trace.TracerProvider) Option { return func(s *settings) { s.tracer = t } }

// WithRandom sets the source of operation ids and of the store id. Default crypto/rand.
func WithRandom(r io.Reader) Option { return func(s *settings) { s.random = r } }

// WithVersion sets the build version shown in GetProvider and build_info.
func WithVersion(v string) Option { return func(s *settings) { s.version = v } }

// WithLocations sets the locations shown in GetProvider. Default the zones of the offerings.
func WithLocations(l ...string) Option { return func(s *settings) { s.locations = l } }

// WithTimeouts sets the limits of the transitions. Default 5 min each, Drain its grace and 5 min.
func WithTimeouts(t Timeouts) Option { return func(s *settings) { s.timeouts = t } }

// WithRetention sets how the janitor ages FAILED machines and orphans. See Retention for the defaults.
func WithRetention(r Retention) Option { return func(s *settings) { s.retention = r } }

// WithJanitor switches the janitor. Default on; off keeps FAILED machines and orphans until an operator acts.
func WithJanitor(on bool) Option { return func(s *settings) { s.janitor = on } }

// WithResume begins cut-off Create, Drain and Delete again after a restart, with the same operation id. Default off: they
// are FAILED. Configure is never resumed, because its blob is not stored (PROV-12.6).
func WithResume(on bool) Option { return func(s *settings) { s.resume = on } }

// WithAdoptStore takes over the hosts of the named store, which is lost (PROV-17.7).
func WithAdoptStore(id string) Option { return func(s *settings) { s.adopt = id } }

// WithReconcileInterval sets how often the backend is asked to describe its hosts. Default 2 min, at least 10 ms.
func WithReconcileInterval(d time.Duration) Option { return func(s *settings) { s.reconcile = d } }

// WithDescribeTimeout bounds one round of Describe. Default 2 min.
func WithDescribeTimeout(d time.Duration) Option { return func(s *settings) { s.describe = d } }

// WithPrices sets how often a Pricer is asked and how old a price may get before the slots of its offering are withdrawn.
// Default 5 min and 24 h; an age of 0 means never.
func WithPrices(every, ageMax time.Duration) Option {
	return func(s *settings) { s.prices, s.priceAgeMax = every, ageMax }
}

// WithLossRounds sets after how many complete rounds without it a host is lost. Default 3.
func WithLossRounds(n int) Option { return func(s *settings) { s.lossRounds = n } }

// WithShutdownGrace sets how long running work may continue after a stop. Default 25 s.
func WithShutdownGrace(d time.Duration) Option { return func(s *settings) { s.shutdownGrace = d } }

// WithCallLimits bounds substrate calls by name (see Call). Default 64 in parallel, no rate limit.
func WithCallLimits(byName map[string]CallLimit) Option {
	return func(s *settings) { s.callsMax = byName }
}

// WithTransitionLimits sets how many transitions run at once and how many may wait. Default 10,000 and 100,000.
func WithTransitionLimits(running, waiting int) Option {
	return func(s *settings) { s.transitions, s.queue = running, waiting }
}

// WithBlobBytes sets how much boot data the substrate can take, 1 to BlobBytesMax bytes. A Configure with more is refused
// before anything changes (PROV-8.7). Default BlobBytesMax.
func WithBlobBytes(most int) Option { return func(s *settings) { s.blobBytes = most } }

// WithTombstones sets how many removals are remembered and for how long. Default 1,000,000 and 24 h.
func WithTombstones(most int, ttl time.Duration) Option {
	return func(s *settings) { s.tombstones, s.tombstoneTTL = most, ttl }
}

// check names everything that is missing or impossible, at once.
func (s *settings) check(name string, b Backend) error {
	if b == nil {
		return errors.Join(s.checkSettings(name), errors.New("a Backend is required"))
	}
	return errors.Join(s.checkSettings(name), s.readiness.check(b))
}

// checkSettings is what can be checked before there is a backend.
func (s *settings) checkSettings(name string) error {
	var all []error
	if !providerName.MatchString(name) {
		all = append(all, fmt.Errorf("provider name %q: use at most 40 of a-z, 0-9 and '-', because node names begin with it", name))
	}
	if s.openStore == nil {
		all = append(all, errors.New("no place for the state: use WithStateFile, or WithStore(store.Memory()) to forget everything"))
	}
	tls, err := s.tls.Enabled()
	if err != nil {
		all = append(all, err)
	} else if s.requireTLS && !tls {
		all = append(all, errors.New("TLS is required, but no certificate, key and CA are given"))
	}
	return errors.Join(append(all, s.checkBounds())...)
}

// checkBounds names each interval and limit that is below its bound by its key in the configuration file.
func (s *settings) checkBounds() error {
	var all []error
	for _, x := range []struct {
		key   string
		low   bool
		value any
		bound string
	}{
		{"reconcile_interval", s.reconcile < 10*time.Millisecond, s.reconcile, "10ms"},
		{"describe_timeout", s.describe <= 0, s.describe, "more than 0"},
		{"limits.transitions", s.transitions < 4, s.transitions, "4"},
		{"limits.queue", s.queue < 0, s.queue, "0"},
		{"loss_rounds", s.lossRounds < 1, s.lossRounds, "1"},
		{"limits.tombstones", s.tombstones < 0, s.tombstones, "0"},
	} {
		if x.low {
			all = append(all, fmt.Errorf("%s: %v is too small; the minimum is %s", x.key, x.value, x.bound))
		}
	}
	if s.blobBytes < 1 || s.blobBytes > BlobBytesMax {
		all = append(all, fmt.Errorf("WithBlobBytes: %d is not 1 to %d", s.blobBytes, BlobBytesMax))
	}
	return errors.Join(all...)
}

// withMemory makes the store at Run, so that several programs may be made from one configuration.
func withMemory() Option {
	return func(s *settings) { s.openStore = func() (store.Store, error) { return store.Memory(), nil } }
}

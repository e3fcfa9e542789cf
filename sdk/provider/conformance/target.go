package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Profile is a set of behaviours that a provider claims (PROV-29.4).
type Profile string

// The profiles.
const (
	Core      Profile = "core"       // everyone
	Cloud     Profile = "cloud"      // Delete works
	Spot      Profile = "spot"       // SPOT is offered
	BareMetal Profile = "bare-metal" // a fixed pool: Delete is UNIMPLEMENTED, hosts start in IDLE, price 0 is allowed
	Fault     Profile = "fault"      // failures can be injected
	Durable   Profile = "durable"    // it can be killed and started again
	Scale     Profile = "scale"      // a large inventory
)

// Profiles lists them all.
func Profiles() []Profile { return []Profile{Core, Cloud, Spot, BareMetal, Fault, Durable, Scale} }

// Target is the provider under test and what the suite may do to it.
type Target struct {
	// Addr is host:port of the RPC port.
	Addr string
	// TLS is how to dial as bigfleet://shard/<Shard>; nil is plaintext.
	TLS *tls.Config
	// Shard is the shard id that TLS speaks for. Empty lets the suite choose ids, in plaintext or with Certs.
	Shard    string
	Profiles []Profile
	// Clusters are ids to use for Configure; at least two. Default "conformance-a" and "conformance-b".
	Clusters []string
	// Blob is the boot data to send. Default a few bytes.
	Blob []byte
	// Settle bounds the wait for each kind. Default 60 s.
	Settle time.Duration
	// Limit is the provider's own time limit of a transition, for behaviours that wait for it. Default as GetProvider
	// tells, else 5 min.
	Limit time.Duration
	// Watch is how long nothing may move where nothing may move. Default 1 s.
	Watch time.Duration
	// Size is the number of machines expected by profile scale; 0 takes what is there, at least 10,000.
	Size int
	// Slack stretches the ceilings of profile scale, for a machine that does other work meanwhile. Default 1; the report
	// says when it is not.
	Slack float64
	Hooks Hooks
}

// Hooks are what a Target can have done to it. A claimed profile without its hook cannot be judged (PROV-29.8).
type Hooks struct {
	// Kill ends the process at once (SIGKILL); Stop asks it to (SIGTERM). Both return when it is gone.
	Kill, Stop func(ctx context.Context) error
	// Start starts it again on the same state and returns its address once the port answers.
	Start func(ctx context.Context) (addr string, err error)
	// LoseStore removes the durable state while the process is down.
	LoseStore func(ctx context.Context) error
	// Faults injects failures. SubstrateControl gives one for an address.
	Faults Faults
	// Readiness lets the nodes of all clusters become Ready, or keeps them from it. Without it, Faults is used.
	Readiness func(ctx context.Context, on bool) error
	// Certs returns how to dial with the given bigfleet:// URI SANs; none gives a certificate without one.
	Certs func(sans ...string) (*tls.Config, error)
}

// Faults injects failures at the substrate.
type Faults interface {
	Set(ctx context.Context, b *bigfleetv1alpha1.Behaviour) error
	Clear(ctx context.Context) error
	Lose(ctx context.Context, machines ...string) error
	Return(ctx context.Context, machines ...string) error
	// Effects counts the calls of a name that had an effect for a machine.
	Effects(ctx context.Context, call, machine string) (int, error)
}

func (t Target) claims(p Profile) bool { return slices.Contains(t.Profiles, p) }

func (t Target) withDefaults() (Target, error) {
	if t.Addr == "" {
		return t, errors.New("conformance: the address of the provider is missing")
	}
	if len(t.Profiles) == 0 {
		t.Profiles = []Profile{Core}
	}
	for _, p := range t.Profiles {
		if !slices.Contains(Profiles(), p) {
			return t, fmt.Errorf("conformance: unknown profile %q; profiles are %v", p, Profiles())
		}
	}
	if t.claims(Cloud) && t.claims(BareMetal) {
		return t, errors.New("conformance: claim cloud or bare-metal, not both: a provider supports Delete or it does not")
	}
	if !t.claims(Core) {
		t.Profiles = append([]Profile{Core}, t.Profiles...)
	}
	if len(t.Clusters) == 0 {
		t.Clusters = []string{"conformance-a", "conformance-b"}
	}
	if len(t.Clusters) < 2 {
		return t, errors.New("conformance: give at least two cluster ids, to test that a machine cannot serve both")
	}
	if len(t.Blob) == 0 {
		t.Blob = []byte("conformance boot data")
	}
	if t.Settle == 0 {
		t.Settle = time.Minute
	}
	if t.Watch == 0 {
		t.Watch = time.Second
	}
	if t.Slack == 0 {
		t.Slack = 1
	}
	if t.Slack < 1 {
		return t, fmt.Errorf("conformance: --slack is %v; it must be at least 1", t.Slack)
	}
	return t, nil
}

// Options select what runs.
type Options struct {
	Only []string // names, or areas such as "fence"
	Seed uint64   // 0 draws one
	// Soak repeats what can be repeated for that long, after the first run of it, each pass with another seed.
	Soak time.Duration
	// Each hears of each result as it comes.
	Each func(Result)
}

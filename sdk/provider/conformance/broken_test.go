package conformance_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"connectrpc.com/connect"
)

const (
	speculative = bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
	idle        = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	configured  = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
	failed      = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
)

// broken is a provider that breaks one promise.
type broken struct {
	name   string
	caught []string // each of these must fail
	breaks func(w *wrong)
}

// PROV-29.13, scenario 63: each wrong provider breaks one promise and is caught by the behaviour that stands for it.
func TestWrongProvidersAreCaught(t *testing.T) {
	tests := slices.Concat(brokenFences(), brokenLives(), brokenMetadata(), brokenRepeats(), brokenLists())
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, _, control := good(t, provider.SubstrateReadiness())
			w := &wrong{good: client}
			test.breaks(w)
			mux := http.NewServeMux()
			mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(w, connect.WithReadMaxBytes(64<<20)))
			report, err := conformance.Execute(t.Context(), quick(serve(t, mux), control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault),
				conformance.Options{Seed: 1, Only: test.caught})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := report.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, r := range report.Results {
				if r.Outcome == conformance.Fail {
					failed = append(failed, r.Name)
					// PROV-29.12: with the dialogue, and the way to hear it again. Some judge what was seen in the others' dialogues.
					again := "repeat with: --only " + r.Name + " --seed 1\n"
					if slices.Contains([]string{"field/every-record-seen", "fence/code-means-stale", "once/ids-are-unique"}, r.Name) {
						again = "repeat with: --seed 1\n"
					} else if len(r.Dialogue) == 0 {
						t.Errorf("%s: there is no dialogue", r.Name)
					}
					if !strings.Contains(text.String(), again) {
						t.Errorf("%s: no %q in\n%s", r.Name, again, text.String())
					}
				}
			}
			for _, name := range test.caught {
				if !slices.Contains(failed, name) {
					t.Errorf("%s does not catch it", name)
				}
			}
			if report.Verdict != conformance.NotConformant {
				t.Errorf("verdict %s", report.Verdict)
			}
		})
	}
}

// The good provider behind the wrong ones, seen through the same wrapper, passes: what catches them is what they break.
func TestTheWrapperItselfConforms(t *testing.T) {
	t.Parallel()
	client, _, control := good(t, provider.SubstrateReadiness())
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(&wrong{good: client}, connect.WithReadMaxBytes(64<<20)))
	conformance.Run(t, quick(serve(t, mux), control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault), conformance.Options{Seed: 1})
}

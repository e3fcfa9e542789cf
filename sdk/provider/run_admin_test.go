package provider_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-22.3, 4.1, 20.7: paused mutations are UNAVAILABLE before any mark moves, reads continue, the pause survives a restart and is
// shown by GetProvider and in the readiness detail.
func TestAPauseSurvivesARestart(t *testing.T) {
	c, file := newCloud(), filepath.Join(t.TempDir(), "p.db")
	r := startCloud(t, c, provider.WithStateFile(file))
	set := func(r *running, mode bigfleetv1alpha1.MutationMode) {
		t.Helper()
		if _, err := r.admin.SetMutations(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetMutationsRequest{Mode: mode, Reason: "maintenance"})); err != nil {
			t.Fatal(err)
		}
	}
	set(r, bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = startCloud(t, c, provider.WithStateFile(file))
	if code := r.code(t, provider.Create, id(0)); code != connect.CodeUnavailable {
		t.Errorf("Create while paused: %v", code)
	}
	is, err := r.admin.GetProvider(t.Context(), connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{}))
	if err != nil || is.Msg.GetMutations() != bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED || is.Msg.GetStoreId() == "" || len(is.Msg.GetTimings()) != 4 {
		t.Errorf("%v %v", is, err)
	}
	if n := len(r.list(t, nil).GetMachines()); n != 4 {
		t.Errorf("%d machines are read while paused", n)
	}
	ready := httptest.NewRecorder()
	r.ReadyHandler().ServeHTTP(ready, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if ready.Code != http.StatusOK || !strings.Contains(ready.Body.String(), "paused") {
		t.Errorf("%d %s", ready.Code, ready.Body)
	}
	set(r, bigfleetv1alpha1.MutationMode_MUTATION_MODE_RUNNING)
	r.mustCreate(t, id(0))
}

// PROV-22.1, 22.4: ExplainMachine tells record, marks, operation ids and the newest transitions with their causes; only a FAILED
// machine is retired.
func TestExplainAndRetire(t *testing.T) {
	c := newCloud()
	r := startCloud(t, c)
	r.mustCreate(t, id(0))
	_, err := r.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id(0), Reason: "test"}))
	if connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("an IDLE machine is retired: %v", err)
	}
	c.mu.Lock()
	c.hook = func(context.Context, provider.Kind, provider.Machine) error { return errors.New("no such image") }
	c.mu.Unlock()
	r.must(t, provider.Configure, id(0), stFailed)
	answer, err := r.admin.ExplainMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ExplainMachineRequest{Id: id(0)}))
	if err != nil {
		t.Fatal(err)
	}
	m := answer.Msg
	if m.GetMachine().GetState() != stFailed || len(m.GetMarks()) != 1 || m.GetMarks()[0].GetSequence() != r.seq || len(m.GetOperationIds()) != 2 {
		t.Errorf("%v", m)
	}
	if newest := m.GetTransitions(); len(newest) != 2 || newest[0].GetRpc() != "Configure" || !strings.Contains(newest[0].GetCause(), "no such image") || newest[1].GetRpc() != "Create" {
		t.Errorf("transitions %v", newest)
	}
}

// PROV-17.5: a loss that the guard holds back happens once an operator names the number of hosts; another number is refused.
func TestAHeldLossIsAcknowledged(t *testing.T) {
	c := newCloud()
	r := startCloud(t, c, fastRounds(provider.WithOfferings(small(20)))...)
	for i := range 8 {
		r.mustCreate(t, id(i))
	}
	c.mu.Lock()
	c.away = func(string) bool { return true }
	c.mu.Unlock()
	order := func(hosts int32) error {
		_, err := r.admin.AcknowledgeLoss(t.Context(), connect.NewRequest(&bigfleetv1alpha1.AcknowledgeLossRequest{Hosts: hosts, Reason: "the rack burnt"}))
		return err
	}
	if err := order(3); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("a wrong number: %v", err)
	}
	eventually(t, "the guard to hold eight hosts", func() bool { return order(8) == nil })
	m := r.settles(t, id(0), stFailed)
	if m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST {
		t.Errorf("%v", m)
	}
}

// PROV-18.7: with the janitor off a FAILED machine stays until it is ordered otherwise.
func TestJanitorOff(t *testing.T) {
	c := newCloud()
	c.hook = func(context.Context, provider.Kind, provider.Machine) error { return errors.New("no") }
	r := startCloud(t, c, provider.WithJanitor(false), provider.WithReconcileInterval(20*time.Millisecond), provider.WithRetention(provider.Retention{
		Failed: time.Millisecond, Lost: time.Millisecond, Stockout: time.Millisecond, Orphan: time.Millisecond,
	}))
	r.must(t, provider.Create, id(0), stFailed)
	rounds := c.rounds.Load()
	eventually(t, "twenty rounds", func() bool { return c.rounds.Load() >= rounds+20 })
	r.settles(t, id(0), stFailed)
}

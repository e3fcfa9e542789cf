package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
)

// SubstrateControl injects faults through the service of that name: any SDK provider that runs on its fake has it
// (PROV-24.5). addr is asked at each use, because a restarted provider may listen elsewhere.
func SubstrateControl(addr func() string, config *tls.Config) Faults {
	t := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: true}
	scheme := "http://"
	if config == nil {
		t.Protocols.SetHTTP1(true)
	} else {
		t.Protocols.SetHTTP1(true)
		t.TLSClientConfig, scheme = config.Clone(), "https://"
	}
	return &substrateControl{addr: func() string { return scheme + addr() }, http: &http.Client{Transport: t}}
}

type substrateControl struct {
	addr func() string
	http *http.Client
}

func (s *substrateControl) client() bigfleetv1alpha1connect.SubstrateControlClient {
	return bigfleetv1alpha1connect.NewSubstrateControlClient(s.http, s.addr())
}

func (s *substrateControl) Set(ctx context.Context, b *bigfleetv1alpha1.Behaviour) error {
	_, err := s.client().SetBehaviour(ctx, connect.NewRequest(&bigfleetv1alpha1.SetBehaviourRequest{Behaviour: b}))
	return wrap("SetBehaviour", err)
}

func (s *substrateControl) Clear(ctx context.Context) error {
	_, err := s.client().ClearBehaviours(ctx, connect.NewRequest(&bigfleetv1alpha1.ClearBehavioursRequest{}))
	return wrap("ClearBehaviours", err)
}

func (s *substrateControl) Lose(ctx context.Context, machines ...string) error {
	_, err := s.client().LoseHosts(ctx, connect.NewRequest(&bigfleetv1alpha1.LoseHostsRequest{Selector: &bigfleetv1alpha1.MachineSelector{MachineIds: machines}}))
	return wrap("LoseHosts", err)
}

func (s *substrateControl) Return(ctx context.Context, machines ...string) error {
	_, err := s.client().ReturnHosts(ctx, connect.NewRequest(&bigfleetv1alpha1.ReturnHostsRequest{Selector: &bigfleetv1alpha1.MachineSelector{MachineIds: machines}}))
	return wrap("ReturnHosts", err)
}

func (s *substrateControl) Effects(ctx context.Context, call, machine string) (int, error) {
	res, err := s.client().GetJournal(ctx, connect.NewRequest(&bigfleetv1alpha1.GetJournalRequest{MachineId: machine, Limit: 10_000}))
	if err != nil {
		return 0, wrap("GetJournal", err)
	}
	n := 0
	for _, e := range res.Msg.GetEntries() {
		if e.GetCall() == call && e.GetEffect() {
			n++
		}
	}
	return n, nil
}

func wrap(call string, err error) error {
	if err != nil {
		return fmt.Errorf("SubstrateControl.%s: %w", call, err)
	}
	return nil
}

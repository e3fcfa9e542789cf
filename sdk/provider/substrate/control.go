package substrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/validate"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Control serves SubstrateControl for the Cloud on its own listener until ctx ends: never on the RPC port (PROV-24.3).
// With a source, peers need the admin identity; without one, they must be on this machine.
func (c *Cloud) Control(ctx context.Context, l net.Listener, source *identity.Source) error {
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewSubstrateControlHandler(control{c},
		connect.WithReadMaxBytes(4<<20), connect.WithSendMaxBytes(256<<20), connect.WithInterceptors(validate.NewInterceptor()),
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"})))
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(bigfleetv1alpha1connect.SubstrateControlName)))
	names := grpcreflect.NewStaticReflector(bigfleetv1alpha1connect.SubstrateControlName)
	mux.Handle(grpcreflect.NewHandlerV1(names))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(names))
	server := &http.Server{Handler: adminOnly(mux), ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	serve := server.Serve
	if source != nil {
		server.Protocols.SetHTTP2(true)
		server.TLSConfig = source.ServerConfig()
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func adminOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := ""
		if r.TLS != nil {
			if id, err := identity.FromState(*r.TLS); err != nil || id.Kind != identity.Admin {
				why = "SubstrateControl is for bigfleet://admin"
			}
		} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && !net.ParseIP(host).IsLoopback() {
			why = "SubstrateControl without TLS is for callers on this machine"
		}
		if why != "" {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodePermissionDenied, errors.New(why)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// strictJSON refuses fields that a message does not have (WIRE-4.7): a selector with a misspelt field selects everything, and
// "interrupt this machine" would interrupt them all.
type strictJSON struct{ name string }

func (c strictJSON) Name() string { return c.name }

func (c strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return protojson.Marshal(m)
}

func (c strictJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	if len(data) == 0 {
		return errors.New("the body is empty; send {} for an empty request")
	}
	return protojson.Unmarshal(data, m)
}

type control struct{ c *Cloud }

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }

func (s control) SetBehaviour(_ context.Context, r *connect.Request[bigfleetv1alpha1.SetBehaviourRequest]) (*connect.Response[bigfleetv1alpha1.SetBehaviourResponse], error) {
	if err := checkBehaviour(r.Msg.GetBehaviour()); err != nil {
		return nil, invalid(err)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return connect.NewResponse(&bigfleetv1alpha1.SetBehaviourResponse{BehaviourId: s.c.rules.add(r.Msg.GetBehaviour())}), nil
}

func (s control) ClearBehaviours(_ context.Context, r *connect.Request[bigfleetv1alpha1.ClearBehavioursRequest]) (*connect.Response[bigfleetv1alpha1.ClearBehavioursResponse], error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.rules.clear(r.Msg.GetBehaviourIds())
	return connect.NewResponse(&bigfleetv1alpha1.ClearBehavioursResponse{}), nil
}

func (s control) SetStock(_ context.Context, r *connect.Request[bigfleetv1alpha1.SetStockRequest]) (*connect.Response[bigfleetv1alpha1.SetStockResponse], error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	n := 0
	for _, p := range s.c.selected(r.Msg.GetSelector()) {
		p.stock = int(r.Msg.GetStock())
		n++
	}
	if n == 0 {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no pool matches the selector"))
	}
	return connect.NewResponse(&bigfleetv1alpha1.SetStockResponse{}), nil
}

func (s control) SetPrice(_ context.Context, r *connect.Request[bigfleetv1alpha1.SetPriceRequest]) (*connect.Response[bigfleetv1alpha1.SetPriceResponse], error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if r.Msg.PricePerHour == nil && r.Msg.InterruptionProbability == nil {
		return nil, invalid(errors.New("nothing to set: give price_per_hour, interruption_probability or both"))
	}
	price, risk := -1.0, -1.0
	if r.Msg.PricePerHour != nil {
		price = r.Msg.GetPricePerHour()
	}
	if r.Msg.InterruptionProbability != nil {
		risk = r.Msg.GetInterruptionProbability()
	}
	found := s.c.selected(r.Msg.GetSelector())
	if len(found) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no pool matches the selector"))
	}
	for k := range found {
		billable := k.CapacityType == provider.OnDemand || k.CapacityType == provider.Spot
		if price == 0 && billable || risk == 0 && k.CapacityType == provider.Spot {
			return nil, invalid(fmt.Errorf("%s %s in %s: billed capacity needs a price above 0, spot a probability above 0", k.CapacityType, k.InstanceType, k.Zone))
		}
	}
	for k := range found {
		s.c.setPool(k, price, risk)
	}
	return connect.NewResponse(&bigfleetv1alpha1.SetPriceResponse{}), nil
}

// selected finds pools by type, zone and class; the lock is held.
func (c *Cloud) selected(s *bigfleetv1alpha1.MachineSelector) map[PoolKey]*pool {
	found := map[PoolKey]*pool{}
	for k, p := range c.pools {
		m := provider.Machine{Attributes: p.attributes}
		if matches(&bigfleetv1alpha1.MachineSelector{
			InstanceType: s.GetInstanceType(), Zone: s.GetZone(), CapacityType: s.GetCapacityType(), Labels: s.GetLabels(),
		}, m) {
			found[k] = p
		}
	}
	return found
}

// chosen finds hosts by everything, at most max (0: all), in the order of their machines; the lock is held.
func (c *Cloud) chosen(s *bigfleetv1alpha1.MachineSelector, max int, ok func(*host) bool) []*host {
	var out []*host
	for _, h := range c.sorted() {
		m := provider.Machine{ID: h.machine, Cluster: h.cluster, HostRef: h.ref}
		m.InstanceType, m.Zone, m.CapacityType, m.Labels = h.pool.InstanceType, h.pool.Zone, h.pool.CapacityType, h.labels
		if ok(h) && matches(s, m) {
			if out = append(out, h); len(out) == max {
				break
			}
		}
	}
	return out
}

func names(hosts []*host) []string {
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		out = append(out, h.machine)
	}
	return out
}

func (s control) LoseHosts(_ context.Context, r *connect.Request[bigfleetv1alpha1.LoseHostsRequest]) (*connect.Response[bigfleetv1alpha1.LoseHostsResponse], error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	lost := s.c.chosen(r.Msg.GetSelector(), int(r.Msg.GetMax()), func(h *host) bool { return !h.lost })
	for _, h := range lost {
		s.c.account(h, time.Now())
		h.lost = true
	}
	s.c.wake()
	return connect.NewResponse(&bigfleetv1alpha1.LoseHostsResponse{MachineIds: names(lost)}), nil
}

func (s control) ReturnHosts(_ context.Context, r *connect.Request[bigfleetv1alpha1.ReturnHostsRequest]) (*connect.Response[bigfleetv1alpha1.ReturnHostsResponse], error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	back := s.c.chosen(r.Msg.GetSelector(), 0, func(h *host) bool { return h.lost })
	for _, h := range back {
		h.lost, h.since = false, time.Now()
	}
	s.c.wake()
	return connect.NewResponse(&bigfleetv1alpha1.ReturnHostsResponse{MachineIds: names(back)}), nil
}

func (s control) Interrupt(_ context.Context, r *connect.Request[bigfleetv1alpha1.InterruptRequest]) (*connect.Response[bigfleetv1alpha1.InterruptResponse], error) {
	s.c.mu.Lock()
	hit := s.c.chosen(r.Msg.GetSelector(), int(r.Msg.GetMax()), func(h *host) bool { return !h.lost && !h.interrupted })
	machines := names(hit)
	s.c.mu.Unlock()
	for _, id := range machines {
		s.c.Interrupt(id, time.Duration(r.Msg.GetNoticeMillis())*time.Millisecond)
	}
	return connect.NewResponse(&bigfleetv1alpha1.InterruptResponse{MachineIds: machines}), nil
}

func (s control) GetState(context.Context, *connect.Request[bigfleetv1alpha1.GetStateRequest]) (*connect.Response[bigfleetv1alpha1.GetStateResponse], error) {
	out := &bigfleetv1alpha1.GetStateResponse{Seed: s.c.config.Seed, ClockSeconds: s.c.Clock().Seconds()}
	for _, p := range s.c.Pools() {
		out.Pools = append(out.Pools, &bigfleetv1alpha1.PoolState{
			InstanceType: p.InstanceType, Zone: p.Zone, CapacityType: p.CapacityType, Quota: int32(p.Quota), Hosts: int32(p.Hosts),
			Stock: int32(p.Stock), PricePerHour: p.Price, InterruptionProbability: p.Risk,
		})
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.accountAll()
	out.Behaviours = maps.Clone(s.c.rules.byID)
	out.Ledger = &bigfleetv1alpha1.Ledger{
		SpendByCluster: maps.Clone(s.c.ledger.byCluster), SpendByCapacityType: maps.Clone(s.c.ledger.byClass),
		MachineHours: s.c.ledger.hours, Interruptions: s.c.ledger.interruptions,
	}
	return connect.NewResponse(out), nil
}

func (s control) GetJournal(_ context.Context, r *connect.Request[bigfleetv1alpha1.GetJournalRequest]) (*connect.Response[bigfleetv1alpha1.GetJournalResponse], error) {
	limit := int(r.Msg.GetLimit())
	if limit == 0 {
		limit = 1000
	}
	return connect.NewResponse(&bigfleetv1alpha1.GetJournalResponse{Entries: s.c.Journal(r.Msg.GetMachineId(), r.Msg.GetAfter(), limit)}), nil
}

// Reset goes back to the start: behaviours, draws, journal, ledger, prices and stock. Hosts stay, because the provider's
// books name them.
func (s control) Reset(_ context.Context, r *connect.Request[bigfleetv1alpha1.ResetRequest]) (*connect.Response[bigfleetv1alpha1.ResetResponse], error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Msg.GetSeed() != 0 {
		c.config.Seed = r.Msg.GetSeed()
	}
	c.rules.clear(nil)
	clear(c.calls)
	c.journal, c.ledger, c.began = journal{}, newLedger(), time.Now()
	for _, h := range c.hosts {
		h.lost, h.interrupted, h.since = false, false, time.Now()
	}
	for _, o := range c.config.Offerings {
		if p := c.pools[c.keys[o.Key()]]; p != nil {
			p.stock = p.quota - p.hosts
			p.price, p.risk, p.attributes = o.PricePerHour, o.InterruptionProbability, o.Attributes
		}
	}
	c.wake()
	return connect.NewResponse(&bigfleetv1alpha1.ResetResponse{}), nil
}

// Interrupt announces an interruption and carries it out after the notice, in simulated time (PROV-26.6). A machine that
// was given back before is left alone.
func (c *Cloud) Interrupt(machine string, notice time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.sorted(), func(h *host) bool { return h.machine == machine && !h.lost && !h.interrupted })
	if i < 0 {
		return
	}
	h := c.sorted()[i]
	h.interrupted = true
	c.ledger.interruptions++
	c.notify(provider.Notice{MachineID: machine, InterruptionProbability: 1})
	time.AfterFunc(c.simulated(notice), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.hosts[h.ref] != h {
			return
		}
		c.end(h)
		c.notify(provider.Notice{MachineID: machine, Gone: true})
	})
}

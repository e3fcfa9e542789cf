package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// Limits of COORD-2 and COORD-16.
const (
	// MessageBytesMax bounds every answer.
	MessageBytesMax = 256 << 20
	// ReportBytesMax bounds a report: 100 times that of a full shard, 5 times one with the holdings of 100,000 exceptions.
	ReportBytesMax = 32 << 20
	// RequestBytesMax bounds every other request; the largest is a provider with its partition keys.
	RequestBytesMax = 1 << 20
	// pageBytesMax ends a page of reports early, so that an answer never reaches MessageBytesMax.
	pageBytesMax = 128 << 20
	// AdminRate is how many admin calls a second one caller may make.
	AdminRate = 50
	// watchersMax bounds the streams of WatchFleet; each holds the keys of the rows that changed since it last looked.
	watchersMax = 64
	// heartbeatEvery is the silence after which WatchFleet sends an empty frame.
	heartbeatEvery = 5 * time.Second
	// savesMax bounds SnapshotSave: each decodes a whole state.
	savesMax = 2
)

// Config of a Server.
type Config struct {
	Log     *slog.Logger // required
	Metrics *metrics.Set // required
	Build   string
	// SweepEvery is the interval of the rebalancer; 0 switches it off.
	SweepEvery time.Duration
	// Level is the highest feature level of this replica, LevelMax holds the replicated one back.
	Level, LevelMax int32
	// AcceptAdmin lets certificates of admins join replicas (COORD-14.4).
	AcceptAdmin bool
	// AdminRate replaces the constant of the same name; 0 means that, negative means no limit.
	AdminRate int
	// DeadPeerAfter removes voters that do not answer for so long; 0 means never (COORD-13.14).
	DeadPeerAfter time.Duration
	// Expect is how many replicas there shall be; dead peers are not removed below it.
	Expect int
}

// Server implements both services. It is made before the replica, whose hooks it serves, and bound to it afterwards.
type Server struct {
	config      Config
	node        *replica.Node
	bound       atomic.Bool
	broadcaster *broadcaster
	limit       *limiter
	saves       chan struct{}
	admission   *admission
	ctx         context.Context // of the registries' loops
	stop        context.CancelFunc
	group       sync.WaitGroup

	exportedMu sync.Mutex
	exported   time.Time
}

// New returns a Server whose hooks a replica can be opened with.
func New(c Config) (*Server, error) {
	if c.Log == nil || c.Metrics == nil {
		return nil, errors.New("server.Config: Log and Metrics are required")
	}
	if c.AdminRate == 0 {
		c.AdminRate = AdminRate
	}
	s := &Server{config: c, broadcaster: newBroadcaster(), limit: newLimiter(c.AdminRate), saves: make(chan struct{}, savesMax), admission: newAdmission()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Bind names the replica. Nothing may be served before.
func (s *Server) Bind(n *replica.Node) {
	s.node = n
	s.bound.Store(true)
}

// Close waits for what ran for leaderships. The replica is closed before.
func (s *Server) Close() {
	s.stop()
	s.group.Wait()
}

// OnApply is the replica's hook: it hears what each entry changed.
func (s *Server) OnApply(st *fleet.State, changes []fleet.Change) {
	s.broadcaster.changed(changes)
	if !s.bound.Load() || s.node.Leadership() == nil {
		return
	}
	for _, c := range changes {
		if c.Table != fleet.Moves {
			continue
		}
		if m := st.Move(c.Key); m != nil && !fleet.Open(m) {
			s.config.Metrics.MovesTotal.WithLabelValues(tierLabel(m.GetTier()), stateLabel(m.GetState())).Inc()
		}
	}
}

// OnReset is the replica's hook: a snapshot replaced the state.
func (s *Server) OnReset(*fleet.State) { s.broadcaster.reset() }

type registryKey struct{}

// registry returns the conversation with shards of a leadership, made and started at the first call.
func (s *Server) registry(r *replica.Leadership) *shards.ShardRegistry {
	return r.Value(registryKey{}, func() any {
		d := shards.New(r.Context(), shards.Config{Group: s.node, Log: s.config.Log, Metrics: s.config.Metrics,
			SweepEvery: s.config.SweepEvery, LevelMax: s.config.LevelMax, OnReport: s.broadcaster.reported})
		s.group.Go(d.Run)
		return d
	}).(*shards.ShardRegistry)
}

// Services are the rows of the RPC port.
func (s *Server) Services() []rpc.Service {
	limits := rpc.Limits{ReadMaxBytes: ReportBytesMax, SendMaxBytes: MessageBytesMax}
	readers := []identity.Kind{identity.ReadOnly, identity.Admin}
	admins := []identity.Kind{identity.Admin}
	shardSide := rpc.AllowByEffect(api.CoordinatorName, readers, admins)
	shardSide[api.CoordinatorReportShardProcedure] = rpc.HandlerDecides(identity.Shard)
	shardSide[api.CoordinatorJoinRaftClusterProcedure] = rpc.HandlerDecides(identity.Coordinator, identity.Admin)
	shardSide[api.CoordinatorSnapshotSaveProcedure] = rpc.Allow(admins...) // it changes nothing: the job that saves runs elsewhere
	adminSide := rpc.AllowByEffect(api.CoordinatorAdminName, readers, admins)
	adminSide[api.CoordinatorAdminGetCoordinatorStatusProcedure] = rpc.Allow(identity.Coordinator, identity.ReadOnly, identity.Admin)
	before := []connect.Interceptor{&gate{s}}
	small := func(table map[string]rpc.Access) map[string]int {
		out := map[string]int{}
		for procedure := range table {
			out[procedure] = RequestBytesMax
		}
		delete(out, api.CoordinatorReportShardProcedure)
		return out
	}
	return []rpc.Service{
		{Name: api.CoordinatorName, Limits: limits, Access: shardSide, Validate: true, Before: before, ReadMaxBytes: small(shardSide), Gate: s.mayReport,
			New: func(o ...connect.HandlerOption) (string, http.Handler) {
				path, h := api.NewCoordinatorHandler(s, o...)
				return path, s.admit(h)
			}},
		{Name: api.CoordinatorAdminName, Limits: limits, Access: adminSide, Validate: true, Before: before, ReadMaxBytes: small(adminSide),
			New: func(o ...connect.HandlerOption) (string, http.Handler) {
				return api.NewCoordinatorAdminHandler(s, o...)
			}},
	}
}

// RefusedEarly hears of calls that were refused before their body was read, which no interceptor sees (COORD-16.10). The server logs
// them, at a bounded rate.
func (s *Server) RefusedEarly(r rpc.Refusal) {
	if r.Procedure == api.CoordinatorReportShardProcedure {
		s.config.Metrics.Reports.WithLabelValues("identity").Inc()
		return
	}
	s.count(rpc.WithPeer(context.Background(), r.Peer), r.Procedure, r.Err)
}

var (
	_ api.CoordinatorHandler      = (*Server)(nil)
	_ api.CoordinatorAdminHandler = (*Server)(nil)
)

func tierLabel(t v1.MoveTier) string { return lower(t.String(), "MOVE_TIER_") }

func stateLabel(t v1.Move_State) string { return lower(t.String(), "STATE_") }

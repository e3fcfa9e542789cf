package serve

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/console/clusters"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

const (
	requestBytesMax = 1 << 20  // of one request of a browser; a what-if with a thousand edits is smaller
	answerBytesMax  = 64 << 20 // of one answer; pages of lists are bounded by their page size
	frameRows       = 500      // rows in one frame of needs
	tick            = time.Second
)

// Config of New.
type Config struct {
	Log       *slog.Logger
	Telemetry *telemetry.Telemetry
	Sources   *sources.Set
	Clusters  clusters.Reader // nil means none
	Files     fs.FS
	Hosts     []string
	Viewers   int // streams at a time
	Orders    Orders
}

// Console answers browsers.
type Console struct {
	Config
	viewers  atomic.Int64
	counters *counters
}

// New returns the server of one port.
func New(c Config) (*rpc.Server, error) {
	files, err := newStatic(c.Files)
	if err != nil {
		return nil, err
	}
	console := &Console{Config: c}
	if console.counters, err = console.meter(); err != nil {
		return nil, err
	}
	limits := rpc.Limits{ReadMaxBytes: requestBytesMax, SendMaxBytes: answerBytesMax}
	row := func(name string, mount func(...connect.HandlerOption) (string, http.Handler)) rpc.Service {
		return rpc.Service{Name: name, Limits: limits, Access: reads(name), Gate: readsOnly, Validate: true, New: mount}
	}
	shard, leader := &shardGateway{Console: console}, &leaderGateway{set: c.Sources}
	return rpc.NewServer(rpc.ServerConfig{
		Log: c.Log, NoReflection: true,
		HTTP:  map[string]http.Handler{"/": files},
		Front: func(next http.Handler) http.Handler { return front(c.Hosts, noteViewer(c.Orders, next)) },
		Services: []rpc.Service{
			row(bigfleetv1alpha1connect.ConsoleName, func(o ...connect.HandlerOption) (string, http.Handler) {
				return bigfleetv1alpha1connect.NewConsoleHandler(console, o...)
			}),
			row(bigfleetv1alpha1connect.ShardReadName, func(o ...connect.HandlerOption) (string, http.Handler) {
				return bigfleetv1alpha1connect.NewShardReadHandler(shard, o...)
			}),
			row(bigfleetv1alpha1connect.CoordinatorName, func(o ...connect.HandlerOption) (string, http.Handler) {
				return bigfleetv1alpha1connect.NewCoordinatorHandler(&coreGateway{set: c.Sources}, o...)
			}),
			row(bigfleetv1alpha1connect.CoordinatorAdminName, func(o ...connect.HandlerOption) (string, http.Handler) {
				return bigfleetv1alpha1connect.NewCoordinatorAdminHandler(leader, o...)
			}),
			{Name: bigfleetv1alpha1connect.ShardAdminName, Limits: limits, Access: rpc.AllowAll(bigfleetv1alpha1connect.ShardAdminName, rpc.HandlerDecides()), Gate: c.Orders.admit, Validate: true,
				New: func(o ...connect.HandlerOption) (string, http.Handler) {
					return bigfleetv1alpha1connect.NewShardAdminHandler(&orderGateway{Console: console}, o...)
				}},
		},
	})
}

// reads lets browsers call what has no side effects; readsOnly refuses whatever else a service has, before its body is read (OPS-6.2).
func reads(service string) map[string]rpc.Access { return rpc.AllowByEffect(service, nil, nil) }

func readsOnly(_ context.Context, procedure string) error {
	if readable[procedure] {
		return nil
	}
	return errReadsOnly
}

// readable are the RPCs without side effects of the services that the console serves.
var readable = func() map[string]bool {
	out := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{pb.File_bigfleet_v1alpha1_console_proto, pb.File_bigfleet_v1alpha1_shardread_proto, pb.File_bigfleet_v1alpha1_coordinator_proto, pb.File_bigfleet_v1alpha1_coordinatoradmin_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				options, _ := m.Options().(*descriptorpb.MethodOptions)
				out["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			}
		}
	}
	return out
}()

var errViewers = connect.NewError(connect.CodeResourceExhausted, errors.New("the console has as many viewers as --viewers allows: close a page, or raise it"))

// view counts one stream. leave must be called when err is nil.
func (c *Console) view() (leave func(), err error) {
	if c.viewers.Add(1) > int64(c.Viewers) {
		c.viewers.Add(-1)
		c.counters.refused.Inc()
		return nil, errViewers
	}
	return func() { c.viewers.Add(-1) }, nil
}

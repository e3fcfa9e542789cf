// Package inspect answers ShardRead: what the shard knows, wants and did.
//
// Reads of needs, clusters and status come from the last published view, which is immutable and swapped by pointer, so a
// slow reader costs the core nothing. Reads of machines visit the core between its steps in short chunks. Records come from a
// ring that the core's loop writes without a lock. Nothing here changes state, and nothing here is asked for a decision.
//
// Start at Server. Tests cite SHARD-23 and WIRE-9.
package inspect

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// Config is what a Server needs.
type Config struct {
	ShardID   string
	Version   string
	Started   time.Time
	Addresses map[string]string // provider name to dial address
	Core      *core.Core        // touched through Visits only
	Visits    *loop.Source
	Records   *audit.Log
	Gate      *ingest.Gate         // of what-ifs: the same as that of roll-ups
	View      func() *core.Publish // never nil once the core has started
	NotReady  func() []string
	ReadsMax  int // 0 means 8
	// StreamsMax bounds the streams that are being sent. 0 means 128.
	StreamsMax int
	Log        *slog.Logger
	// CycleTook is how long the last cycle took.
	CycleTook func() time.Duration
}

// Server implements ShardRead.
type Server struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	cfg     Config
	studies *studies
	past    *past
	reads   *places
	streams *places
}

// New returns a server.
func New(c Config) *Server {
	if c.ReadsMax == 0 {
		c.ReadsMax = 8
	}
	if c.StreamsMax == 0 {
		c.StreamsMax = 128
	}
	return &Server{cfg: c, studies: newStudies(), past: &past{}, reads: newReads(c.ReadsMax), streams: newStreams(c.StreamsMax)}
}

// Access lists the roles that may call each method (WIRE-2.5): clusters see their own rows, machines and records only.
func Access() map[string]rpc.Access {
	all := rpc.AllowAll(bigfleetv1alpha1connect.ShardReadName, rpc.Allow(identity.ReadOnly, identity.Admin, identity.Cluster))
	for _, p := range []string{bigfleetv1alpha1connect.ShardReadGetStatusProcedure, bigfleetv1alpha1connect.ShardReadPlanProcedure,
		bigfleetv1alpha1connect.ShardReadCompareCyclesProcedure, bigfleetv1alpha1connect.ShardReadGetCostProcedure} {
		all[p] = rpc.Allow(identity.ReadOnly, identity.Admin)
	}
	return all
}

// scope is the one cluster that the caller may see, or "" for all.
func scope(ctx context.Context) string {
	if p := rpc.PeerFrom(ctx); p.ID.Kind == identity.Cluster {
		return p.ID.Name
	}
	return ""
}

// narrow applies the caller's scope to the cluster a request names.
func narrow(ctx context.Context, asked string) (string, error) {
	own := scope(ctx)
	if own == "" || asked == own || asked == "" {
		if own != "" {
			return own, nil
		}
		return asked, nil
	}
	return "", rpc.NewError(connect.CodePermissionDenied, "a cluster may only read about itself")
}

func notFound(what string) error { return rpc.NewError(connect.CodeNotFound, what) }

var errToken = errors.New("page_token was not issued by this shard")

// token and untoken make page tokens of keys.
func token(keys ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1\x00" + strings.Join(keys, "\x00")))
}

func untoken(t string, n int) ([]string, error) {
	if t == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(t)
	parts := strings.Split(string(raw), "\x00")
	if err != nil || len(parts) != n+1 || parts[0] != "1" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errToken)
	}
	return parts[1:], nil
}

func pageSize(asked, def int32) int {
	if asked <= 0 {
		return int(def)
	}
	return int(asked)
}

// visit runs f on the core's goroutine.
func (s *Server) visit(ctx context.Context, f func(*core.Core)) error {
	if !s.cfg.Visits.Visit(ctx, func() { f(s.cfg.Core) }) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return rpc.NewError(connect.CodeUnavailable, "the shard is stopping")
	}
	return nil
}

func sortedClusters(list []*core.ClusterView, after string) []*core.ClusterView {
	i, found := slices.BinarySearchFunc(list, after, func(c *core.ClusterView, n string) int { return strings.Compare(c.Name, n) })
	if found {
		i++
	}
	return list[i:]
}

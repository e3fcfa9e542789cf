package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// frameMax bounds one frame of SnapshotSave.
const frameMax = 1 << 20

// capture takes a snapshot of everything committed before the call, decodes and describes it.
func (s *Server) capture(ctx context.Context) (archive.Meta, []byte, error) {
	found, reader, err := s.node.Snapshot(ctx)
	if err != nil {
		return archive.Meta{}, nil, err
	}
	state, err := io.ReadAll(reader)
	if err = errors.Join(err, reader.Close()); err != nil {
		return archive.Meta{}, nil, fmt.Errorf("reading the snapshot: %w", err)
	}
	meta := archive.Meta{CreatedAt: time.Now().UTC().Truncate(time.Millisecond), NodeID: s.node.NodeID(), Build: s.config.Build, Index: found.Index, Term: found.Term}
	for _, server := range found.Configuration.Servers {
		meta.Configuration = append(meta.Configuration, archive.Member{NodeID: string(server.ID), Address: string(server.Address), Suffrage: suffrage(server.Suffrage)})
	}
	meta, err = archive.Describe(meta, state)
	return meta, state, err
}

// SnapshotSave streams a snapshot: its description, its bytes, and the digest on the last frame (COORD-15.4).
func (s *Server) SnapshotSave(ctx context.Context, req *connect.Request[v1.SnapshotSaveRequest], stream *connect.ServerStream[v1.SnapshotSaveChunk]) error {
	select {
	case s.saves <- struct{}{}:
		defer func() { <-s.saves }()
	default:
		return rpc.NewError(connect.CodeResourceExhausted, "two snapshots are already being saved: retry in a moment",
			&v1.Problem{Reason: "saves", Message: "two snapshots are already being saved", Hint: "retry in a moment"})
	}
	if _, err := s.mutate(ctx, req, false); err != nil { // a caller that took the whole state is recorded (COORD-16.10)
		return err
	}
	meta, state, err := s.capture(ctx)
	if errors.Is(err, replica.ErrNoSnapshot) {
		return rpc.NewError(connect.CodeNotFound, "there is no snapshot yet: nothing has been committed", &v1.Problem{Reason: "no-snapshot"})
	}
	if err != nil {
		return s.fail(err)
	}
	text, err := meta.JSON()
	if err != nil {
		return s.fail(err)
	}
	if err := stream.Send(&v1.SnapshotSaveChunk{Payload: &v1.SnapshotSaveChunk_MetaJson{MetaJson: text}}); err != nil {
		return err
	}
	digest := sha256.Sum256(state)
	for len(state) > frameMax {
		if err := stream.Send(&v1.SnapshotSaveChunk{Payload: &v1.SnapshotSaveChunk_Data{Data: state[:frameMax]}}); err != nil {
			return err
		}
		state = state[frameMax:]
	}
	return stream.Send(&v1.SnapshotSaveChunk{Payload: &v1.SnapshotSaveChunk_Data{Data: state}, Sha256: digest[:]})
}

// Export says where the leader keeps copies of its state.
type Export struct {
	Dir   string
	Every time.Duration
	Keep  int
}

// RunExport writes an archive each interval while this replica leads, until ctx ends (COORD-15.2). A target that cannot
// be written costs a counter and a log line, and nothing else.
func (s *Server) RunExport(ctx context.Context, e Export) error {
	tick := time.NewTicker(e.Every)
	defer tick.Stop()
	for {
		if s.node.Leadership() != nil {
			if err := s.export(ctx, e); err != nil && ctx.Err() == nil && !errors.Is(err, replica.ErrNotLeader) {
				s.config.Metrics.ExportErrors.Inc()
				s.config.Log.Error("the state was not exported", "dir", e.Dir, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Server) export(ctx context.Context, e Export) error {
	start := time.Now()
	m := s.config.Metrics
	ctx, cancel := context.WithTimeout(ctx, max(e.Every, 10*time.Second))
	defer cancel()
	if last := archive.Exported(e.Dir); last == 0 || last < s.node.State().Index() {
		meta, state, err := s.capture(ctx)
		if err != nil {
			return err
		}
		if meta.Index != last {
			bytes, err := archive.Export(e.Dir, meta, state, e.Keep)
			if err != nil {
				return err
			}
			m.ExportBytes.Set(float64(bytes))
		}
	}
	m.ExportSeconds.Observe(time.Since(start).Seconds())
	now := time.Now()
	m.ExportSuccess.Set(float64(now.Unix()))
	s.Exported(now)
	return nil
}

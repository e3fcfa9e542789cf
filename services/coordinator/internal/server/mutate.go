package server

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

const (
	// reasonHeader carries why to the audit (WIRE-9.7).
	reasonHeader = "bigfleet-reason"
	reasonMax    = 1 << 10
	requestMax   = 32 << 10 // of one audit record
)

// mutate carries one mutation out: the operations and their audit record in one entry (COORD-16.10). A refusal that the
// newest state already implies is answered without a commit, and validate_only ends there (COORD-16.2).
func (s *Server) mutate(ctx context.Context, req connect.AnyRequest, validateOnly bool, ops ...*pb.Operation) (*fleet.State, error) {
	st := s.node.State()
	actor := callerOf(ctx)
	_, outcome, err := fleet.Apply(st, st.Index()+1, replica.Envelope(actor, ops...))
	if err != nil {
		return nil, s.fail(err)
	}
	if refusal := outcome.Err(); refusal != nil || validateOnly {
		// A leader that is not one any more must not refuse on an old state.
		if _, err := s.confirmed(ctx); err != nil {
			return nil, err
		}
		if refusal != nil {
			return nil, refuse(refusal)
		}
		return st, nil
	}
	entry := replica.Envelope(actor, append(ops, s.audit(req))...)
	trace.SpanFromContext(ctx).SetAttributes(attribute.String(replica.RequestID, entry.GetRequestId()))
	got, err := s.node.Propose(ctx, entry, false)
	if err != nil {
		return nil, s.fail(err)
	}
	if refusal := got.Err(); refusal != nil {
		return nil, refuse(refusal)
	}
	return got.State, nil
}

// refusing answers with a refusal that the tables alone do not imply, once leadership is confirmed.
func (s *Server) refusing(ctx context.Context, r *fleet.Refusal) error {
	if _, err := s.confirmed(ctx); err != nil {
		return err
	}
	return refuse(r)
}

// audit is the record of a call.
func (s *Server) audit(req connect.AnyRequest) *pb.Operation {
	reason := reasonOf(req.Header().Get(reasonHeader))
	return &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{
		Method: req.Spec().Procedure, RequestJson: jsonOf(req.Any()), Reason: reason}}}
}

// reasonOf is a reason as an entry can hold it: at most reasonMax bytes of UTF-8. An entry with anything else cannot be encoded, and
// the call would fail however often it is tried.
func reasonOf(header string) string {
	return strings.ToValidUTF8(header[:min(len(header), reasonMax)], "")
}

// jsonOf is a request as compact JSON. The generated encoder varies its white space on purpose.
func jsonOf(message any) string {
	m, ok := message.(proto.Message)
	if !ok {
		return "{}"
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return "{}"
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil || out.Len() > requestMax {
		return `{"omitted":"the request is too large for the audit"}`
	}
	return out.String()
}

func empty[T any](err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(new(T)), nil
}

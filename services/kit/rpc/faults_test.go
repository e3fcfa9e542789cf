package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// WIRE-4.4: over the limit is RESOURCE_EXHAUSTED, at the limit it passes, in each direction and in a stream.
func TestMessageLimits(t *testing.T) {
	f := &fleet{session: echo}
	f.list = func(_ context.Context, req *pb.ListFilter) (*pb.MachineList, error) {
		return &pb.MachineList{Revision: make([]byte, req.GetMaxResults())}, nil
	}
	p := start(t, f, nil)
	provider := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient)

	// The encoding of a 60,000 byte field adds 4 bytes: a tag and a length of three.
	const overhead = 4
	for size, want := range map[int]connect.Code{frameMax - overhead: 0, frameMax - overhead + 1: connect.CodeResourceExhausted} {
		_, err := provider.List(within(t), connect.NewRequest(&pb.ListFilter{SinceRevision: make([]byte, size)}))
		if want == 0 && err != nil || want != 0 && connect.CodeOf(err) != want {
			t.Errorf("request of %d bytes: %v, want %v", size+overhead, err, want)
		}
		_, err = provider.List(within(t), connect.NewRequest(&pb.ListFilter{MaxResults: int32(size)}))
		if want == 0 && err != nil || want != 0 && connect.CodeOf(err) != want {
			t.Errorf("answer of %d bytes: %v, want %v", size+overhead, err, want)
		}
	}
	// The client has limits of its own.
	narrow := dial(t, p.addr, func(c *rpc.ClientConfig) { c.Limits = rpc.Limits{ReadMaxBytes: 100, SendMaxBytes: 100} })
	_, err := rpc.Stub(narrow, api.NewCapacityProviderClient).List(within(t), connect.NewRequest(&pb.ListFilter{MaxResults: 1000}))
	wantCode(t, err, connect.CodeResourceExhausted)
	_, err = rpc.Stub(narrow, api.NewCapacityProviderClient).List(within(t), connect.NewRequest(&pb.ListFilter{SinceRevision: make([]byte, 1000)}))
	wantCode(t, err, connect.CodeResourceExhausted)

	s := rpc.Stub(dial(t, p.addr, nil), api.NewShardClient).Session(within(t))
	if err := s.Send(hello(strings.Repeat("c", frameMax+1))); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = s.Receive()
	wantCode(t, err, connect.CodeResourceExhausted)
	_ = s.CloseRequest()
	_ = s.CloseResponse()
}

// WIRE-3.12, WIRE-5.3: generated rules give INVALID_ARGUMENT with Violations, behind the identity check; a service
// without Validate is its handler's business.
func TestValidation(t *testing.T) {
	p := start(t, &fleet{}, nil)
	c := dial(t, p.addr, nil)
	_, err := rpc.Stub(c, api.NewShardReadClient).ListMachines(within(t), connect.NewRequest(&pb.ListMachinesRequest{PageSize: 5001}))
	wantCode(t, err, connect.CodeInvalidArgument)
	violations, ok := rpc.Detail[*validate.Violations](err)
	if !ok || len(violations.GetViolations()) != 1 {
		t.Fatalf("no Violations in %v", err)
	}
	if got := violations.GetViolations()[0].GetField().GetElements()[0].GetFieldName(); got != "page_size" {
		t.Errorf("the violation names %q", got)
	}
	if _, ok := rpc.Detail[*pb.ShardDecommissioned](err); ok {
		t.Error("a detail of another type was found")
	}
	stream, err := rpc.Stub(c, api.NewShardReadClient).WatchDecisions(within(t), connect.NewRequest(&pb.WatchDecisionsRequest{FromSequence: -1}))
	if err == nil {
		for stream.Receive() {
			t.Error("an invalid request of a stream was answered")
		}
		err = stream.Err()
		_ = stream.Close()
	}
	wantCode(t, err, connect.CodeInvalidArgument)
	// CapacityProvider has no interceptor: an empty machine_id reaches the handler, which here does not mind.
	if _, err := rpc.Stub(c, api.NewCapacityProviderClient).Get(within(t), ref("")); err != nil {
		t.Errorf("the provider's request was judged before its handler: %v", err)
	}
}

// A panic is INTERNAL for its caller, a stack in the log, and nothing to anybody else.
func TestPanic(t *testing.T) {
	f := &fleet{
		get: func(_ context.Context, req *pb.MachineRef) (*pb.Machine, error) {
			if req.GetId() == "bad" {
				panic("secret of the panic")
			}
			return &pb.Machine{Id: req.GetId()}, nil
		},
		session: func(context.Context, *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			panic("secret of the stream")
		},
	}
	p := start(t, f, nil)
	c := dial(t, p.addr, nil)
	provider := rpc.Stub(c, api.NewCapacityProviderClient)
	_, err := provider.Get(within(t), ref("bad"))
	if fault := wantCode(t, err, connect.CodeInternal); strings.Contains(fault.Message(), "secret") {
		t.Errorf("the peer reads %q", fault.Message())
	}
	s := rpc.Stub(c, api.NewShardClient).Session(within(t))
	_ = s.Send(hello("red"))
	_, err = s.Receive()
	wantCode(t, err, connect.CodeInternal)
	_ = s.CloseResponse()
	if _, err := provider.Get(within(t), ref("good")); err != nil {
		t.Errorf("the server did not live on: %v", err)
	}
	for _, want := range []string{"secret of the panic", "secret of the stream", "faults_test.go", "stack="} {
		if !strings.Contains(p.logs.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// WIRE-5.1, WIRE-5.2: a connect error passes with its details; anything else is a defect and keeps its text at home.
func TestErrorsOfHandlers(t *testing.T) {
	errs := map[string]error{
		"own":      rpc.NewError(connect.CodeAborted, "bound to blue", &pb.ShardDecommissioned{ShardId: "n1"}),
		"wrapped":  fmt.Errorf("outer: %w", connect.NewError(connect.CodeNotFound, errors.New("no such machine"))),
		"plain":    errors.New("password=hunter2"),
		"canceled": fmt.Errorf("inner: %w", context.Canceled),
		"deadline": context.DeadlineExceeded,
		"stopping": rpc.ErrStopping,
	}
	p := start(t, &fleet{get: func(_ context.Context, req *pb.MachineRef) (*pb.Machine, error) { return nil, errs[req.GetId()] }}, nil)
	provider := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient)
	for name, want := range map[string]connect.Code{
		"own": connect.CodeAborted, "wrapped": connect.CodeNotFound, "plain": connect.CodeInternal,
		"canceled": connect.CodeCanceled, "deadline": connect.CodeDeadlineExceeded, "stopping": connect.CodeUnavailable,
	} {
		_, err := provider.Get(within(t), ref(name))
		fault := wantCode(t, err, want)
		if strings.Contains(fault.Message(), "hunter2") {
			t.Error("the text of a defect reached the peer")
		}
		if detail, ok := rpc.Detail[*pb.ShardDecommissioned](err); ok != (name == "own") || ok && detail.GetShardId() != "n1" {
			t.Errorf("%s: detail %v", name, detail)
		}
		if rpc.NotSent(err) {
			t.Errorf("%s: an answer is no proof that nothing was sent", name)
		}
	}
	if !strings.Contains(p.logs.String(), "hunter2") {
		t.Error("the log lacks the cause of the defect")
	}
	if _, ok := rpc.Detail[*pb.ShardDecommissioned](errors.New("no connect error")); ok {
		t.Error("a detail was found in a plain error")
	}
}

// A refused connection proves that nothing was sent, with and without a timeout.
func TestNotSent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = rpc.Stub(dial(t, addr, nil), api.NewCapacityProviderClient).Get(within(t), ref("m1"))
	wantCode(t, err, connect.CodeUnavailable)
	if !rpc.NotSent(err) || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v: want a DialError that names %s", err, addr)
	}
	if rpc.NotSent(nil) || rpc.NotSent(context.DeadlineExceeded) {
		t.Error("NotSent without a dial error")
	}
}

// Equal failures are one log line in a while, not one each.
func TestRepeatedFailuresAreSampled(t *testing.T) {
	p := start(t, &fleet{get: func(context.Context, *pb.MachineRef) (*pb.Machine, error) { return nil, errors.New("broken") }}, nil)
	provider := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient)
	for range 50 {
		_, err := provider.Get(within(t), ref("m1"))
		wantCode(t, err, connect.CodeInternal)
	}
	// One per 10 s; a very slow machine may see a few.
	if n := strings.Count(p.logs.String(), "level=ERROR"); n < 1 || n > 25 {
		t.Errorf("%d log lines for 50 equal failures", n)
	}
}

// COORD-6.2.2: an answer that names the leader is not a failure worth a warning; any other FAILED_PRECONDITION is.
func TestARedirectIsNoWarning(t *testing.T) {
	var answer error
	p := start(t, &fleet{get: func(context.Context, *pb.MachineRef) (*pb.Machine, error) { return nil, answer }}, nil)
	provider := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient)
	for _, want := range []struct {
		detail proto.Message
		lines  int
	}{{&pb.NotLeader{Leader: &pb.LeaderHint{LeaderId: "node-1"}}, 0}, {&pb.Problem{Reason: "fenced"}, 1}} {
		answer = rpc.NewError(connect.CodeFailedPrecondition, "no", want.detail)
		_, err := provider.Get(within(t), ref("m1"))
		wantCode(t, err, connect.CodeFailedPrecondition)
		if n := strings.Count(p.logs.String(), "level=WARN"); n != want.lines {
			t.Errorf("%T: %d warnings, want %d", want.detail, n, want.lines)
		}
	}
}

// Answers are compressed only for a client that asks; the reader's limit counts plain bytes.
func TestCompressionOnRequest(t *testing.T) {
	f := &fleet{list: func(_ context.Context, req *pb.ListFilter) (*pb.MachineList, error) {
		return &pb.MachineList{Revision: make([]byte, req.GetMaxResults())}, nil
	}}
	p := start(t, f, nil)
	for _, compress := range []bool{false, true} {
		c := dial(t, p.addr, func(c *rpc.ClientConfig) { c.Compress = compress })
		resp, err := rpc.Stub(c, api.NewCapacityProviderClient).List(within(t), connect.NewRequest(&pb.ListFilter{MaxResults: 50_000}))
		if err != nil || len(resp.Msg.GetRevision()) != 50_000 {
			t.Fatalf("compress %v: %v", compress, err)
		}
		if got := resp.Header().Get("Grpc-Encoding") == "gzip"; got != compress {
			t.Errorf("compress %v: answered with encoding %q", compress, resp.Header().Get("Grpc-Encoding"))
		}
		c = dial(t, p.addr, func(c *rpc.ClientConfig) { c.Compress, c.Limits.ReadMaxBytes = compress, 10_000 })
		_, err = rpc.Stub(c, api.NewCapacityProviderClient).List(within(t), connect.NewRequest(&pb.ListFilter{MaxResults: 50_000}))
		wantCode(t, err, connect.CodeResourceExhausted)
	}
}

// Small answers are not compressed: each would cost a tenth of a millisecond of the processor, and a session of the largest cluster sends thousands a second.
func TestSmallAnswersAreNotCompressed(t *testing.T) {
	f := &fleet{list: func(_ context.Context, req *pb.ListFilter) (*pb.MachineList, error) {
		return &pb.MachineList{Revision: make([]byte, req.GetMaxResults())}, nil
	}}
	p := start(t, f, nil)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for size, want := range map[int]string{100: "", 50_000: "gzip"} {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+p.addr+api.CapacityProviderListProcedure, strings.NewReader(fmt.Sprintf(`{"maxResults": %d}`, size)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("%d bytes: status %d, encoding %q, want %q", size, resp.StatusCode, got, want)
		}
	}
}

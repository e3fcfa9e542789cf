package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// answerBytesMax is how much of an answer is read.
const answerBytesMax = 4 << 20

// caller is one identity with one connection to each server.
type caller struct {
	id   identity.ID
	http *http.Client
}

func (s *stage) caller(id identity.ID) *caller {
	s.t.Helper()
	source, err := identity.Load(s.files(id), identity.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: source.ClientConfig("localhost", nil), Protocols: protocols, DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &caller{id: id, http: &http.Client{Transport: transport}}
}

// stranger returns a caller without a certificate, or with one of an authority that the servers do not know.
func (s *stage) stranger(certificates ...tls.Certificate) *caller {
	s.t.Helper()
	c := s.caller(identity.ID{Kind: identity.Admin})
	config := c.http.Transport.(*http.Transport).TLSClientConfig
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(certificates) == 0 {
			return &tls.Certificate{}, nil
		}
		return &certificates[0], nil
	}
	return c
}

// request is one request as it goes over the wire.
type request struct {
	data    io.Reader
	headers map[string]string
	look    time.Duration // a stream that continues is left after that; 0 means half a second
}

// body frames a message as the Connect protocol wants it for a method.
func body(method protoreflect.MethodDescriptor, m proto.Message) request {
	data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		data = nil // a string that is no UTF-8
	}
	return framed(method, data, 0)
}

func framed(method protoreflect.MethodDescriptor, data []byte, flags byte) request {
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		return request{data: bytes.NewReader(data), headers: map[string]string{"Content-Type": "application/proto"}}
	}
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data)))
	return request{data: bytes.NewReader(append(head, data...)), headers: map[string]string{"Content-Type": "application/connect+proto"}}
}

// ownRequest is an empty request in which the caller names itself where the contract wants that.
func ownRequest(method protoreflect.MethodDescriptor, who identity.ID) proto.Message {
	m := dynamicpb.NewMessage(method.Input())
	fields := method.Input().Fields()
	for name, kind := range map[protoreflect.Name]identity.Kind{"shard_id": identity.Shard, "node_id": identity.Coordinator} {
		if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() && who.Kind == kind {
			m.Set(f, protoreflect.ValueOfString(who.Name))
		}
	}
	if f := fields.ByName("hello"); f != nil { // the first message of a session
		hello := dynamicpb.NewMessage(f.Message())
		hello.Set(f.Message().Fields().ByName("cluster_id"), protoreflect.ValueOfString(who.Name))
		m.Set(f, protoreflect.ValueOfMessage(hello))
	}
	return m
}

// answer is what a server said: a code of the Connect protocol, or "ok", or "open" for a stream that continues.
type answer struct{ code, message string }

func (a answer) String() string { return a.code + " " + a.message }

// broken reports whether a server says that something of its own is wrong. The library also says INTERNAL to a caller whose frames are
// none.
func (a answer) broken() bool {
	if strings.HasPrefix(a.message, "protocol error: ") || strings.HasPrefix(a.message, "unmarshal end stream message: ") {
		return false
	}
	return a.code == "internal" || a.code == "unknown" || a.code == "data_loss"
}

// call sends one request and reads its answer. Its error is that of the transport.
func (c *caller) call(ctx context.Context, addr, procedure string, r request) (answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+procedure, r.data)
	if err != nil {
		return answer{}, err
	}
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	streams := r.headers["Content-Type"] != "application/proto" && r.headers["Content-Type"] != "application/json"
	look := r.look
	if look == 0 {
		look = 500 * time.Millisecond
	}
	opened := make(chan struct{})
	if streams {
		go func() {
			select {
			case <-opened:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(look):
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	close(opened)
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	out := parse(resp.StatusCode, text, resp.Header.Get("Grpc-Status")+resp.Trailer.Get("Grpc-Status"))
	if err != nil && out.code == "ok" {
		out.code = "open"
	}
	return out, nil
}

// parse finds the error in an answer: a document of a unary call, the last frame of a stream, or the status of gRPC.
func parse(status int, text []byte, grpc string) answer {
	names := map[string]string{"2": "unknown", "7": "permission_denied", "13": "internal", "15": "data_loss"}
	if names[grpc] != "" {
		return answer{names[grpc], "gRPC status " + grpc}
	}
	var found struct {
		Code, Message string
		Error         struct{ Code, Message string }
	}
	if at := bytes.Index(text, []byte(`{"error":`)); at >= 0 {
		text = text[at:]
	}
	if json.Unmarshal(text, &found) == nil {
		if found.Error.Code != "" {
			return answer{found.Error.Code, found.Error.Message}
		}
		if found.Code != "" && status != http.StatusOK {
			return answer{found.Code, found.Message}
		}
	}
	if status >= http.StatusInternalServerError {
		return answer{"internal", fmt.Sprintf("HTTP status %d: %.200s", status, text)}
	}
	if status != http.StatusOK {
		return answer{"refused", fmt.Sprintf("HTTP status %d", status)}
	}
	return answer{"ok", ""}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		status     int
		text, grpc string
		want       string
	}{
		{200, "", "", "ok"}, {403, `{"code":"permission_denied"}`, "", "permission_denied"}, {200, "\x02\x00\x00\x00\x1e" + `{"error":{"code":"internal"}}`, "", "internal"},
		{200, "", "13", "internal"}, {500, "x", "", "internal"}, {415, "", "", "refused"},
	} {
		if got := parse(c.status, []byte(c.text), c.grpc); got.code != c.want {
			t.Errorf("%d %q %q: %s, want %s", c.status, c.text, c.grpc, got, c.want)
		}
	}
}

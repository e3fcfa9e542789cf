package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Protocol is what a Client speaks.
type Protocol uint8

// GRPC is the default, because peers built by others may speak nothing else (WIRE-4.2).
const (
	GRPC Protocol = iota
	Connect
	GRPCWeb
)

// ClientConfig is what a Client needs.
type ClientConfig struct {
	Addr     string       // required: host:port
	Limits   Limits       // required
	Log      *slog.Logger // nil means no log lines; callers log failures with what they know
	Protocol Protocol

	Identity *identity.Source     // nil means plaintext
	Server   identity.ServerCheck // nil means that chain and host name are enough; ignored on plaintext

	// Dial replaces the network, for example MemListener.DialContext. nil means TCP.
	Dial         func(ctx context.Context, network, addr string) (net.Conn, error)
	DialTimeout  time.Duration // connect plus TLS handshake; 0 means 5 s
	Keepalive    Keepalive
	Tracer       trace.TracerProvider // nil means no traces
	Meter        metric.MeterProvider // nil means no RPC metrics
	Interceptors []connect.Interceptor
	// Compress asks for gzip answers. Off by default: gzip costs more time than a data centre's network does (a full
	// List of 500,000 machines would spend seconds in it), and peers of our own are near. On suits slow links.
	Compress bool
}

// Client is a connection to one address, dialled when first used and again whenever it broke. It sets no deadline
// and makes no retry: both belong to the caller. Safe for concurrent use.
type Client struct {
	HTTP      *http.Client
	BaseURL   string
	Options   []connect.ClientOption
	transport *http.Transport
}

// NewClient checks the configuration. It dials nothing.
func NewClient(c ClientConfig) (*Client, error) {
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return nil, fmt.Errorf("address %q: want host:port: %w", c.Addr, err)
	}
	if err := c.Limits.check(); err != nil {
		return nil, fmt.Errorf("rpc.ClientConfig: %w", err)
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = dialTimeout
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	telemetry, err := newTelemetry(c.Tracer, c.Meter)
	if err != nil {
		return nil, err
	}
	interceptors := []connect.Interceptor{telemetry}
	if c.Log != nil {
		interceptors = append(interceptors, &clientLog{log: c.Log, addr: c.Addr})
	}
	options := []connect.ClientOption{
		connect.WithReadMaxBytes(c.Limits.ReadMaxBytes), connect.WithSendMaxBytes(c.Limits.SendMaxBytes),
		connect.WithInterceptors(append(interceptors, c.Interceptors...)...),
	}
	switch c.Protocol {
	case GRPC:
		options = append(options, connect.WithGRPC())
	case GRPCWeb:
		options = append(options, connect.WithGRPCWeb())
	case Connect:
	default:
		return nil, fmt.Errorf("rpc.ClientConfig.Protocol %d is unknown", c.Protocol)
	}
	if !c.Compress {
		options = append(options, connect.WithAcceptCompression("gzip", nil, nil)) // takes connect's default away
	}
	transport, scheme := c.transport()
	return &Client{HTTP: &http.Client{Transport: transport}, BaseURL: scheme + "://" + c.Addr, Options: options, transport: transport}, nil
}

// transport speaks HTTP/2 only: everything a Client dials does.
func (c ClientConfig) transport() (*http.Transport, string) {
	protocols := new(http.Protocols)
	transport := &http.Transport{
		Protocols: protocols, HTTP2: c.Keepalive.http2(0), IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: headerBytesMax,
		DisableCompression: true, // connect compresses messages, not bodies
	}
	if c.Identity == nil {
		protocols.SetUnencryptedHTTP2(true)
		transport.DialContext = c.bounded(c.Dial)
		return transport, "http"
	}
	protocols.SetHTTP2(true)
	transport.DialTLSContext = c.bounded(c.Identity.Dialer(c.Dial, c.Server))
	return transport, "https"
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// bounded puts the dial timeout around dial and marks its errors, so that NotSent can tell.
func (c ClientConfig) bounded(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, c.DialTimeout, fmt.Errorf("no connection within %s", c.DialTimeout))
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
				err = cause
			}
			return nil, &DialError{Addr: addr, Err: err}
		}
		return conn, nil
	}
}

// Stub makes a generated client on c, for example rpc.Stub(c, bigfleetv1alpha1connect.NewShardClient).
func Stub[T any](c *Client, construct func(connect.HTTPClient, string, ...connect.ClientOption) T) T {
	return construct(c.HTTP, c.BaseURL, c.Options...)
}

// CloseIdle closes connections without calls. The next call dials again; that is also how to leave a peer that
// answers but should not be asked (COORD-6.3.3).
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// clientLog writes one debug line per call that failed.
type clientLog struct {
	log  *slog.Logger
	addr string
}

func (l *clientLog) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		start := time.Now()
		resp, err := next(ctx, req)
		if err != nil {
			l.log.LogAttrs(ctx, slog.LevelDebug, "call failed", slog.String("method", req.Spec().Procedure), slog.String("addr", l.addr),
				slog.String("code", connect.CodeOf(err).String()), slog.Duration("duration", time.Since(start)), slog.String("err", err.Error()))
		}
		return resp, err
	}
}

func (l *clientLog) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		l.log.LogAttrs(ctx, slog.LevelDebug, "stream opened", slog.String("method", spec.Procedure), slog.String("addr", l.addr))
		return next(ctx, spec)
	}
}

func (l *clientLog) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

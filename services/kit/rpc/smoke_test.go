package rpc

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

func TestSmoke(t *testing.T) {
	s, err := NewServer(ServerConfig{Log: slog.New(slog.DiscardHandler), Services: []Service{{
		Name: bigfleetv1alpha1connect.CapacityProviderName, Limits: ReadLimits(), Access: AllowAll(bigfleetv1alpha1connect.CapacityProviderName, HandlerDecides()),
		New: func(o ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCapacityProviderHandler(bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler{}, o...)
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, ln) }()
	c, err := NewClient(ClientConfig{Addr: ln.Addr().String(), Limits: ReadClientLimits()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Stub(c, bigfleetv1alpha1connect.NewCapacityProviderClient).List(ctx, connect.NewRequest(&pb.ListFilter{}))
	t.Log(err)
	cancel()
	t.Log(<-done)
}

package substrate

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// Fake is the Fake of a provider.Program: a Cloud with the program's offerings, SubstrateControl on --control-addr, and
// the Cloud's own readiness. So any provider can be tried and tested without its cloud (PROV-24.5).
func Fake[C any](c Config) func(context.Context, provider.Setup[C]) (provider.Backend, []provider.Option, error) {
	return func(_ context.Context, s provider.Setup[C]) (provider.Backend, []provider.Option, error) {
		c := c
		if c.Name == "" {
			c.Name = s.Common.Provider
		}
		c.Offerings = s.Offerings
		cloud, err := New(c)
		if err != nil {
			return nil, nil, err
		}
		served, err := cloud.Serve(s.Common.ControlAddr, s.Common.Files())
		if err != nil {
			return nil, nil, err
		}
		if served.Addr != "" {
			s.Log.Info("SubstrateControl", "addr", served.Addr)
		}
		return served, []provider.Option{provider.WithReadiness(provider.SubstrateReadiness())}, nil
	}
}

// Served is a Cloud whose control service runs until Close, which provider.Run calls.
type Served struct {
	*Cloud
	Addr string // of SubstrateControl, empty when there is none
	stop context.CancelFunc
	done chan error
}

// Serve starts the control service; an empty address starts none.
func (c *Cloud) Serve(addr string, files identity.Files) (*Served, error) {
	s := &Served{Cloud: c, stop: func() {}, done: make(chan error, 1)}
	if addr == "" || addr == "0" {
		s.done <- nil
		return s, nil
	}
	tls, err := files.Enabled()
	if err != nil {
		return nil, err
	}
	var source *identity.Source
	if tls {
		if source, err = identity.Load(files, identity.Options{}); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control port (--control-addr): %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.Addr, s.stop = l.Addr().String(), stop
	go func() { s.done <- c.Control(ctx, l, source) }()
	return s, nil
}

// Close ends the control service.
func (s *Served) Close() error {
	s.stop()
	err := <-s.done
	s.done <- nil // a second Close
	return errors.Join(err)
}

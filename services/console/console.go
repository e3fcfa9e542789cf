package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/serve"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
	"github.com/bigfleet-dev/bigfleet/services/console/web"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

const stopTimeout = 5 * time.Second

// Run serves a console until ctx ends.
func Run(ctx context.Context, c Config) error {
	if c.Telemetry == nil {
		return errors.New("console.Config.Telemetry is required")
	}
	if err := c.check(); err != nil {
		return config.Fail(err)
	}
	source, err := c.Telemetry.LoadIdentity(c.TLS)
	if err != nil {
		return config.Fail(err)
	}
	if source != nil {
		if id, err := source.ID(); err == nil && id.Kind != identity.ReadOnly {
			c.Telemetry.Log.Warn("the console needs no more than a read identity", "identity", id.String())
		}
	}
	set, err := sources.New(sources.Config{Log: c.Telemetry.Log, Coordinators: c.Coordinators, Shards: c.shards, Identity: source, Sentence: c.Sentence})
	if err != nil {
		return config.Fail(err)
	}
	server, err := serve.New(serve.Config{Log: c.Telemetry.Log, Telemetry: c.Telemetry, Sources: set, Clusters: c.Clusters, Files: web.Files(), Hosts: c.Hosts, Viewers: c.Viewers})
	if err != nil {
		return err
	}
	listener, err := c.listen()
	if err != nil {
		return err
	}
	c.Telemetry.Health.AddReady("sources", func() error {
		for _, s := range set.Statuses() {
			if s.GetLastDataAtUnixNanos() != 0 {
				return nil
			}
		}
		return errors.New("no source has answered yet")
	})
	group := process.New(process.Config{Log: c.Telemetry.Log, OnStop: c.Telemetry.Health.Stopping, StopTimeout: stopTimeout})
	for i, port := range c.Ops {
		group.Add(process.Component{Name: fmt.Sprintf("ops-%d", i), Kind: process.Restarts, Run: port.Run})
	}
	group.Add(process.Component{Name: "sources", Run: set.Run})
	group.Add(process.Component{Name: "server", Run: func(ctx context.Context) error { return server.Run(ctx, listener) }})
	c.Telemetry.Log.Info("console", "address", listener.Addr().String())
	return group.Run(ctx)
}

// listen binds the port, with the certificate for browsers where there is one.
func (c *Config) listen() (net.Listener, error) {
	l := c.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
		}
	}
	if c.ListenCert == "" {
		return l, nil
	}
	if _, err := tls.LoadX509KeyPair(c.ListenCert, c.ListenKey); err != nil {
		return nil, config.Fail(errors.Join(fmt.Errorf("--listen-cert: %w", err), l.Close()))
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.certificate}), nil
}

// certificate reads the files at each handshake: they are small, and browsers keep connections.
func (c *Config) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.ListenCert, c.ListenKey)
	if err != nil {
		c.Telemetry.Log.Error("the certificate for browsers cannot be read", "err", err)
		return nil, err
	}
	return &pair, nil
}

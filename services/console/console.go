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
	orderAs, err := c.orderIdentity(source)
	if err != nil {
		return config.Fail(err)
	}
	set, err := sources.New(sources.Config{Log: c.Telemetry.Log, Coordinators: c.Coordinators, Shards: c.shards, Identity: source, Sentence: c.Sentence, Orders: c.AllowWrites, OrderAs: orderAs})
	if err != nil {
		return config.Fail(err)
	}
	server, err := serve.New(serve.Config{Log: c.Telemetry.Log, Telemetry: c.Telemetry, Sources: set, Clusters: c.Clusters, Files: web.Files(), Hosts: c.Hosts, Viewers: c.Viewers,
		Orders: serve.Orders{UserHeader: c.AuthHeader, Users: c.Writers}})
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

// orderIdentity reads the certificate for orders, which names an administrator.
func (c *Config) orderIdentity(reads *identity.Source) (*identity.Source, error) {
	if !c.AllowWrites || reads == nil {
		return nil, nil
	}
	files := c.OrderTLS
	files.CA = c.TLS.CA
	source, err := identity.Load(files, identity.Options{OnReload: func(r identity.Reload) {
		if r.Err != nil {
			c.Telemetry.Log.Error("the changed certificate for orders does not load, the last good one stays", "err", r.Err)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("--admin-cert: %w", err)
	}
	if id, err := source.ID(); err != nil || id.Kind != identity.Admin {
		return nil, fmt.Errorf("--admin-cert names %q: orders need bigfleet://admin", id.String())
	}
	m := c.Telemetry.Metrics("bigfleet_console_")
	m.GaugeFunc("order_certificate_expiry_seconds", "Time until the certificate for orders ends.", func() float64 {
		leaf, _ := source.Expiry()
		return time.Until(leaf).Seconds()
	})
	if err := m.Err(); err != nil {
		return nil, err
	}
	return source, nil
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

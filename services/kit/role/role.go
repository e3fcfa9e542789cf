// Package role is what the command of every role does between its flags and its work: it opens the telemetry and the
// ports for metrics and health that the shared flags describe (OPS-2.1), calls the work, and closes them again.
//
// It must never know what a role does, and never decide what a lost port means: the role puts its Ports among its own
// components. Start at Run; a role's command calls it last.
package role

import (
	"context"
	"errors"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// flushTimeout bounds what traces may take to leave when the role has ended.
const flushTimeout = 2 * time.Second

// Config says which role it is.
type Config struct {
	Component string // shard, coordinator, operator, ...; required
	Instance  string // the role's own id; may be empty
	Shared    config.Shared
	// HealthAddr is a second port for metrics and health. Empty means none.
	HealthAddr string
	// LivingHeap says that nearly all of the role's memory lives for long. The collector then runs when the heap has grown by
	// half instead of by as much again, and by 32 MiB at least: for a large heap, waiting for more garbage costs memory and
	// saves a few hundredths of a core; for a small one it is the other way round. GOGC in the environment wins.
	LivingHeap bool
	// BusyHeapRoom is by how many bytes such a heap may grow instead while collections take more than a tenth of the processor time that is used, by twice what
	// is alive at most. Zero changes nothing.
	BusyHeapRoom uint64
}

// Opened is what a role works with.
type Opened struct {
	Telemetry *telemetry.Telemetry
	// Ops is there even without a port, for a role that serves it on a port it has.
	Ops *telemetry.Ops
	// Ports are bound and not served yet; the role serves them.
	Ports []*telemetry.OpsPort
}

// Run opens, works and closes. Its error is that of the first of them that failed, joined with the later ones.
func Run(ctx context.Context, c Config, work func(ctx context.Context, o Opened) error) (err error) {
	var o Opened
	o.Telemetry, err = telemetry.New(ctx, telemetry.Config{
		Component: c.Component, Instance: c.Instance,
		LogFormat: c.Shared.LogFormat, LogLevel: c.Shared.LogLevel, OTLPEndpoint: c.Shared.OTLPEndpoint,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		err = errors.Join(err, o.Telemetry.Close(ctx))
	}()
	o.Ops, err = telemetry.NewOps(telemetry.OpsConfig{
		Gatherer: o.Telemetry.Registry, Health: o.Telemetry.Health, Log: o.Telemetry.Log, Pprof: c.Shared.EnablePprof,
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range o.Ports {
			_ = p.Listener.Close() // already closed where it was served
		}
	}()
	for _, addr := range []string{c.Shared.MetricsAddr, c.HealthAddr} {
		port, err := o.Ops.Listen(addr)
		if err != nil {
			return err
		}
		if port != nil {
			o.Ports = append(o.Ports, port)
		}
	}
	if c.LivingHeap {
		defer livingHeap(c.BusyHeapRoom)()
	}
	return work(ctx, o)
}

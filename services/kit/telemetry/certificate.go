package telemetry

import (
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// LoadIdentity loads the TLS files of the role and exports when they end and how reloads went (OPS-8.5). Without
// files it returns nil, for plaintext, and says in the log what that means (OPS-8.6).
func (t *Telemetry) LoadIdentity(files identity.Files) (*identity.Source, error) {
	on, err := files.Enabled()
	if err != nil {
		return nil, err
	}
	if !on {
		t.Log.Warn("TLS is off: identity checks are skipped and every process that reaches the port may call it; this is for trials")
		return nil, nil
	}
	metrics := t.Metrics("bigfleet_certificate_")
	reloads := metrics.CounterVec("reload_total", "Reloads of changed TLS files: in use (ok), or refused, and the last valid set stays in use (failed).", "outcome")
	reloads.WithLabelValues("ok")
	reloads.WithLabelValues("failed")
	source, err := identity.Load(files, identity.Options{OnReload: func(r identity.Reload) {
		if r.Err != nil {
			reloads.WithLabelValues("failed").Inc()
			t.Log.Error("changed TLS files cannot be loaded; the last valid set stays in use", "identity", r.ID.String(), "err", r.Err)
			return
		}
		reloads.WithLabelValues("ok").Inc()
		t.Log.Info("changed TLS files are in use", "identity", r.ID.String(), "not_after", r.NotAfter)
	}})
	if err != nil {
		metrics.Close()
		return nil, err
	}
	metrics.Collector(&expiry{source}, MetricRow{
		Name: "bigfleet_certificate_expiry_seconds", Type: "gauge", Labels: []string{"use"}, Help: expiryHelp,
	})
	if err := metrics.Err(); err != nil {
		return nil, err
	}
	t.close = append(t.close, closeMetrics(metrics))
	id, err := source.ID()
	leaf, _ := source.Expiry()
	if err != nil {
		// Only a provider may serve without an identity (WIRE-2.6); a caller without one is refused everywhere.
		t.Log.Warn("the certificate of this process has no identity", "err", err, "not_after", leaf)
	} else {
		t.Log.Info("TLS is on", "identity", id.String(), "not_after", leaf)
	}
	return source, nil
}

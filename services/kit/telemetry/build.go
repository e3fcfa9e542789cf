package telemetry

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Set by the linker in release builds: -ldflags "-X .../telemetry.version=v1.2.3 -X ....commit=... -X ....date=...".
// Without it the build information that Go writes itself is used. Nothing else may write them.
var version, commit, date string

// Build says what is running.
type Build struct {
	Version, Commit, Date, Go string
}

// ReadBuild returns what the linker or the Go toolchain wrote. The version of a build without one is "devel"; other
// parts that are not known are "unknown".
func ReadBuild() Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && b.Commit == "":
				b.Commit = s.Value
			case s.Key == "vcs.time" && b.Date == "":
				b.Date = s.Value
			}
		}
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	for _, part := range []*string{&b.Commit, &b.Date} {
		if *part == "" {
			*part = "unknown"
		}
	}
	return b
}

func registerBuild(reg prometheus.Registerer, component string) error {
	b := ReadBuild()
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "bigfleet_build_info", Help: "Always 1; the labels describe the build.",
		ConstLabels: prometheus.Labels{"component": component, "version": b.Version, "commit": b.Commit, "date": b.Date, "go": b.Go},
	}, func() float64 { return 1 }))
}

// Package monitoring tries the dashboards and alert rules of deploy/monitoring with Prometheus' own parser and engine.
//
// A rule is judged as Prometheus judges it: its expression is evaluated minute by minute over series that a test writes in
// promtool's notation, and it fires once it held for its time. A dashboard is judged on what a real program exposes: every
// panel must have data, and every metric and label that is named must exist.
//
// It keeps samples in memory and serves no port. Start at Fires and Series.
package monitoring

package replica

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// logger carries the library's lines to slog, with the term of the moment (COORD-5.9).
type logger struct {
	slog *slog.Logger
	term func() uint64
	name string
	args []any
}

func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelInfo
	switch {
	case level <= hclog.Debug:
		to = slog.LevelDebug
	case level == hclog.Warn:
		to = slog.LevelWarn
	case level >= hclog.Error:
		to = slog.LevelError
	}
	if !l.slog.Enabled(context.Background(), to) {
		return
	}
	all := append([]any{"term", l.term()}, l.args...)
	for _, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = hclogText(f)
		}
		all = append(all, a)
	}
	if l.name != "" {
		msg = l.name + ": " + msg
	}
	l.slog.Log(context.Background(), to, msg, all...)
}

func (l *logger) Trace(msg string, args ...any) {}
func (l *logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }
func (l *logger) enabled(level slog.Level) bool { return l.slog.Enabled(context.Background(), level) }
func (l *logger) IsTrace() bool                 { return false }
func (l *logger) IsDebug() bool                 { return l.enabled(slog.LevelDebug) }
func (l *logger) IsInfo() bool                  { return l.enabled(slog.LevelInfo) }
func (l *logger) IsWarn() bool                  { return l.enabled(slog.LevelWarn) }
func (l *logger) IsError() bool                 { return l.enabled(slog.LevelError) }
func (l *logger) ImpliedArgs() []any            { return l.args }
func (l *logger) Name() string                  { return l.name }
func (l *logger) SetLevel(hclog.Level)          {}
func (l *logger) GetLevel() hclog.Level         { return hclog.Debug }

func (l *logger) With(args ...any) hclog.Logger {
	out := *l
	out.args = append(append([]any(nil), l.args...), args...)
	return &out
}

func (l *logger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *logger) ResetNamed(name string) hclog.Logger {
	out := *l
	out.name = name
	return &out
}

func (l *logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.slog.Handler(), slog.LevelInfo)
}

func (l *logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

type lineWriter struct{ l *logger }

func (w lineWriter) Write(b []byte) (int, error) {
	w.l.Info(strings.TrimSpace(string(b)))
	return len(b), nil
}

// hclogText renders a format with its arguments.
func hclogText(f hclog.Format) string {
	format, ok := f[0].(string)
	if !ok {
		return ""
	}
	return strings.TrimSpace(sprintf(format, f[1:]...))
}

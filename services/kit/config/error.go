package config

import "strings"

// Error is everything that is wrong with a configuration. Its exit code is 2 (OPS-2.5).
type Error struct{ Problems []error }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].Error()
	}
	var b strings.Builder
	b.WriteString("configuration:")
	for _, p := range e.Problems {
		b.WriteString("\n  - " + p.Error())
	}
	return b.String()
}

// OneLine is the error for where one line is all there is (OPS-4.9).
func (e *Error) OneLine() string {
	var said []string
	for _, p := range e.Problems {
		said = append(said, strings.ReplaceAll(p.Error(), "\n", "; "))
	}
	return "configuration: " + strings.Join(said, "; ")
}

// Unwrap lets errors.Is and errors.As see each problem.
func (e *Error) Unwrap() []error { return e.Problems }

// ExitCode is 2 for process.ExitCode.
func (e *Error) ExitCode() int { return 2 }

// Fail makes an *Error of what is not nil, with joined errors taken apart, or returns nil.
func Fail(errs ...error) error {
	var flat []error
	for _, err := range errs {
		flat = flatten(flat, err)
	}
	if len(flat) == 0 {
		return nil
	}
	return &Error{flat}
}

func flatten(into []error, err error) []error {
	if err == nil {
		return into
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only a join itself is taken apart
		for _, e := range joined.Unwrap() {
			into = flatten(into, e)
		}
		return into
	}
	return append(into, err)
}

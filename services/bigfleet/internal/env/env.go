// Package env is what a verb may touch of the world: its streams, the clock, the network, and whether a person is
// watching.
//
// Data goes to Out, everything else to Err (OPS-4.1). Verbs take an Env instead of the os package, so that tests run them as
// functions and several run in one process.
package env

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/term"
)

// Env is the world of one invocation.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
	Terminal bool // Out is a terminal: colours, repainting
	Asks     bool // In is a terminal: questions may be asked

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // in place of the network; nil means TCP
}

// System is the Env of the process.
func System() Env {
	return Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), Asks: term.IsTerminal(int(os.Stdin.Fd())),
	}
}

// Colour says whether escape sequences are welcome.
func (e Env) Colour() bool { return e.Terminal && e.Getenv("NO_COLOR") == "" }

// Notef writes a line of progress or warning.
func (e Env) Notef(format string, args ...any) { _, _ = fmt.Fprintf(e.Err, format+"\n", args...) }

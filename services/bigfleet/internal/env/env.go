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
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"
)

// Env is the world of one invocation.
type Env struct {
	In       io.Reader
	Out, Err io.Writer // what others wrote is shown safely on both
	Raw      io.Writer // Out for escape sequences of our own; nil means Out
	Getenv   func(string) string
	Now      func() time.Time
	Terminal bool // Out is a terminal: colours, repainting
	Asks     bool // In is a terminal: questions may be asked
	Tells    bool // Err is a terminal

	Typing func() (restore func(), err error) // makes each key arrive at In at once and unseen; nil without a keyboard

	Program string                      // the name the program was called by, without its folder; "" means bigfleet
	Screen  func() (columns, lines int) // how large the terminal is now; nil or 0 means unknown

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // in place of the network; nil means TCP
}

// System is the Env of the process.
func System() Env {
	return Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), Asks: term.IsTerminal(int(os.Stdin.Fd())),
		Tells: term.IsTerminal(int(os.Stderr.Fd())),
		Typing: func() (func(), error) {
			in := int(os.Stdin.Fd())
			was, err := term.MakeRaw(in)
			return func() { _ = term.Restore(in, was) }, err
		},
		Program: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"),
		Screen: func() (int, int) {
			for _, f := range []*os.File{os.Stdout, os.Stderr} {
				if columns, lines, err := term.GetSize(int(f.Fd())); err == nil {
					return columns, lines
				}
			}
			return 0, 0
		},
	}
}

// Paint is where escape sequences of our own go.
func (e Env) Paint() io.Writer {
	if e.Raw == nil {
		return e.Out
	}
	return e.Raw
}

// Colour says whether escape sequences are welcome.
func (e Env) Colour() bool { return e.Terminal && e.Getenv("NO_COLOR") == "" }

// Size is how large the terminal is; 0 where nothing needs to fit.
func (e Env) Size() (columns, lines int) {
	if !e.Terminal || e.Screen == nil {
		return 0, 0
	}
	return e.Screen()
}

// Width is how wide the terminal is; 0 where nothing needs to fit.
func (e Env) Width() int {
	columns, _ := e.Size()
	return columns
}

// ErrWidth is how wide the terminal is that shows Err; 0 where it goes elsewhere.
func (e Env) ErrWidth() int {
	if !e.Tells || e.Screen == nil {
		return 0
	}
	columns, _ := e.Screen()
	return columns
}

// Notef writes a line of progress or warning.
func (e Env) Notef(format string, args ...any) { _, _ = fmt.Fprintf(e.Err, format+"\n", args...) }

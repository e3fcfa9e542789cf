package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// watchEvery is how often --watch asks again.
const watchEvery = time.Second

// Watchable adds --watch to a verb.
func (a *App) Watchable(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.Watch, "watch", "w", false, "repeat every second until Ctrl-C")
	return c
}

// Read runs a verb that only reads, again and again with --watch (OPS-4.3). show prints one answer to a.Out. Each round is
// gathered first, so that a screen never flickers; what equals the last round is not printed again where nothing repaints.
func (a *App) Read(ctx context.Context, show func(context.Context) error) error {
	if !a.Watch {
		return show(ctx)
	}
	var before picture
	for {
		now := a.picture(ctx, show)
		if err := a.repaint(now, before); err != nil {
			return err
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// picture is one round of --watch: what went to stdout, and what to stderr.
type picture struct{ data, notes string }

// picture gathers what a verb shows instead of printing it.
func (a *App) picture(ctx context.Context, show func(context.Context) error) picture {
	out, notes := a.Out, a.Err
	defer func() { a.Out, a.Err = out, notes }()
	var data, messages bytes.Buffer
	a.Out, a.Err = a.on(output.Safe(&data)), output.Safe(&messages)
	if err := show(ctx); err != nil && ctx.Err() == nil {
		a.Notef("%v", err)
	}
	return picture{data: data.String(), notes: messages.String()}
}

// on fits what people read to their terminal.
func (a *App) on(w io.Writer) io.Writer {
	if a.Terminal && a.Format == output.Table {
		return output.On(w, a.Width)
	}
	return w
}

// repaint shows one round of --watch.
func (a *App) repaint(now, before picture) error {
	if a.Terminal && a.Format.ForPeople() {
		_, err := fmt.Fprintf(a.Paint(), "\x1b[H\x1b[2J%s", a.fit(now.data)) // home and clear
		_, _ = fmt.Fprint(a.Err, now.notes)                                  // the clearing took them away
		return err
	}
	if now.notes != before.notes {
		_, _ = fmt.Fprint(a.Err, now.notes)
	}
	text := now.data
	if a.Format == output.JSONL {
		text = changed(now.data, before.data)
	} else if text == before.data {
		text = ""
	}
	_, err := fmt.Fprint(a.Out, text)
	return err
}

// fit cuts a picture to the terminal: a line that wraps, or a last line below the screen, would scroll the picture away.
func (a *App) fit(text string) string {
	width, height := a.Size()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if room := height - 2; room > 0 && len(lines) > room { // one line for a note, one for the cursor
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %d more lines; without --watch all are printed", left))
	}
	var screen strings.Builder
	for _, line := range lines {
		screen.WriteString(output.Cut(line, width) + "\n")
	}
	return screen.String()
}

// moments finds the parts of times below 10 ms: a shard computes the time of day again in each cycle, which differs by some ns.
var moments = regexp.MustCompile(`(UnixN(?:ano)?s":"\d+)\d{7}"`)

// changed are the lines that say something new: one object per change.
func changed(now, before string) string {
	of := func(line string) string { return moments.ReplaceAllString(line, `$1"`) }
	var known []string
	for line := range strings.Lines(before) {
		known = append(known, of(line))
	}
	slices.Sort(known)
	var out strings.Builder
	for line := range strings.Lines(now) {
		if _, was := slices.BinarySearch(known, of(line)); !was {
			out.WriteString(line)
		}
	}
	return out.String()
}

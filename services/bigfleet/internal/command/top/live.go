package top

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// liveRows bounds how many needs of a shard a live screen can scroll through, unless --rows says otherwise.
const liveRows = 1000

// askEvery is the time between two questions to the shards.
const askEvery = time.Second

// sight is what the shards said, one picture each; nil of one that did not answer.
type sight struct {
	labels   []string
	pictures []*picture
	failed   error
}

// live repaints until q or Ctrl-C. Keys work at once, however long the shards take to answer.
func live(ctx context.Context, a *app.App, rows int) error {
	restore, err := a.Typing()
	if err != nil { // no keys then, but the same picture
		a.Watch = true
		return a.Read(ctx, func(ctx context.Context) error { return run(ctx, a, rows) })
	}
	defer restore()
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	typed, answers := make(chan []string, 1), make(chan sight)
	go read(ctx, a.In, typed) // ends with the process: a read of a terminal cannot be stopped
	asking.Go(func() { ask(ctx, a, rows, answers) })

	_, _ = fmt.Fprint(a.Paint(), "\x1b[2J\x1b[?25l") // clear, hide the cursor
	defer func() { _, _ = fmt.Fprint(a.Paint(), "\x1b[?25h") }()
	var v view
	seen := sight{failed: fmt.Errorf("asking the shards")}
	for {
		columns, lines := a.Size()
		text, scroll := v.screen(a.Now(), seen, columns, lines)
		v.scroll = scroll
		if _, err := io.WriteString(a.Paint(), text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case seen = <-answers:
		case pressed, open := <-typed:
			if !open {
				typed = nil
			}
			for _, key := range pressed {
				if v.press(key, max(lines-headLines-1, 1)) {
					return nil
				}
			}
		}
	}
}

func read(ctx context.Context, in io.Reader, typed chan<- []string) {
	defer close(typed)
	buffer := make([]byte, 256)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			select {
			case typed <- keys(string(buffer[:n])):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func ask(ctx context.Context, a *app.App, rows int, answers chan<- sight) {
	for {
		seen := gather(ctx, a, rows)
		select {
		case answers <- seen:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return
		}
	}
}

// headLines are the lines of one shard above its needs.
const headLines = 3

// screen draws a picture that fills a terminal and never scrolls it, and says how far its rows are scrolled.
func (v view) screen(now time.Time, seen sight, columns, lines int) (string, int) {
	var data bytes.Buffer
	fit := output.On(output.Safe(&data), func() int { return columns })
	for i, p := range seen.pictures {
		if p != nil {
			_ = v.show(fit, now, seen.labels[i], *p) // a buffer takes everything
		}
	}
	head, body := []string(nil), strings.Split(strings.TrimSuffix(data.String(), "\n"), "\n")
	if len(seen.pictures) == 1 { // its head stays where it is
		n := min(headLen(body), len(body))
		head, body = body[:n], body[n:]
	}
	foot := []string{output.Cut(v.footer(), columns)}
	if seen.failed != nil {
		foot = append([]string{output.Cut(output.Text(seen.failed.Error()), columns)}, foot...)
	}
	room := max(lines-len(head)-len(foot), 1)
	if lines <= 0 {
		room = len(body)
	}
	v.scroll = min(v.scroll, max(len(body)-room, 0))
	body = body[v.scroll:min(v.scroll+room, len(body))]
	for len(head)+len(body)+len(foot) < lines {
		body = append(body[:len(body):len(body)], "")
	}
	var out strings.Builder
	out.WriteString("\x1b[H") // home; each line clears what it leaves of the old one
	for i, line := range append(append(append([]string(nil), head...), body...), foot...) {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(output.Cut(line, columns) + "\x1b[K")
	}
	return out.String() + "\x1b[J", v.scroll
}

// headLen counts the lines up to the heads of the columns: on a narrow terminal a summary takes several.
func headLen(lines []string) int {
	for i, line := range lines {
		if strings.HasPrefix(line, heads[0].Head+" ") {
			return i + 1
		}
	}
	return len(lines)
}

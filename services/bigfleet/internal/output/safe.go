package output

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Safe returns a writer that shows control characters and bidirectional overrides instead of sending them to a terminal: what
// another party put into a name, an error or a reason cannot move the cursor, change colours or reorder a line. It writes them as
// \u001b, which JSON reads as the character itself. Line ends and tabs pass.
func Safe(w io.Writer) io.Writer { return &safe{to: w} }

type safe struct {
	to   io.Writer
	rest []byte // the beginning of a rune whose end comes with the next write
}

func (s *safe) Write(p []byte) (int, error) {
	text := append(s.rest, p...)
	s.rest = nil
	var b strings.Builder
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			s.rest = append(s.rest, text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		if r == '\n' || r == '\t' {
			b.WriteRune(r)
			continue
		}
		show(&b, r)
	}
	if _, err := io.WriteString(s.to, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Text is a string of another party on one line: a line end in it cannot begin a row that looks like one of ours.
func Text(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		show(&b, r)
	}
	return b.String()
}

// Line formats one line. Strings and errors among the arguments are shown as Text.
func Line(format string, args ...any) string {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = Text(v)
		case error:
			args[i] = Text(v.Error())
		}
	}
	return fmt.Sprintf(format, args...)
}

func show(b *strings.Builder, r rune) {
	if hidden(r) {
		fmt.Fprintf(b, `\u%04x`, r)
		return
	}
	b.WriteRune(r)
}

// hidden are the characters that a terminal obeys instead of showing them.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

package output

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Screen is a writer that knows how wide it is: a table on it is cut instead of wrapped, and -o wide shows all of it.
type Screen interface{ Columns() int }

// On makes a Screen of a writer. A line that is too long continues in the next one, below where its text began.
func On(w io.Writer, columns func() int) io.Writer { return &screen{to: w, columns: columns} }

type screen struct {
	to      io.Writer
	columns func() int
}

func (s *screen) Columns() int { return s.columns() }

func (s *screen) Write(p []byte) (int, error) {
	width := s.columns()
	if width <= 0 {
		return s.to.Write(p)
	}
	var out strings.Builder
	for line := range strings.Lines(string(p)) {
		text, end := strings.CutSuffix(line, "\n")
		out.WriteString(strings.Join(Wrap(text, width, indent(text)), "\n"))
		if end {
			out.WriteString("\n")
		}
	}
	if _, err := io.WriteString(s.to, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// labelMax is how far right the text of a line may begin: `warning     the text`.
const labelMax = 16

// indent is what a continued line begins with: as much as goes before its text, or two columns more than it is indented itself.
func indent(line string) string {
	own := len(line) - len(strings.TrimLeft(line, " "))
	if gap := strings.Index(line[own:], "  "); gap > 0 && own+gap < labelMax {
		at := own + gap
		return strings.Repeat(" ", len(line)-len(strings.TrimLeft(line[at:], " ")))
	}
	return strings.Repeat(" ", own+2)
}

// Wrap breaks a line between words, and a command in backticks only where it is longer than a line itself. A word that is too long
// stays whole: the terminal breaks it, and copies it whole.
func Wrap(line string, columns int, indent string) (out []string) {
	if columns <= 0 || utf8.RuneCountInString(line) <= columns {
		return []string{line}
	}
	now, start := "", true
	for _, word := range words(line, columns-len(indent)) {
		if !start && utf8.RuneCountInString(strings.TrimRight(now+word, " ")) > columns {
			out, now = append(out, strings.TrimRight(now, " ")), indent
		}
		now += word
		start = start && strings.TrimSpace(now) == ""
	}
	return append(out, now)
}

// words are the pieces that stay whole, each with the space behind it.
func words(line string, longest int) (out []string) {
	quoted := ""
	for _, word := range strings.SplitAfter(line, " ") {
		quoted += word
		if strings.Count(quoted, "`")%2 == 0 {
			if utf8.RuneCountInString(strings.TrimRight(quoted, " ")) > longest {
				out = append(out, strings.SplitAfter(quoted, " ")...)
			} else {
				out = append(out, quoted)
			}
			quoted = ""
		}
	}
	if quoted != "" { // a backtick alone
		out = append(out, strings.SplitAfter(quoted, " ")...)
	}
	return out
}

// Cut shortens a line to a number of columns and leaves escape sequences whole: they take no column.
func Cut(line string, columns int) string {
	if columns <= 0 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	var b strings.Builder
	shown, escape, coloured := 0, false, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape, coloured = true, true
		case escape:
			escape = r != 'm'
			b.WriteRune(r)
			continue
		case shown == columns-1:
			b.WriteRune('…')
			if coloured {
				b.WriteString("\x1b[0m")
			}
			return b.String()
		default:
			shown++
		}
		b.WriteRune(r)
	}
	return b.String()
}

package build

import (
	"bytes"
	"sync"
)

// compilerLogLinesMax is how much of the compiler's output an error shows.
const compilerLogLinesMax = 20

// compilerLog counts and remembers what "go build -v" prints: a line per compiled package, or an error.
type compilerLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *compilerLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// packages counts the lines that name a package; downloads and errors have spaces.
func (l *compilerLog) packages() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range bytes.Lines(l.text.Bytes()) {
		if !bytes.ContainsAny(bytes.TrimSpace(line), " \t:") {
			n++
		}
	}
	return n
}

func (l *compilerLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(l.text.Bytes()), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-compilerLogLinesMax):], []byte("\n")))
}

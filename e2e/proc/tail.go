package proc

import (
	"bytes"
	"io"
	"os"
)

// tailBytes bounds what is read for a tail: enough for hundreds of long lines.
const tailBytes = 256 << 10

// Tail returns the last lines of the log, or why it cannot be read.
func (p *Process) Tail(lines int) string { return Tail(p.cfg.LogFile, lines) }

// Tail returns the last lines of a file, or why it cannot be read.
func Tail(file string, lines int) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	if _, err := f.Seek(max(0, size-tailBytes), io.SeekStart); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

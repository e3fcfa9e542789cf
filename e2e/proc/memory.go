package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNoMemoryFigure says that this system does not tell what a process uses.
var ErrNoMemoryFigure = errors.New("resident memory is known on Linux only")

// ResidentBytes returns the resident set size of the program itself, without its children.
func (p *Process) ResidentBytes() (int64, error) {
	if !p.Running() {
		return 0, p.wrap(ErrNotRunning)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, ErrNoMemoryFigure
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, ErrNoMemoryFigure
}

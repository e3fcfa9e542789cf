package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrNoMemoryFigure says that this system does not tell what a process uses.
var ErrNoMemoryFigure = errors.New("resident memory is known on Linux only")

// ResidentBytes returns the resident set size of the program itself, without its children.
func (p *Process) ResidentBytes() (int64, error) { return p.memory("VmRSS") }

// memory reads one figure of /proc.
func (p *Process) memory(figure string) (int64, error) {
	if !p.Running() {
		return 0, p.wrap(ErrNotRunning)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, ErrNoMemoryFigure
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, figure+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, ErrNoMemoryFigure
}

// ErrNoTimeFigure says that this system does not tell how long a process used a processor.
var ErrNoTimeFigure = errors.New("processor time is known on Linux only")

// ticks are the units of the times in /proc, which are 1/100 s for every program on every architecture of Linux.
const ticks = 10 * time.Millisecond

// CPUTime returns how long the program itself has used processors since it was started, without its children.
func (p *Process) CPUTime() (time.Duration, error) {
	if !p.Running() {
		return 0, p.wrap(ErrNotRunning)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, ErrNoTimeFigure
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // the name before may hold spaces
	if len(fields) < 13 {
		return 0, ErrNoTimeFigure
	}
	var user, system time.Duration
	if n, _ := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); n != 2 {
		return 0, ErrNoTimeFigure
	}
	return (user + system) * ticks, nil
}

// PeakResidentBytes returns the largest resident set size that the program itself had since it was started.
func (p *Process) PeakResidentBytes() (int64, error) { return p.memory("VmHWM") }

package measure

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// Machine is where a result was measured. Only the name is given by people (BIGFLEET_BENCH_MACHINE); host names are
// never recorded.
type Machine struct {
	Name   string `json:"name"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	L3MiB  int    `json:"l3_mib"`
	RAMGiB int    `json:"ram_gib"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// ThisMachine reads what Linux says. What it does not say stays empty.
func ThisMachine() Machine {
	m := Machine{Name: os.Getenv("BIGFLEET_BENCH_MACHINE"), Cores: runtime.NumCPU(), Go: strings.TrimPrefix(runtime.Version(), "go")}
	if m.Name == "" {
		m.Name = "local-" + strconv.Itoa(m.Cores) + "c"
	}
	m.CPU = field("/proc/cpuinfo", "model name", ":")
	if kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal", ":"), " kB")); err == nil {
		m.RAMGiB = kib >> 20
	}
	m.L3MiB = l3()
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(kernel))
	}
	return m
}

func l3() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/index3/size")
	if err != nil {
		return 0
	}
	kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"))
	if err != nil {
		return 0
	}
	return kib >> 10
}

// field returns the value of the first line of a file whose key is key.
func field(path, key, separator string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// state is what tells whether the machine itself disturbed a round.
type state struct {
	clock   time.Time // both clocks
	swapped int64     // pages
}

func machineState() state {
	return state{time.Now(), swappedPages()}
}

// clockStepMin is the difference between wall and monotonic clock that counts as a step; slewing stays far below it.
const clockStepMin = 50 * time.Millisecond

// faultSince names what was wrong with the machine, or returns "".
func (s state) faultSince() string {
	now := time.Now()
	if drift := (now.Round(0).Sub(s.clock.Round(0)) - now.Sub(s.clock)).Abs(); drift > clockStepMin {
		return "the clock stepped by " + drift.String()
	}
	if pages := swappedPages() - s.swapped; pages > 0 {
		return strconv.FormatInt(pages, 10) + " pages were swapped"
	}
	return ""
}

func swappedPages() int64 {
	var sum int64
	for _, key := range []string{"pswpin", "pswpout"} {
		if n, err := strconv.ParseInt(field("/proc/vmstat", key, " "), 10, 64); err == nil {
			sum += n
		}
	}
	return sum
}

// memory counts what was allocated.
type memory struct{ mallocs, bytes, collections uint64 }

func readMemory() memory {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return memory{s.Mallocs, s.TotalAlloc, uint64(s.NumGC)}
}

func (m memory) minus(o memory) memory {
	return memory{m.mallocs - o.mallocs, m.bytes - o.bytes, m.collections - o.collections}
}

func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// Live returns the bytes that what build makes keeps alive, after two collections on each side (B8). build returns the
// owner of the memory.
func Live(build func() any) int64 {
	settle := func() int64 {
		runtime.GC()
		runtime.GC()
		return heapBytes()
	}
	before := settle()
	owner := build()
	after := settle()
	runtime.KeepAlive(owner)
	return after - before
}

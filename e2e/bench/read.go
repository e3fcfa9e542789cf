package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// Read returns the newest line of each benchmark, size and GOMAXPROCS of all files in dir, in the order of the programme.
func Read(dir string) ([]measure.Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	newest := map[string]measure.Result{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r measure.Result
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			key := fmt.Sprintf("%s gomaxprocs %d", Name(r), r.GOMAXPROCS)
			if old, ok := newest[key]; !ok || !r.Time.Before(old.Time) {
				newest[key] = r
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	out := make([]measure.Result, 0, len(newest))
	for _, r := range newest {
		out = append(out, r)
	}
	slices.SortFunc(out, compare)
	return out, nil
}

// Name is the name of a result with its size: B1/churn=1%/clusters=5k/machines=500k/needs=50k.
func Name(r measure.Result) string {
	size := map[string]any{}
	for k, v := range r.Size {
		if f, ok := v.(float64); ok && f == float64(int(f)) {
			v = int(f)
		}
		size[k] = v
	}
	return measure.Name(r.Bench, size)
}

// compare orders by number of the benchmark, then by size, then by GOMAXPROCS, larger first.
func compare(a, b measure.Result) int {
	return cmp.Or(cmp.Compare(number(a.Bench), number(b.Bench)), strings.Compare(a.Bench, b.Bench), cmp.Compare(amount(b, "machines"), amount(a, "machines")),
		cmp.Compare(amount(b, "needs"), amount(a, "needs")), strings.Compare(Name(a), Name(b)), cmp.Compare(b.GOMAXPROCS, a.GOMAXPROCS))
}

func amount(r measure.Result, key string) float64 {
	v, _ := r.Size[key].(float64)
	return v
}

// number is the 6 of B6a.
func number(bench string) int {
	n, err := strconv.Atoi(strings.Trim(Family(bench), "Babcdefghijklmnopqrstuvwxyz"))
	if err != nil {
		return 1 << 20
	}
	return n
}

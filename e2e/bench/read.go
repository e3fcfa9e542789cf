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

// ReadAll returns every line of all files in dir, oldest first.
func ReadAll(dir string) ([]measure.Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var out []measure.Result
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
			out = append(out, r)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	slices.SortStableFunc(out, func(a, b measure.Result) int { return a.Time.Compare(b.Time) })
	return out, nil
}

// Read returns the newest line of each benchmark, size and GOMAXPROCS of all files in dir, in the order of the programme.
func Read(dir string) ([]measure.Result, error) {
	all, err := ReadAll(dir)
	return Newest(all), err
}

// Newest are the last lines of each benchmark, size and GOMAXPROCS, in the order of the programme.
func Newest(all []measure.Result) []measure.Result {
	last := map[string]measure.Result{}
	for _, r := range all {
		last[key(r)] = r
	}
	out := make([]measure.Result, 0, len(last))
	for _, r := range last {
		out = append(out, r)
	}
	slices.SortFunc(out, compare)
	return out
}

// key names a result with its GOMAXPROCS.
func key(r measure.Result) string { return fmt.Sprintf("%s gomaxprocs %d", Name(r), r.GOMAXPROCS) }

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
	switch v := r.Size[key].(type) {
	case float64:
		return v
	case int: // of a result that was not read from a file
		return float64(v)
	}
	return 0
}

// number is the 6 of B6a; what is not of the twelve comes last.
func number(bench string) int {
	n, err := strconv.Atoi(strings.Trim(Family(bench), "Babcdefghijklmnopqrstuvwxyz"))
	if err != nil {
		return 1 << 20
	}
	return n
}

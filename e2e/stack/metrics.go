package stack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric sums the samples of a metric on an ops port whose label set holds all of labels, for example `kind="provision"`.
// A metric without samples is 0.
func Metric(ctx context.Context, address, name string, labels ...string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of %s: %s", address, answer.Status)
	}
	return sum(answer.Body, name, labels)
}

func sum(r io.Reader, name string, labels []string) (float64, error) {
	total := 0.0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		set, value, ok := strings.Cut(rest, "} ")
		if !ok {
			set, value = "", strings.TrimSpace(rest)
		}
		if !hasAll(set, labels) {
			continue
		}
		v, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
		if err != nil {
			return 0, fmt.Errorf("sample %q: %w", line, err)
		}
		total += v
	}
	return total, lines.Err()
}

func hasAll(set string, labels []string) bool {
	for _, l := range labels {
		if !strings.Contains(set, l) {
			return false
		}
	}
	return true
}

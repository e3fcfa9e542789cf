package burst

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// used is what the processes that take part have used so far, and what was written at the API server.
type used struct {
	at     time.Time
	names  []string
	of     map[string]time.Duration // processor time by process
	writes map[string]int           // by verb, group and resource
}

func usage(t *testing.T, ctx context.Context, s *fixture.Fixture) used {
	t.Helper()
	u := used{at: time.Now(), of: map[string]time.Duration{}, writes: writes(t, ctx, s.Clusters[0])}
	take := func(name string, p *proc.Process) {
		d, err := p.CPUTime()
		if err != nil {
			t.Log(err)
		}
		u.names, u.of[name] = append(u.names, name), d
	}
	for _, c := range controlplane.Components() {
		take(string(c), s.Clusters[0].Component(c))
	}
	for _, p := range s.Processes() {
		take(p.Name(), p)
	}
	var own syscall.Rusage // of this process: the client that creates, and the watches
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Log(err)
	}
	u.names, u.of["this test"] = append(u.names, "this test"), time.Duration(own.Utime.Nano()+own.Stime.Nano())
	return u
}

// made are the writes since u.
func (u used) made(t *testing.T, ctx context.Context, s *fixture.Fixture) map[string]int {
	t.Helper()
	out := writes(t, ctx, s.Clusters[0])
	for k, n := range u.writes {
		out[k] -= n
	}
	return out
}

// explain logs what was used and written since u, most first.
func (u used) explain(t *testing.T, ctx context.Context, s *fixture.Fixture, what string) {
	t.Helper()
	now := usage(t, ctx, s)
	sum := time.Duration(0)
	var parts []string
	slices.SortFunc(now.names, func(a, b string) int { return cmp.Compare(now.of[b]-u.of[b], now.of[a]-u.of[a]) })
	for _, n := range now.names {
		sum += now.of[n] - u.of[n]
		parts = append(parts, fmt.Sprintf("%s %.2f", n, (now.of[n]-u.of[n]).Seconds()))
	}
	t.Logf("%s: %.2f s of processors within %.2f s: %s", what, sum.Seconds(), now.at.Sub(u.at).Seconds(), strings.Join(parts, ", "))
	var lines []string
	total := 0
	for k, n := range now.writes {
		if n -= u.writes[k]; n > 0 {
			total += n
			lines = append(lines, fmt.Sprintf("%6d %s", n, k))
		}
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	t.Logf("%s: %d writes at the API server:\n%s", what, total, strings.Join(lines, "\n"))
}

// writes counts the writes at the API server by verb, group and resource.
func writes(t *testing.T, ctx context.Context, c *fixture.Cluster) map[string]int {
	t.Helper()
	body, err := c.Client().Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		verb, what := label("verb"), label("resource")
		if g := label("group"); g != "" {
			what = g + "/" + what
		}
		if sub := label("subresource"); sub != "" {
			what += "/" + sub
		}
		n, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err == nil && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb) {
			out[verb+" "+what] += int(n)
		}
	}
	return out
}

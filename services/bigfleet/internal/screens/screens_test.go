package screens_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
)

var rewrite = flag.Bool("rewrite", false, "write the screens of testdata instead of comparing them")

// masks are what differs from run to run: how often the shard happened to plan, and the second in which it was asked.
var masks = []struct {
	of *regexp.Regexp
	is func(string) string
}{
	{regexp.MustCompile(`(?i:cycle) +\d+|epoch \d+`), letters},
	{regexp.MustCompile(`\b\d+ ?s (ago|old)`), func(s string) string { return "Ns" + s[strings.LastIndex(s, " "):] }},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), func(string) string { return "PAUSE-0123456789" }},
	{regexp.MustCompile(`\b\d+m\d\ds\b|\d\d:\d\d:\d\dZ`), func(s string) string { return digits.ReplaceAllString(s, "N") }},
	{regexp.MustCompile(`\b\d{1,2}s +`), func(s string) string { return "Ns" + strings.Repeat(" ", len(s)-2) }},
}

var digits = regexp.MustCompile(`\d`)

func letters(s string) string { return regexp.MustCompile(`\d+`).ReplaceAllString(s, "N") }

// OPS-4.1, OPS-4.2: the screens of a fleet with met, short and impossible demand, a pause and a drain. No line is wider than the
// terminal, nothing has a colour with NO_COLOR, and what is cut or wrapped is as it was reviewed.
func TestScreens(t *testing.T) {
	offerings := []provider.Offering{virtual.Slots("rack-1", "eu-1a", 4), virtual.Slots("rack-2", "eu-1b", 2)}
	virtual.Run(t, offerings, nil, func(v *virtual.Fleet) {
		scene(v)
		machine := v.Configured("blue", 4)[0]
		for _, columns := range []int{80, 200} {
			for _, s := range []struct{ name, command string }{
				{"status", "status"},
				{"needs", "get needs"},
				{"machines", "get machines --all"},
				{"clusters", "get clusters"},
				{"explain-short", "explain need/red/batch"},
				{"explain-impossible", "explain need/red/giant"},
				{"explain-met", "explain need/blue/web"},
				{"explain-machine", "explain machine/" + machine},
				{"explain-cluster", "explain cluster/red"},
				{"top-once", "top --once"},
				{"cost", "cost"},
			} {
				got := v.Screen(columns, 30, map[string]string{"NO_COLOR": "1"}, nil, strings.Fields(s.command)...)
				if strings.Contains(got, "\x1b") {
					t.Errorf("%s has escape sequences in spite of NO_COLOR", s.command)
				}
				compare(t, fmt.Sprintf("%s-%d.txt", s.name, columns), "$ bigfleet "+s.command+"\n"+got, columns)
			}
			for _, s := range []struct {
				name string
				keys []string
			}{
				{"top", []string{"q"}},
				{"top-sorted", []string{"s", "s", "r", "q"}},
				{"top-unmet", []string{"u", "q"}},
				{"top-filtered", []string{"/", "b", "l", "x", "\x7f", "\r", "q"}},
				{"top-filtering", []string{"/", "gia", "\x03"}},
				{"top-reset", []string{"S", "u", "\x1b", "q"}},
				{"top-scrolled", []string{"\x1b[B\x1b[B", "q"}},
			} {
				lines := 30
				if s.name == "top-scrolled" {
					lines = 8
				}
				sent := v.Screen(columns, lines, nil, s.keys, "top")
				if strings.Count(sent, "\n") >= lines*strings.Count(sent, "\x1b[H") {
					t.Errorf("%s scrolls the terminal", s.name)
				}
				compare(t, fmt.Sprintf("%s-%d.txt", s.name, columns), fmt.Sprintf("keys %q\n", s.keys)+last(sent), columns)
			}
		}
	})
}

// last is the last picture that was painted, without what moves the cursor.
func last(sent string) string {
	pictures := strings.Split(sent, "\x1b[H")
	plain := regexp.MustCompile("\x1b\\[[?0-9;]*[A-Za-z]").ReplaceAllString(pictures[len(pictures)-1], "")
	return strings.ReplaceAll(plain, "\r\n", "\n") + "\n"
}

// scene is red with demand that waits, blue with demand that is met, and somebody who stopped reclaims.
func scene(v *virtual.Fleet) {
	time.Sleep(time.Minute) // a shard's clock begins with it, and 0 is no time
	red, blue := v.Operator("red", nil), v.Operator("blue", nil)
	blue.Asks(virtual.Need("web", 4, 4, 1000))
	v.Configured("blue", 4)
	demand := []*pb.CapacityNeed{virtual.Need("db", 2, 4, 500, virtual.In(virtual.ZoneKey, "eu-1b")), virtual.Need("batch", 5, 4, -10), virtual.Need("giant", 1, 64, 0)}
	red.Asks(demand...)
	v.Configured("red", 2)
	v.Does("pause", "--kind", "reclaim", "--reason", "migration of the payments service", "--yes", "--for", "2h")
	joined(v, red, "red", 2)
	joined(v, blue, "blue", 4)
	red.Beats(func() { red.Asks(demand...) })
	blue.Beats(func() { blue.Asks(virtual.Need("web", 4, 4, 1000)) })
	time.Sleep(10 * time.Minute)
	v.Explains("red", "batch", pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS)
}

// joined reports the Nodes of a cluster as ready.
func joined(v *virtual.Fleet, o *virtual.Operator, cluster string, n int) {
	nodes := map[string]bool{}
	for _, name := range v.Configured(cluster, n) {
		nodes[name] = true
	}
	o.Reports(true, nodes)
}

func compare(t *testing.T, name, got string, columns int) {
	t.Helper()
	for i, line := range strings.Split(got, "\n")[1:] {
		if n := utf8.RuneCountInString(line); n > columns {
			t.Errorf("%s: line %d has %d columns: %s", name, i+1, n, line)
		}
	}
	for _, m := range masks {
		got = m.of.ReplaceAllStringFunc(got, m.is)
	}
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not what was reviewed (`go test ./internal/screens -rewrite` writes it):\n%s", name, d)
	}
}

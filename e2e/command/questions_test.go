package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// asked is an entry of docs/questions.md.
type asked struct {
	number, command string
	exit            int
	says            []string
}

// page reads docs/questions.md. The test of services/bigfleet that writes it runs the same commands on simulated clusters.
func page(t *testing.T) (out []asked) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/questions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(raw), "\n## ")[1:] {
		var a asked
		a.number, _, _ = strings.Cut(section, ".")
		for line := range strings.Lines(section) {
			text, code := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
			switch command, first := strings.CutPrefix(text, "$ bigfleet "); {
			case code && first:
				a.command = command
			case code:
				a.says = append(a.says, text)
			}
			if n, is := strings.CutPrefix(line, "Exit code "); is {
				if a.exit, err = strconv.Atoi(strings.TrimRight(n, ".\n")); err != nil {
					t.Fatal(err)
				}
			}
		}
		out = append(out, a)
	}
	if len(out) < 40 {
		t.Fatalf("docs/questions.md has %d questions", len(out))
	}
	return out
}

// prioritized gives Pods a priority, as a class of the cluster.
func prioritized(t *testing.T, cp *controlplane.ControlPlane, value int32) func(*corev1.PodSpec) {
	t.Helper()
	name := fmt.Sprintf("p%d", value)
	name = strings.ReplaceAll(name, "-", "minus-")
	if _, err := cp.Client().SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: v1.ObjectMeta{Name: name}, Value: value}, v1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func(s *corev1.PodSpec) { s.PriorityClassName = name }
}

func withGPU(s *corev1.PodSpec) {
	r := &s.Containers[0].Resources
	r.Requests[gpu] = resource.MustParse("1")
	r.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
}

// OPS-14.2, OPS-4.14, 4.18: the questions of docs/questions.md, asked of a fleet of real control planes with the same story.
func questions(t *testing.T, planes []*controlplane.ControlPlane) {
	b := build(t)
	red, blue, dir := planes[0], planes[1], t.TempDir()
	state := filepath.Join(dir, "data")
	w := b.up("--yes", "--install-crds", "--data-dir", state, "--kubeconfig", red.Kubeconfig(), "--kubeconfig", blue.Kubeconfig())
	w.start(t)
	run := func(command string) (int, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `bigfleet() { "$BIGFLEET" "$@"; }; bigfleet `+command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "BIGFLEET="+b.path, "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"), "KUBECONFIG="+red.Kubeconfig()+":"+blue.Kubeconfig())
		out, _ := cmd.CombinedOutput() // its code says the rest
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if got, out := run("config set questions --coordinator " + w.coordinator); got != 0 {
		t.Fatal(out)
	}
	names := map[string]string{"PROVIDER": w.provider, "DIR": filepath.Join(state, "shard")}
	find := func(token, command, pattern string) {
		t.Helper()
		until(t, token, func() (bool, string) {
			_, out := run(command)
			m := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(out)
			if m != nil {
				names[token] = m[1]
			}
			return m != nil, out
		})
	}
	deploy(t, red, "site", 2, "1", prioritized(t, red, 5))
	names["RUNNING"] = runs(t, red, "site", 2)
	deploy(t, red, "batch", 12, "1", prioritized(t, red, -10), withGPU)
	runs(t, red, "batch", 12)
	deploy(t, blue, "urgent", 2, "1", prioritized(t, blue, 1_000_000), withGPU)
	runs(t, blue, "urgent", 2)
	deploy(t, blue, "short", 1, "6", prioritized(t, blue, 7), on("m.8x", ""))
	runs(t, blue, "short", 1)
	scale(t, blue, "short", 0)
	deploy(t, red, "huge", 3, "500")
	find("MACHINE", "get machines --state configured --cluster blue --type g.8x", `^(demo-gpu-\S+) `)
	find("BATCH", "get needs --cluster red --unmet", `^red/(r1-\S+) +-10 `)
	find("HUGE", "get needs --cluster red --unmet", `^red/(r1-\S+) +0 `)
	find("URGENT", "get needs --cluster blue", `^blue/(r1-\S+) +1000000 `)
	find("GONE", "history cluster/blue", ` reclaim ended +(\S+) `)
	pods, err := red.Client().CoreV1().Pods("default").List(t.Context(), v1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "huge-") {
			names["WAITING"] = p.Name
		}
		if p.Name == names["RUNNING"] {
			names["NODE"] = p.Spec.NodeName
		}
	}
	for _, q := range page(t) {
		command := named(q.command, names)
		t.Run(q.number, func(t *testing.T) {
			got, out := run(command)
			ok := got == q.exit
			for _, s := range q.says {
				if !line(s, names).MatchString(out) {
					ok = false
					t.Errorf("the answer lacks the line\n  %s", s)
				}
			}
			if !ok {
				t.Errorf("$ bigfleet %s (exit code %d, want %d)\n%s", command, got, q.exit, out)
			}
		})
	}
	if err := w.Stop(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

var capitals = regexp.MustCompile(`\b[A-Z]+\b`)

func named(text string, names map[string]string) string {
	return capitals.ReplaceAllStringFunc(text, func(word string) string {
		if name, ok := names[word]; ok {
			return name
		}
		return word
	})
}

// line is a line of the page as a regular expression: words in capitals stand for names and figures, … for the rest.
func line(text string, names map[string]string) *regexp.Regexp {
	tokens := map[string]string{"TIME": `\S+Z`, "AGE": `\S+`, "PRICE": `\$[0-9.]+/h`, "N": `[0-9]+(?:\.[0-9]+)?`, "ROW": `r1-[0-9a-f]+`, "WORD": `\S+`}
	out := regexp.MustCompile(` {2,}`).ReplaceAllString(strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*"), " +")
	out = capitals.ReplaceAllStringFunc(out, func(word string) string {
		if name, ok := names[word]; ok && strings.HasPrefix(name, "r1-") { // tables show the beginning of a row's name, sentences all of it
			return regexp.QuoteMeta(name) + `[0-9a-f]*`
		} else if ok {
			return regexp.QuoteMeta(name)
		}
		if p, ok := tokens[word]; ok {
			return p
		}
		return word
	})
	return regexp.MustCompile("(?m)^" + out + "$")
}

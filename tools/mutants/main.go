// Command mutants changes the engine in one place at a time and counts how many of these mutants its tests kill. A mutant that lives is a change of
// decisions or sentences that no test notices, or one of speed alone. Mutants are overlays: the tree stays as it is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What becomes of a mutant.
const (
	byOwn   = "killed by its package"
	byShort = "killed by short tests"
	byAll   = "killed by all tests"
	lived   = "lived"
	broken  = "does not compile"
)

// slow tests take most of the time and look for what takes too long.
const slow = "^(TestLongHistoryEqualsFull|TestAMillionIdenticalNeeds|TestExtremesOfAmounts)$"

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 100, "how many mutants are judged, those in the file of results included")
	seed := flag.Uint64("seed", 1, "draws the mutants: the same ones of the same tree, in the same order")
	results := flag.String("results", "mutants.txt", "gets a line for each mutant; those that it has are not judged again, so use another for another tree")
	flag.Parse()
	if err := run("services/shard/internal/engine", *n, *seed, *results); err != nil {
		log.Fatal(err)
	}
}

func run(engine string, n int, seed uint64, results string) error {
	engine, err := filepath.Abs(engine)
	if err != nil {
		return err
	}
	drawn, err := draw(engine, n, seed)
	if err != nil {
		return err
	}
	// A mutant takes 25 MB of the compiler's cache, so it has one of its own. What a run that was stopped left goes with the next one.
	dir, err := filepath.Abs(results + ".work")
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	known, err := os.ReadFile(results)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	verdicts := parse(string(known))
	out, err := os.OpenFile(results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	// Tests that fail without a mutant would kill each.
	if v, err := judge(engine, dir, point{pkg: "planner", file: drawn[0].file}); err != nil || v != lived {
		return fmt.Errorf("the tests fail without a mutant: %s, %w", v, err)
	}
	for _, p := range drawn {
		if verdicts[p.name] != "" {
			continue
		}
		if verdicts[p.name], err = judge(engine, dir, p); err != nil {
			return err
		}
		fmt.Println(verdicts[p.name], p.name)
		if _, err := fmt.Fprintf(out, "%s\t%s\n", verdicts[p.name], p.name); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d\n\n%s", seed, table(drawn, verdicts))
	return nil
}

// packages of the engine that are changed: all that decide or explain.
var packages = []string{"cover", "explain", "ledger", "match", "planner"}

func draw(engine string, n int, seed uint64) ([]point, error) {
	var all []point
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(engine, pkg, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no engine in %s", engine)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			found, err := points(pkg, file, text)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	r := rand.New(rand.NewPCG(seed, 1))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))], nil
}

// judge runs what is quick first: tests of the mutant's package, then those of the planner, which uses all others.
func judge(engine, dir string, p point) (string, error) {
	overlay, err := write(dir, p)
	if err != nil {
		return "", err
	}
	if quiet(engine, dir, "go", "build", overlay, "./...") != nil {
		return broken, nil
	}
	steps := []struct{ pkg, short, verdict string }{{p.pkg, "true", byOwn}, {"planner", "true", byShort}, {"planner", "false", byAll}}
	if p.pkg == "planner" {
		steps = steps[1:]
	}
	for _, step := range steps {
		test := filepath.Join(dir, step.pkg+".test")
		if err := quiet(engine, dir, "go", "test", "-c", "-vet=off", overlay, "-o", test, "./"+step.pkg); err != nil {
			return "", fmt.Errorf("the tests of %s do not compile with %s: %w", step.pkg, p.name, err)
		}
		err := quiet(filepath.Join(engine, step.pkg), dir, test, "-test.failfast", "-test.timeout=120s", "-test.skip="+slow, "-test.short="+step.short)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return step.verdict, nil
		} else if err != nil {
			return "", err
		}
	}
	return lived, nil
}

// write makes the mutant and returns the flag with which the compiler reads it.
func write(dir string, p point) (string, error) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return "", err
	}
	mutant, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutant, slices.Concat(text[:p.from], []byte(p.text), text[p.to:]), 0o644); err != nil {
		return "", err
	}
	return "-overlay=" + overlay, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, p.file, mutant), 0o644)
}

// quiet runs a command on one processor and without its words.
func quiet(in, dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env = in, append(os.Environ(), "GOMAXPROCS=1", "GOFLAGS=-p=1", "TMPDIR="+dir, "GOCACHE="+filepath.Join(dir, "cache"))
	return c.Run()
}

// parse reads a file of results, and passes over a line that was not written to its end.
func parse(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if verdict, name, ok := strings.Cut(line, "\t"); ok && strings.HasSuffix(name, "\n") {
			out[strings.TrimSuffix(name, "\n")] = verdict
		}
	}
	return out
}

// table is Markdown. What does not compile is no mutant.
func table(drawn []point, verdicts map[string]string) string {
	count := map[[2]string]int{}
	for _, p := range drawn {
		for _, pkg := range []string{p.pkg, "all"} {
			count[[2]string{pkg, verdicts[p.name]}]++
		}
	}
	var b strings.Builder
	b.WriteString("| Package | Mutants | Live after short tests | Live after all |\n|---|---|---|---|\n")
	for _, pkg := range append(slices.Clone(packages), "all") {
		of := func(verdict string) int { return count[[2]string{pkg, verdict}] }
		short, all := of(byAll)+of(lived), of(lived)
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", pkg, of(byOwn)+of(byShort)+short, short, all)
	}
	return b.String()
}

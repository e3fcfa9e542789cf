package bench

import (
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const lines = `{"schema":1,"bench":"B1","size":{"machines":500000,"needs":50000,"churn":"1%"},"commit":"aaaaaaaaaaaa1111","time":"2027-01-15T10:00:00Z","seed":1,"gomaxprocs":2,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P-scan","ns":[100,100]},"subject":{"ns":[300,300]},"ratio":{"median":3,"low":2.9,"high":3.1,"rounds":10},"target":2,"met":false,"allocs_op":7,"bounds":[{"name":"time","unit":"ns","value":300,"limit":2000000,"met":true}],"oracle":{"name":"o","checks":24}}
{"schema":1,"bench":"B1","size":{"machines":500000,"needs":50000,"churn":"1%"},"commit":"bbbbbbbbbbbb2222","time":"2027-01-16T10:00:00Z","seed":1,"gomaxprocs":2,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P-scan","ns":[100,100]},"subject":{"ns":[150,150]},"ratio":{"median":1.5,"low":1.4,"high":1.6,"rounds":10},"target":2,"met":true,"allocs_op":9,"oracle":{"name":"o","checks":24}}
{"schema":1,"bench":"B1","size":{"machines":500000,"needs":50000,"churn":"1%"},"commit":"bbbbbbbbbbbb2222","time":"2027-01-16T10:00:00Z","seed":1,"gomaxprocs":1,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P-scan","ns":[100,100]},"subject":{"ns":[400,400]},"ratio":{"median":4,"low":3.9,"high":4.1,"rounds":10},"target":2,"met":false,"allocs_op":9,"oracle":{"name":"o","checks":24}}
{"schema":1,"bench":"B10","size":{"machines":500000},"commit":"bbbbbbbbbbbb2222","time":"2027-01-16T10:00:00Z","seed":1,"gomaxprocs":2,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P","ns":[1]},"subject":{"ns":[9]},"ratio":{"median":9,"low":9,"high":9,"rounds":10},"target":1.5,"met":false,"allocs_op":0,"bounds":[{"name":"longest step","unit":"ns","value":12000000,"limit":10000000,"met":false}],"oracle":{"name":"o","checks":1}}
`

func results(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "2027-01-16-x-m.jsonl"), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Honesty rule 12: the newest line of each benchmark stands in the table, and a target that is not met says so.
func TestTable(t *testing.T) {
	all, err := ReadAll(results(t))
	if err != nil {
		t.Fatal(err)
	}
	list := Newest(all)
	if len(list) != 3 || list[0].Bench != "B1" || list[1].GOMAXPROCS != 1 || list[2].Bench != "B10" {
		t.Fatalf("%d results", len(list))
	}
	text := Report(all)["benchmarks.md"]
	for _, want := range []string{
		"| B1/churn=1%/machines=500k/needs=50k | 150 ns | 400 ns | 100 ns (P-scan) | 1.5 (1.4 to 1.6) | 4 (3.9 to 4.1) | 2 | met with 2, **not met** with 1 | 9 | bbbbbbbb, 2027-01-16 |",
		"| 9 (9 to 9) |  | 1.5 | **not met** |",
		"| longest step | 12.00 ms |  | 10.00 ms | **not met** |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if again, _ := ReadAll(results(t)); !maps.Equal(Report(again), Report(all)) {
		t.Error("the same results gave other bytes")
	}
}

// docs/benchmarks.md and its pictures are what the recorded results say (section 9), and no picture is left over.
func TestReportIsCurrent(t *testing.T) {
	all, err := ReadAll("../../docs/benchmarks/results")
	if err != nil {
		t.Fatal(err)
	}
	report := Report(all)
	for path, want := range report {
		if got, err := os.ReadFile("../../docs/" + path); err != nil || string(got) != want {
			t.Errorf("docs/%s is not what the results say (%v): run make bench-report", path, err)
		}
	}
	pictures, err := filepath.Glob("../../docs/benchmarks/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		if _, known := report["benchmarks/"+filepath.Base(p)]; !known {
			t.Errorf("%s is in no report", p)
		}
	}
}

// The commands with which the report and CONTRIBUTING.md begin are targets that run the suite.
func TestCommandsOfTheReport(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for target, runs := range map[string]string{"bench": "benchrun", "bench-nightly": "benchrun -nightly", "bench-ci": "benchrun -ci", "bench-report": "benchreport"} {
		_, recipe, found := strings.Cut(string(makefile), "\n"+target+":")
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		if !found || !strings.Contains(recipe, "./bench/cmd/"+runs) {
			t.Errorf("make %s does not run %s", target, runs)
		}
		if text := head + string(guide); !strings.Contains(text, "make "+target) {
			t.Errorf("make %s is in no guide", target)
		}
	}
}

// Section 9: pictures are SVG without script, under 60 KB, with title and description, and name machine and date.
func TestPictures(t *testing.T) {
	all, err := ReadAll("../../docs/benchmarks/results")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range Report(all) {
		if !strings.HasSuffix(path, ".svg") {
			continue
		}
		var x struct {
			Title string `xml:"title"`
			Desc  string `xml:"desc"`
		}
		if err := xml.Unmarshal([]byte(text), &x); err != nil || x.Title == "" || x.Desc == "" {
			t.Errorf("%s: %v, title %q, description %q", path, err, x.Title, x.Desc)
		}
		if len(text) > 60<<10 || strings.Contains(text, "<script") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || !strings.Contains(text, "20") {
			t.Errorf("%s: %d bytes, or a script, or no number", path, len(text))
		}
	}
}

// Section 8: a file of results stays under 200 KB, and every line has the one schema, a machine and an oracle.
func TestResultsAreOfOneSchema(t *testing.T) {
	files, err := filepath.Glob("../../docs/benchmarks/results/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 200<<10 || filepath.Ext(f) != ".jsonl" {
			t.Errorf("%s: %v", f, err)
		}
	}
	all, err := ReadAll("../../docs/benchmarks/results")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Schema != 1 || Family(r.Bench) == "" || len(r.Commit) != 40 || r.Machine.Name == "" || r.Oracle.Name == "" || r.Oracle.Failed != 0 || r.Time.IsZero() {
			t.Errorf("%s of %s", r.Bench, r.Commit)
		}
	}
}

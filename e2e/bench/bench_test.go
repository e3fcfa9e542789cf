package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const lines = `{"schema":1,"bench":"B1","size":{"machines":500000,"needs":50000,"churn":"1%"},"commit":"aaaaaaaaaaaa1111","time":"2027-01-15T10:00:00Z","seed":1,"gomaxprocs":2,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P-scan","ns":[100,100]},"subject":{"ns":[300,300]},"ratio":{"median":3,"low":2.9,"high":3.1,"rounds":10},"target":2,"met":false,"allocs_op":7,"bounds":[{"name":"time","unit":"ns","value":300,"limit":2000000,"met":true}],"oracle":{"name":"o","checks":24}}
{"schema":1,"bench":"B1","size":{"machines":500000,"needs":50000,"churn":"1%"},"commit":"bbbbbbbbbbbb2222","time":"2027-01-16T10:00:00Z","seed":1,"gomaxprocs":2,"machine":{"name":"m","cpu":"C","cores":2},"floor":{"probe":"P-scan","ns":[100,100]},"subject":{"ns":[150,150]},"ratio":{"median":1.5,"low":1.4,"high":1.6,"rounds":10},"target":2,"met":true,"allocs_op":9,"oracle":{"name":"o","checks":24}}
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
	list, err := Read(results(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Bench != "B1" || list[1].Bench != "B10" {
		t.Fatalf("%d results", len(list))
	}
	text := Table(list)
	for _, want := range []string{
		"| B1/churn=1%/machines=500k/needs=50k | 2 | 150 ns | 100 ns (P-scan) | 1.50 (1.40 to 1.60) | 2 | met | 9 | bbbbbbbb, 2027-01-16 |",
		"| 9.00 (9.00 to 9.00) | 1.5 | **not met** |",
		"| longest step | 12.00 ms | 10.00 ms | **not met** |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if again, _ := Read(results(t)); Table(again) != text || Chart(again) != Chart(list) {
		t.Error("the same results gave other bytes")
	}
}

// docs/benchmarks.md is what the recorded results say (section 9).
func TestReportIsCurrent(t *testing.T) {
	list, err := Read("../../docs/benchmarks/results")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"../../docs/benchmarks.md": Table(list), "../../docs/benchmarks/ratios.svg": Chart(list)} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the results say (%v): run make bench-report", path, err)
		}
	}
}

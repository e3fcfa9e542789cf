package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// proof says which behaviours of the suite and which Go tests show each scenario of section 31. A Go test is written as its
// file from the root of the repository, a colon, and its name; its comment or body says "scenario N".
var proof = map[int][]string{
	1: {"life/create", "life/configure", "life/drain", "life/delete"}, 2: {"life/cycles"}, 3: {"life/rest"}, 4: {"args/wrong-state"},
	5: {"args/wrong-state-of-a-slot"}, 6: {"once/repeat-configure"}, 7: {"once/conflict"}, 8: {"once/new-cycle-new-id"},
	9: {"fence/unknown-machines", "fence/before-existence"}, 10: {"fence/stale-token"}, 11: {"fence/negative"}, 12: {"fence/extremes"},
	13: {"fence/out-of-order"}, 14: {"fence/shards-are-apart"}, 15: {"fence/refusal-moves-mark"}, 16: {"fence/unfenced"}, 17: {"fence/random"},
	18: {"race/zombie"}, 19: {"meta/echo", "meta/size", "last/rest"}, 20: {"args/too-large"}, 21: {"meta/clear"}, 22: {"meta/replace"},
	23: {"race/burst", "race/one-effect"}, 24: {"race/conflict"}, 25: {"args/delete-unsupported"}, 26: {"list/junk-cursors"},
	27: {"list/pages", "list/cut", "size/pages"}, 28: {"list/delta", "size/exact-deltas"}, 29: {"list/quiet"},
	30: {"size/churn", "e2e/bench/provider/mutate_test.go:BenchmarkAcksWhileListing"}, 31: {"last/store-loss"},
	32: {"sdk/provider/scenarios_test.go:TestOfferingReduced"}, 33: {"sdk/provider/scenarios_test.go:TestAShardWithoutExtensions"},
	34: {"fail/create-error", "fail/configure-error", "fail/drain-error", "fail/delete-error"},
	35: {"fail/late-success", "sdk/provider/run_loss_test.go:TestALateHostIsTornDown"}, 36: {"fail/drain-without-grace"}, 37: {"ready/never"},
	38: {"ready/gate", "e2e/kwokprovider/cluster_test.go:TestLostNodeAndAbsentAPIServer"},
	39: {"fail/stock-out", "services/providers/sim/sim_test.go:TestTheWorldChangesByRPC"}, 40: {"fail/partial"},
	41: {"last/cut-off-create", "last/cut-off-configure", "last/cut-off-drain", "last/cut-off-delete"}, 42: {"last/random-kills"},
	43: {"sdk/provider/scenarios_test.go:TestResume"}, 44: {"sdk/provider/scenarios_test.go:TestDiskFullHeals"},
	45: {"loss/everything-at-once", "sdk/provider/run_loss_test.go:TestLosses"}, 46: {"sdk/provider/run_loss_test.go:TestLosses"},
	47: {"sdk/provider/run_loss_test.go:TestLosses"}, 48: {"sdk/provider/run_loss_test.go:TestStoreLost"},
	49: {"sdk/provider/run_loss_test.go:TestAFailedDrainWaitsForAnOperator"}, 50: {"who/shard"}, 51: {"who/nobody"},
	52: {"sdk/identity/reload_test.go:TestReload"}, 53: {"sdk/provider/scenarios_test.go:TestThrottledSubstrate"},
	54: {"sdk/provider/scenarios_test.go:TestQueueFull"}, 55: {"sdk/provider/scenarios_test.go:TestStopWithRunningWork"},
	56: {"sdk/provider/scenarios_test.go:TestPrices"}, 57: {"sdk/provider/scenarios_test.go:TestPrices"},
	58: {"services/providers/sim/sim_test.go:TestOneSeedOneWorld"}, 59: {"services/providers/sim/sim_test.go:TestTheMarketIsHonest"},
	60: {"e2e/kwokprovider/cluster_test.go:TestOneMachineTwoClusters"}, 61: {"e2e/kwokprovider/cluster_test.go:TestDrainResetsAndEvictsNothing"},
	62: {"e2e/kwokprovider/killed_test.go:TestKilledBetweenNodeAndCommit"}, 63: {"sdk/provider/conformance/broken_test.go:TestWrongProvidersAreCaught"},
	64: {"sdk/provider/conformance/program_test.go:TestTooFewMachines"}, 65: {"sdk/provider/conformance/program_test.go:TestTheSDKConforms"},
	66: {"sdk/provider/template/template_test.go:TestTheTemplateIsCertified"},
}

// PROV-31: every scenario of the specification is shown by a behaviour that cites its clauses, or by a test that names it.
func TestEveryScenarioIsShown(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "docs/spec/provider.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## 31. Scenarios\n")
	section, _, _ = strings.Cut(section, "\n## ")
	known := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(section, -1) {
		n, _ := strconv.Atoi(m[1])
		known[n] = true
		if len(proof[n]) == 0 {
			t.Errorf("scenario %d is shown by nothing", n)
		}
	}
	if len(known) < 60 {
		t.Fatalf("%d scenarios found", len(known))
	}
	names := map[string]bool{}
	for _, b := range behaviours() {
		names[b.name] = true
	}
	for n, all := range proof {
		if !known[n] {
			t.Errorf("scenario %d is not in the specification", n)
		}
		for _, one := range all {
			file, test, isGo := strings.Cut(one, ":")
			if !isGo {
				if !names[one] {
					t.Errorf("scenario %d: there is no behaviour %s", n, one)
				}
				continue
			}
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Errorf("scenario %d: %v", n, err)
				continue
			}
			// The comment in front of the function names the scenario.
			at := regexp.MustCompile(`((?m:^//.*\n)+)func ` + test + `\(`).FindSubmatch(source)
			if at == nil || !regexp.MustCompile(`(?i)scenarios?[\s/]+(\d+[,\s/]+(and )?)*`+strconv.Itoa(n)+`\b`).Match(at[1]) {
				t.Errorf("scenario %d: the comment of %s in %s does not name it", n, test, file)
			}
		}
	}
}

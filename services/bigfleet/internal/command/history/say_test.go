package history

import (
	"os"
	"regexp"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ENG-19.9, SHARD-15.11: a person reads each cause and each outcome in words, in the columns of a table and in sentences.
func TestCodesHaveWords(t *testing.T) {
	for _, cause := range codes(t, "engine.md", "ENG-19.9") {
		r := &pb.DecisionRecord{Cause: cause, ClusterId: "red", RowId: "r1", PreemptorClusterId: "blue", PreemptorRowId: "r2"}
		if word := Cause(r); word == cause || len(word) > 26 || strings.ContainsAny(word, "._") {
			t.Errorf("the word of %s is %q", cause, word)
		}
		if said := Why(r); strings.Contains(said, cause) || !strings.HasSuffix(said, ".") {
			t.Errorf("the sentence of %s is %q", cause, said)
		}
	}
	for _, outcome := range codes(t, "shard.md", "SHARD-15.11") {
		r := &pb.DecisionRecord{Type: pb.RecordType_RECORD_TYPE_ENDED, Outcome: outcome}
		if strings.Contains(Outcome(r), "_") || strings.Contains(Sentence(r), "_") || strings.HasPrefix(Sentence(r), "Ended with") {
			t.Errorf("%s is worded as %q: %q", outcome, Outcome(r), Sentence(r))
		}
	}
	if newer := (&pb.DecisionRecord{Cause: "phase4.new"}); Cause(newer) != "phase4.new" {
		t.Errorf("the cause of a newer shard is lost: %q", Cause(newer))
	}
}

// codes are what a clause of a specification lists in backticks.
func codes(t *testing.T, file, clause string) (out []string) {
	raw, err := os.ReadFile("../../../../../docs/spec/" + file)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^- \*\*` + regexp.QuoteMeta(clause) + `\*\*.*$`).FindString(string(raw))
	for _, m := range regexp.MustCompile("`([a-z0-9_.]+)`").FindAllStringSubmatch(line, -1) {
		out = append(out, m[1])
	}
	if len(out) < 11 {
		t.Fatalf("%s lists %v", clause, out)
	}
	return out
}

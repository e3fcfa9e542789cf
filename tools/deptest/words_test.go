package deptest

import (
	"strings"
	"testing"
)

// One thing has one word: the words that were given up for it do not come back.
func TestWords(t *testing.T) {
	found, err := CheckWords(root, trackedFiles(t), Words)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

func TestWordCheckBites(t *testing.T) {
	words := []Word{{Not: "shelf", Use: "interner"}, {Not: "lane", Use: "queue", Below: "services/shard", Except: "services/shard/road"}}
	for text, want := range map[string]string{
		"var a, topShelf = 1, 2\n":     `services/shard/command.go:1: "topShelf": write interner`,
		"// one\n// A lane of it.\n":   `services/shard/command.go:2: "lane": write queue`,
		"planet, shelfish, lanes, Lan": "",
		"SHELF_LIFE\n":                 `services/shard/command.go:1: "SHELF": write interner`,
	} {
		if got := strings.Join(wordsIn("services/shard/command.go", text, words), "\n"); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
	if got := wordsIn("services/shard/road/lane.go", "lane\n", words); got != nil {
		t.Errorf("a word is forbidden where it stays: %q", got)
	}
	if got := wordsIn("services/operator/router.go", "lane\n", words); got != nil {
		t.Errorf("a word of the shard is forbidden elsewhere: %q", got)
	}
}

package subject_test

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// OPS-4.14: what tables print can be typed back; ids may hold slashes.
func TestParse(t *testing.T) {
	for text, want := range map[string]subject.Subject{
		"machine/m-1":                       {Kind: subject.Machine, Name: "m-1"},
		"machine/aws:///eu-1a/i-0abc":       {Kind: subject.Machine, Name: "aws:///eu-1a/i-0abc"},
		"need/red/f1-00,g1-11":              {Kind: subject.Need, Scope: "red", Name: "f1-00,g1-11"},
		"need/arn:aws:eks:1:cluster/red/r1": {Kind: subject.Need, Scope: "arn:aws:eks:1:cluster/red", Name: "r1"},
		"cluster/a/b":                       {Kind: subject.Cluster, Name: "a/b"},
		"pod/default/web-1":                 {Kind: subject.Pod, Scope: "default", Name: "web-1"},
	} {
		got, err := subject.Parse(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("Parse(%q) = %+v (%s), %v: want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{"", "machine", "machine/", "need/red", "need/red/", "dragon/x"} {
		if _, err := subject.Parse(text); exit.CodeOf(err) != exit.Usage {
			t.Errorf("Parse(%q): %v, want a usage error", text, err)
		}
	}
	if _, err := subject.Parse("cluster/x", subject.Machine); exit.CodeOf(err) != exit.Usage {
		t.Errorf("a kind that the verb does not take: %v, want a usage error", err)
	}
}

func TestNeedRef(t *testing.T) {
	s, err := subject.Parse("need/red/f1-00,g1-11")
	if err != nil {
		t.Fatal(err)
	}
	if r := s.NeedRef(); r.GetClusterId() != "red" || r.GetProfileFingerprint() != "f1-00" || r.GetGroup() != "g1-11" || r.GetRowId() != "" {
		t.Errorf("fingerprint form: %v", r)
	}
	s.Name = "abcd"
	if r := s.NeedRef(); r.GetRowId() != "abcd" || r.GetProfileFingerprint() != "" {
		t.Errorf("row form: %v", r)
	}
}

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

// OPS-4.14: people write KIND NAME and -n, as for kubectl.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pod", "web-1"}, "pod/team-a/web-1"}, {[]string{"pods/web-1"}, "pod/team-a/web-1"}, {[]string{"pod/other/web-1"}, "pod/other/web-1"},
		{[]string{"deploy", "web"}, "deployment/team-a/web"}, {[]string{"job/nightly"}, "job/team-a/nightly"}, {[]string{"node", "n-1"}, "node/n-1"},
		{[]string{"machine/a/b"}, "machine/a/b"}, {[]string{"need/red/r1"}, "need/red/r1"},
	} {
		got, err := subject.Of(c.args, "team-a")
		if err != nil || got.String() != c.want {
			t.Errorf("%q is %v, %v; want %s", c.args, got, err, c.want)
		}
	}
	for _, args := range [][]string{{"pod"}, {"web-1"}, {"pod/a", "b"}, {"secret", "x"}, {"pod", ""}} {
		if got, err := subject.Of(args, "team-a"); err == nil {
			t.Errorf("%q is read as %v", args, got)
		}
	}
}

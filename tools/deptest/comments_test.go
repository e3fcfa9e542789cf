package deptest

import (
	"strings"
	"testing"
)

// A doc comment begins with the name that it describes, also after a rename.
func TestDocCommentsNameWhatTheyDescribe(t *testing.T) {
	found, err := CheckDocComments(root, trackedFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

func TestDocCommentCheckBites(t *testing.T) {
	for text, want := range map[string]string{
		"// share gives.\n// More.\nfunc (s *sharing) run() {\n": `a.go:1: the comment of run begins with "share"`,
		"\n// bucket is one.\ntype tokenBucket struct {\n":       `a.go:2: the comment of tokenBucket begins with "bucket"`,
		"// run gives.\nfunc run() {\n":                          "",
		"// A stream knows no deadline.\nfunc SetDeadline() {\n": "",
		"// apart from it\n\nfunc run() {\n":                     "",
	} {
		if got := strings.Join(staleComments("a.go", text), "\n"); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}

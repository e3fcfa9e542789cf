package bootstrap

import (
	"strings"
	"testing"
	"text/template"
)

// OP-7.3: a field that no machine has is an error at the start, wherever dot is the machine; nothing that could be rendered is one.
func TestUnknownNames(t *testing.T) {
	for text, want := range map[string]string{
		stubTemplate: "", builtInTemplate: "",
		"{{ .MachineID }} {{ .Token }} {{ $.Labels.rack }} {{ .Labels.rack }}":                          "",
		"{{ range .Taints }}{{ .Key }}{{ $.ClusterID }}{{ end }}{{ with .Labels }}{{ .rack }}{{ end }}": "",
		`{{ define "x" }}{{ .Anything }}{{ end }}{{ template "x" .Labels }}`:                            "",
		"{{ $x := .Labels }}{{ $x.rack }}":                                                              "",
		"{{ .Lables }}":                                                                                 ".Lables does not exist; a machine has .APIServer, .CABundle",
		"{{ if .Lables }}{{ .Tokn }}{{ end }}":                                                          ".Lables, .Tokn does not exist",
		"{{ range .Taint }}{{ end }}":                                                                   ".Taint does not exist",
		"{{ range .Taints }}{{ $.Cluster }}{{ end }}":                                                   ".Cluster does not exist",
		"{{ with .Labels }}{{ else }}{{ .Nope }}{{ end }}":                                              ".Nope does not exist",
		"{{ join (.Nope) .MachineID | quote }}":                                                         ".Nope does not exist",
		`{{ template "x" .Nope }}{{ define "x" }}{{ end }}`:                                             ".Nope does not exist",
		"{{ .ctx }}": ".ctx does not exist",
	} {
		parsed, err := template.New("t").Funcs(functions()).Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = unknownNames(parsed.Tree)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

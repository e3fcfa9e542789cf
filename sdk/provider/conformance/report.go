package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Outcome is how a behaviour ended.
type Outcome string

// The outcomes.
const (
	Pass          Outcome = "pass"
	Fail          Outcome = "fail"
	CannotJudge   Outcome = "could not judge"
	NotApplicable Outcome = "not applicable"
)

// Result is one behaviour.
type Result struct {
	Name     string        `json:"name"`
	Says     string        `json:"says"`
	Clauses  []string      `json:"clauses"`
	Profile  Profile       `json:"profile"`
	Outcome  Outcome       `json:"outcome"`
	Reason   string        `json:"reason,omitempty"`
	Machines []string      `json:"machines,omitempty"`
	Evidence []string      `json:"evidence,omitempty"`
	Dialogue []string      `json:"dialogue,omitempty"` // calls and answers, where it did not pass
	Took     time.Duration `json:"took_ns"`
}

// Verdict is the answer to "does it conform".
type Verdict string

// The verdicts and their exit codes: 0, 1, 2.
const (
	Conformant    Verdict = "CONFORMANT"
	NotConformant Verdict = "NOT CONFORMANT"
	Incomplete    Verdict = "INCOMPLETE"
)

// Report is the certificate, or what is missing for one.
type Report struct {
	Verdict  Verdict   `json:"verdict"`
	Address  string    `json:"address"`
	Provider string    `json:"provider,omitempty"`
	Version  string    `json:"version,omitempty"`
	Suite    string    `json:"suite"`
	Profiles []Profile `json:"profiles"`
	// Only names what was asked for, when that was not the whole suite: such a run is not a certificate.
	Only     []string  `json:"only,omitempty"`
	Seed     uint64    `json:"seed"`
	Begun    time.Time `json:"begun"`
	Took     float64   `json:"took_seconds"`
	Machines int       `json:"machines"`
	// Slack is by how much the time ceilings were stretched, where they were.
	Slack float64 `json:"slack,omitempty"`
	// SoakPasses is how often the soak went through.
	SoakPasses int `json:"soak_passes,omitempty"`
	// Failed lists machines that the run left FAILED.
	Failed []string `json:"left_failed,omitempty"`
	// Left lists machines that the run made and could not give back: each may still have a running host.
	Left    []string `json:"left_running,omitempty"`
	Results []Result `json:"results"`
}

// Count counts the results with an outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for _, one := range r.Results {
		if one.Outcome == o {
			n++
		}
	}
	return n
}

// ExitCode is 0, 1 or 2 (PROV-29.11).
func (r *Report) ExitCode() int {
	switch r.Verdict {
	case Conformant:
		return 0
	case NotConformant:
		return 1
	}
	return 2
}

func (r *Report) conclude() {
	switch {
	case r.Count(Fail) > 0:
		r.Verdict = NotConformant
	case r.Count(CannotJudge) > 0 || r.Count(Pass) == 0:
		r.Verdict = Incomplete
	default:
		r.Verdict = Conformant
	}
}

// WriteText is the report for people.
func (r *Report) WriteText(w io.Writer) error {
	b := &strings.Builder{}
	for _, one := range r.Results {
		if one.Outcome != Fail && one.Outcome != CannotJudge {
			continue
		}
		fmt.Fprintf(b, "%s  %s  (%s)\n  required: %s\n  found: %s\n", strings.ToUpper(string(one.Outcome)), one.Name,
			strings.Join(one.Clauses, ", "), one.Says, one.Reason)
		for _, line := range one.Dialogue {
			fmt.Fprintf(b, "    %s\n", line)
		}
		again := "--only " + one.Name + " "
		if isAfterwards(one.Name) {
			again = "" // it judges what the others saw
		}
		fmt.Fprintf(b, "  repeat with: %s--seed %d\n\n", again, r.Seed)
	}
	fmt.Fprintf(b, "%s  %s %s at %s, profiles %v\n", r.Verdict, r.Provider, r.Version, r.Address, r.Profiles)
	fmt.Fprintf(b, "%d pass, %d fail, %d could not be judged, %d not applicable; %d machines, seed %d, %.1f s\n",
		r.Count(Pass), r.Count(Fail), r.Count(CannotJudge), r.Count(NotApplicable), r.Machines, r.Seed, r.Took)
	if len(r.Only) > 0 {
		fmt.Fprintf(b, "only %s ran, so this is not a certificate\n", strings.Join(r.Only, ", "))
	}
	if r.SoakPasses > 0 {
		fmt.Fprintf(b, "soak: %d passes\n", r.SoakPasses)
	}
	if r.Slack > 1 {
		fmt.Fprintf(b, "time limits were multiplied by %g, so this is not a certificate for profile scale\n", r.Slack)
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(b, "still FAILED; retire them at the provider: %s\n", strings.Join(r.Failed, ", "))
	}
	if len(r.Left) > 0 {
		fmt.Fprintf(b, "still have a host; return them at the provider: %s\n", strings.Join(r.Left, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON is the report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteBadge is a shields.io endpoint document.
func (r *Report) WriteBadge(w io.Writer) error {
	color := map[Verdict]string{Conformant: "brightgreen", NotConformant: "red", Incomplete: "orange"}[r.Verdict]
	message := strings.ToLower(string(r.Verdict))
	if len(r.Only) > 0 && r.Verdict == Conformant {
		message, color = "partly tested", "yellow"
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"schemaVersion": 1, "label": "bigfleet provider", "message": message, "color": color,
	})
}

// WriteJUnit is the report for CI servers. What could not be judged is an error, what is not applicable is skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	type message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testcase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    float64  `xml:"time,attr"`
		Failure *message `xml:"failure,omitempty"`
		Error   *message `xml:"error,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
	}
	type testsuite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   int        `xml:"errors,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     float64    `xml:"time,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	s := testsuite{
		Name: "bigfleet provider conformance", Tests: len(r.Results), Failures: r.Count(Fail), Errors: r.Count(CannotJudge),
		Skipped: r.Count(NotApplicable), Time: r.Took,
	}
	for _, one := range r.Results {
		area, name, _ := strings.Cut(one.Name, "/")
		c := testcase{Class: area, Name: name, Time: one.Took.Seconds()}
		m := &message{Message: clean(one.Reason), Text: clean(strings.Join(one.Dialogue, "\n"))}
		switch one.Outcome {
		case Fail:
			c.Failure = m
		case CannotJudge:
			c.Error = m
		case NotApplicable:
			c.Skipped = m
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// clean drops what XML cannot hold.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' {
			return ' '
		}
		return c
	}, s)
}

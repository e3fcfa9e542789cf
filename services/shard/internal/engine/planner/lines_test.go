package planner_test

import "strings"

// lines runs a script of several lines.
func (s *script) lines(text string) {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			s.do(l)
		}
	}
}

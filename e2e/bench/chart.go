package bench

import (
	"fmt"
	"html"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const (
	rowHeight = 22
	barLeft   = 430
	barUnit   = 90  // pixels per target
	barMax    = 360 // a longer bar is cut and says so
)

// Chart is the ratio of each result that has a target, as a part of that target, in SVG. Colours are those of the reader's
// text, so that it can be read on dark and on light.
func Chart(results []measure.Result) string {
	var rows []measure.Result
	for _, r := range results {
		if r.Target > 0 && r.Ratio.Rounds > 0 {
			rows = append(rows, r)
		}
	}
	height := 60 + rowHeight*len(rows)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 %d" role="img" font-family="sans-serif" font-size="12" fill="#777">`+"\n", height)
	b.WriteString("<title>Ratio over target of each benchmark</title>\n<desc>One bar per benchmark: ours over floor, divided by the target. A bar left of the line at 1 meets its target.</desc>\n")
	fmt.Fprintf(&b, `<text x="10" y="20" font-weight="bold">Ours over floor, as a part of the target (linear from 0; left of the line is met)</text>`+"\n")
	for i, r := range rows {
		y := 36 + i*rowHeight
		part := r.Ratio.Median / r.Target
		width, mark := part*barUnit, ""
		if width > barMax {
			width, mark = barMax, " (cut)"
		}
		colour := "#2a9d5c"
		if part > 1 {
			colour = "#d1603d"
		}
		fmt.Fprintf(&b, `<text x="10" y="%d">%s, %d CPU</text><rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/><text x="%.1f" y="%d">%.2f of %.3g%s</text>`+"\n",
			y+12, html.EscapeString(Name(r)), r.GOMAXPROCS, barLeft, y, width, colour, barLeft+width+6, y+12, r.Ratio.Median, r.Target, mark)
	}
	fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="28" y2="%d" stroke="#777" stroke-dasharray="3 3"/>`+"\n</svg>\n", barLeft+barUnit, barLeft+barUnit, height-20)
	return b.String()
}

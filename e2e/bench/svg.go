package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Colours that can be read on white and on black.
const (
	inkColour   = "#808890"
	twoColour   = "#3f8fd2"
	oneColour   = "#d9822b"
	floorColour = "#8a6fbf"
	missColour  = "#d1493d"
	metColour   = "#2f9e62"
)

// picture draws one SVG: no script, no style sheet, the same bytes for the same calls.
type picture struct {
	b strings.Builder
}

// draw begins a picture. title and desc are for screen readers, under is the line below the title.
func draw(width, height float64, title, desc, under string) *picture {
	p := &picture{}
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="%s">`+"\n",
		width, height, inkColour)
	fmt.Fprintf(&p.b, "<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(title), html.EscapeString(desc))
	fmt.Fprintf(&p.b, `<text x="12" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	p.text(12, 40, "start", under)
	return p
}

func (p *picture) done() string { return p.b.String() + "</svg>\n" }

// text anchors at start, middle or end.
func (p *picture) text(x, y float64, anchor, s string) { p.ink(x, y, anchor, inkColour, s) }

func (p *picture) ink(x, y float64, anchor, colour, s string) {
	fmt.Fprintf(&p.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, html.EscapeString(s))
}

func (p *picture) line(x1, y1, x2, y2 float64, colour string, width float64, dash string) {
	fmt.Fprintf(&p.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"%s/>`+"\n", x1, y1, x2, y2, colour, width, dashed(dash))
}

func dashed(dash string) string {
	if dash == "" {
		return ""
	}
	return ` stroke-dasharray="` + dash + `"`
}

func (p *picture) rect(x, y, width, height float64, colour string) {
	fmt.Fprintf(&p.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, colour)
}

func (p *picture) dot(x, y float64, colour string) {
	fmt.Fprintf(&p.b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, colour)
}

// path joins points given as x, y, x, y.
func (p *picture) path(points []float64, colour, dash string) {
	var at strings.Builder
	for i := 0; i+1 < len(points); i += 2 {
		fmt.Fprintf(&at, "%.1f,%.1f ", points[i], points[i+1])
	}
	fmt.Fprintf(&p.b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", strings.TrimSpace(at.String()), colour, dashed(dash))
}

// scale maps values to pixels, by their logarithm unless linear.
type scale struct {
	low, high float64 // values
	from, to  float64 // pixels
	linear    bool
}

// decades is a logarithmic scale of whole powers of ten around the values.
func decades(values []float64, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 && !math.IsNaN(v) {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	s := scale{low: math.Pow(10, math.Floor(math.Log10(low))), high: math.Pow(10, math.Ceil(math.Log10(high))), from: from, to: to}
	if s.low == s.high {
		s.high *= 10
	}
	return s
}

func (s scale) at(v float64) float64 {
	if s.linear {
		return s.from + (s.to-s.from)*(v-s.low)/(s.high-s.low)
	}
	return s.from + (s.to-s.from)*math.Log(max(v, s.low)/s.low)/math.Log(s.high/s.low) // a wait of nothing stands at the edge
}

// ticks are the powers of ten of a logarithmic scale, or about five round values of a linear one.
func (s scale) ticks() (out []float64) {
	if s.linear {
		step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/2)))
		for (s.high-s.low)/step > 8 {
			step *= 2.5
		}
		for v := s.low; v <= s.high*1.0001; v += step {
			out = append(out, v)
		}
		return out
	}
	for v := s.low; v <= s.high*1.0001; v *= 10 {
		out = append(out, v)
	}
	return out
}

// frame draws axes with grid lines and labels.
func (p *picture) frame(x, y scale, labelX, labelY func(float64) string) {
	for _, v := range y.ticks() {
		p.line(x.from, y.at(v), x.to, y.at(v), inkColour, 0.3, "")
		p.text(x.from-6, y.at(v)+4, "end", labelY(v))
	}
	if labelX != nil {
		for _, v := range x.ticks() {
			p.line(x.at(v), y.from, x.at(v), y.to, inkColour, 0.3, "")
			p.text(x.at(v), y.from+16, "middle", labelX(v))
		}
	}
	p.line(x.from, y.from, x.to, y.from, inkColour, 1, "")
	p.line(x.from, y.from, x.from, y.to, inkColour, 1, "")
}

// round writes a time or a number as short as it can.
func round(ns float64) string {
	switch {
	case ns >= 1e9:
		return fmt.Sprintf("%g s", ns/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%g ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%g us", ns/1e3)
	}
	return fmt.Sprintf("%g ns", ns)
}

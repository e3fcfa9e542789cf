package console

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const colours = 64 // of a picture: a page of text has few, and each more costs bytes

// shrink rewrites the pictures of PICTURES with a palette, a third of the size, for docs/console.
func shrink(t *testing.T) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		full, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if _, done := full.(*image.Paletted); done {
			continue
		}
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted(full)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// weight of a colour that a picture has so often. What means something is coloured, and often small: greys of letters' edges must not crowd it out.
func weight(c color.RGBA, often int) int {
	return often * (1 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B)))
}

// paletted draws an image in its own colours of most weight.
func paletted(full image.Image) *image.Paletted {
	seen, b := map[color.RGBA]int{}, full.Bounds()
	at := func(x, y int) color.RGBA {
		r, g, bl, _ := full.At(x, y).RGBA()
		return color.RGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(bl >> 8), A: 255} //nolint:gosec // the upper eight of sixteen bits
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			seen[at(x, y)]++
		}
	}
	all := make([]color.RGBA, 0, len(seen))
	for c := range seen {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return weight(b, seen[b]) - weight(a, seen[a]) })
	var palette color.Palette
	for _, c := range all[:min(len(all), colours)] {
		palette = append(palette, c)
	}
	out, nearest := image.NewPaletted(b, palette), map[color.RGBA]uint8{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(palette.Index(c)) //nolint:gosec // below colours
				nearest[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return out
}

package output

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// writeTable aligns columns two spaces apart. The last cell of a row is not padded.
func writeTable(w io.Writer, l List, wide bool) error {
	if len(l.Columns) == 0 { // data only
		return nil
	}
	head := make([]string, len(l.Columns))
	var show []int
	for i, c := range l.Columns {
		head[i] = c.Head
		if wide || !c.Wide {
			show = append(show, i)
		}
	}
	all, width := [][]string{head}, make([]int, len(l.Columns))
	for _, cells := range l.Rows {
		row := make([]string, len(cells))
		for i, cell := range cells {
			row[i] = Text(cell)
		}
		all = append(all, row)
	}
	for _, row := range all {
		for i := range row {
			if len(row) == len(head) {
				width[i] = max(width[i], utf8.RuneCountInString(row[i]))
			}
		}
	}
	screen := 0
	if s, ok := w.(Screen); ok && !wide {
		screen = s.Columns()
		show = narrowed(show, l.Columns, width, screen)
	}
	for _, row := range all {
		text := row[0]
		if len(row) == len(head) {
			text = aligned(row, show, width)
		}
		if _, err := io.WriteString(w, Cut(text, screen)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func aligned(row []string, show, width []int) string {
	var line strings.Builder
	for n, i := range show {
		line.WriteString(row[i])
		if n < len(show)-1 {
			line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(row[i])+2))
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// lastMin is what the last column of a table keeps, which is its longest text.
const lastMin = 30

// narrowed leaves out spare columns, the last first, while the others leave no room for the last column.
func narrowed(show []int, columns []Column, width []int, screen int) []int {
	for screen > 0 {
		sum, spare := 0, -1
		for n, i := range show {
			if n == len(show)-1 {
				sum += min(width[i], lastMin)
			} else {
				sum += width[i] + 2
			}
			if columns[i].Spare {
				spare = n
			}
		}
		if sum <= screen || spare < 0 {
			break
		}
		show = slices.Delete(slices.Clone(show), spare, spare+1)
	}
	return show
}

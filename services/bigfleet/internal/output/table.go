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
	var below []int
	if s, ok := w.(Screen); ok && !wide {
		screen = s.Columns()
		show, below = folded(show, l.Columns, width, screen)
	}
	for n, row := range all {
		text := row[0]
		if len(row) == len(head) {
			text = aligned(row, show, width)
		}
		switch last := show[len(show)-1]; {
		case len(row) == len(head) && l.Columns[last].Fold: // a sentence continues below its own beginning
			text = strings.Join(Wrap(text, screen, strings.Repeat(" ", starts(show, width))), "\n") + "\n"
		default:
			text = Cut(text, screen) + "\n"
		}
		if n > 0 && len(row) == len(head) {
			text += under(row, head, below)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// folded says which columns a screen has room for beside each other, and which go below their row.
func folded(show []int, columns []Column, width []int, screen int) (beside, below []int) {
	beside = narrowed(show, columns, width, screen)
	if screen <= 0 || needs(beside, width) <= screen {
		return beside, nil
	}
	var rest []int
	for _, i := range show {
		if columns[i].Fold {
			below = append(below, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(below) == 0 {
		return beside, nil
	}
	return narrowed(rest, columns, width, screen), below
}

// under is what goes below a row: each folded cell on a line of its own, named where there are several. The screen wraps it.
func under(row, head []string, below []int) string {
	var out strings.Builder
	for _, i := range below {
		if row[i] == "" || row[i] == Never {
			continue
		}
		out.WriteString("  ")
		if len(below) > 1 {
			out.WriteString(strings.ToLower(head[i]) + ": ")
		}
		out.WriteString(row[i] + "\n")
	}
	return out.String()
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
	for screen > 0 && needs(show, width) > screen {
		spare := -1
		for n, i := range show {
			if columns[i].Spare {
				spare = n
			}
		}
		if spare < 0 {
			break
		}
		show = slices.Delete(slices.Clone(show), spare, spare+1)
	}
	return show
}

// starts is where the last column begins.
func starts(show, width []int) (sum int) {
	for _, i := range show[:len(show)-1] {
		sum += width[i] + 2
	}
	return sum
}

// needs is the room that columns take beside each other, of the last one what it keeps.
func needs(show, width []int) (sum int) {
	for n, i := range show {
		if n == len(show)-1 {
			sum += min(width[i], lastMin)
		} else {
			sum += width[i] + 2
		}
	}
	return sum
}

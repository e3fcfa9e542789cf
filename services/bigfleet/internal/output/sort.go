package output

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Sort orders a list by a column, by its head in any case; a leading "-" turns the order round. Numbers, prices and ages go by value, and
// what has not happened goes last. Names and messages go along.
func (l *List) Sort(by string) error {
	name, down := strings.CutPrefix(by, "-")
	at := slices.IndexFunc(l.Columns, func(c Column) bool {
		return strings.EqualFold(strings.ReplaceAll(c.Head, " ", "-"), strings.ReplaceAll(name, " ", "-"))
	})
	if at < 0 {
		return fmt.Errorf("there is no column %q: use one of %s", name, strings.Join(l.SortNames(), ", "))
	}
	order := make([]int, len(l.Rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := l.Rows[a][at], l.Rows[b][at]
		if (x == Never) != (y == Never) {
			return cmp.Compare(boolean(x == Never), boolean(y == Never))
		}
		c := compareCells(x, y)
		if down {
			c = -c
		}
		return c
	})
	rows, names, items, shards, also := l.Rows, l.Names, l.Items, l.Shards, l.Also
	l.Rows = make([][]string, len(rows))
	l.Names, l.Items, l.Shards = slices.Clone(names), slices.Clone(items), slices.Clone(shards)
	l.Also = slices.Clone(also)
	for to, from := range order {
		l.Rows[to] = rows[from]
		if len(names) == len(rows) {
			l.Names[to] = names[from]
		}
		if len(items) == len(rows) {
			l.Items[to] = items[from]
		}
		if len(shards) == len(rows) {
			l.Shards[to] = shards[from]
		}
		if len(also) == len(rows) {
			l.Also[to] = also[from]
		}
	}
	return nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compareCells(a, b string) int {
	x, xok := number(a)
	y, yok := number(b)
	if xok && yok {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// span is what Span and Age write.
var span = regexp.MustCompile(`^` + AtLeast + `?(?:(\d+)d(\d+)h|(\d+)h(\d+)m|(\d+)m(\d+)s|(\d+)s)$`)

// seconds reads it.
func seconds(cell string) (sum float64, ok bool) {
	m := span.FindStringSubmatch(cell)
	if m == nil {
		return 0, false
	}
	for i, unit := range []float64{86400, 3600, 3600, 60, 60, 1, 1} {
		n, _ := strconv.ParseFloat(m[i+1], 64) // "" is 0
		sum += n * unit
	}
	return sum, true
}

// number reads 12, $0.38/h, 87% and 2m03s.
func number(cell string) (float64, bool) {
	if sum, ok := seconds(cell); ok {
		return sum, true
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(cell, "$"), "/h"), "%"), 64)
	return v, err == nil
}

// SortNames are the columns as Sort takes them.
func (l *List) SortNames() []string {
	var out []string
	for _, c := range l.Columns {
		out = append(out, strings.ToLower(strings.ReplaceAll(c.Head, " ", "-")))
	}
	return out
}

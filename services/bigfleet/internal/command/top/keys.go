package top

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Keys that are more than a character.
const (
	keyUp, keyDown, keyPageUp, keyPageDown = "up", "down", "page up", "page down"
	keyEnter, keyEscape, keyBack, keyCtrlC = "enter", "escape", "backspace", "ctrl-c"
	keyHome, keyEnd                        = "home", "end"
	filterMax                              = 64 // characters
)

var sequences = map[string]string{
	"\x1b[A": keyUp, "\x1b[B": keyDown, "\x1bOA": keyUp, "\x1bOB": keyDown, "\x1b[5~": keyPageUp, "\x1b[6~": keyPageDown,
	"\x1b[H": keyHome, "\x1b[F": keyEnd, "\x1bOH": keyHome, "\x1bOF": keyEnd,
	"\r": keyEnter, "\n": keyEnter, "\x7f": keyBack, "\b": keyBack, "\x03": keyCtrlC, "\x04": keyCtrlC,
}

// keys reads what a terminal sent at once. Sequences that mean nothing here are left out.
func keys(sent string) (out []string) {
	for sent != "" {
		n := length(sent)
		switch key, known := sequences[sent[:n]]; {
		case known:
			out = append(out, key)
		case sent[:n] == "\x1b":
			out = append(out, keyEscape)
		case sent[0] != '\x1b':
			out = append(out, sent[:n])
		}
		sent = sent[n:]
	}
	return out
}

// length is how many bytes the first key has: an escape sequence ends with a letter or ~.
func length(sent string) int {
	if sent[0] != '\x1b' {
		_, n := utf8.DecodeRuneInString(sent)
		return n
	}
	if len(sent) < 3 || sent[1] != '[' && sent[1] != 'O' {
		return 1
	}
	for i := 2; i < len(sent); i++ {
		if sent[i] >= '@' && sent[i] <= '~' {
			return i + 1
		}
	}
	return len(sent)
}

// press changes the view as a key says. room is how many rows the screen has; quit ends the command.
func (v *view) press(key string, room int) (quit bool) {
	if key == keyCtrlC {
		return true
	}
	if v.typing {
		v.typed(key)
		return false
	}
	switch key {
	case "q":
		return true
	case "s":
		v.sort, v.reverse, v.scroll = (v.sort+1)%(len(heads)+1), false, 0
	case "S":
		v.sort, v.reverse, v.scroll = (v.sort+len(heads))%(len(heads)+1), false, 0
	case "r":
		v.reverse, v.scroll = !v.reverse, 0
	case "u":
		v.unmet, v.scroll = !v.unmet, 0
	case "/":
		v.typing, v.filter, v.scroll = true, "", 0
	case keyEscape:
		v.filter, v.unmet, v.sort, v.reverse, v.scroll = "", false, 0, false, 0
	case keyUp, "k":
		v.scroll--
	case keyDown, "j":
		v.scroll++
	case keyPageUp:
		v.scroll -= room
	case keyPageDown, " ":
		v.scroll += room
	case keyHome, "g":
		v.scroll = 0
	case keyEnd, "G":
		v.scroll = 1 << 30 // the screen stops at the last row
	}
	v.scroll = max(v.scroll, 0)
	return false
}

// typed changes the filter.
func (v *view) typed(key string) {
	switch r, n := utf8.DecodeRuneInString(key); {
	case key == keyEnter:
		v.typing = false
	case key == keyEscape:
		v.typing, v.filter = false, ""
	case key == keyBack:
		_, last := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-last]
	case n == len(key) && unicode.IsPrint(r) && utf8.RuneCountInString(v.filter) < filterMax:
		v.filter += key
	}
}

// footer says what the keys do, and what is chosen.
func (v view) footer() string {
	if v.typing {
		return "filter: " + v.filter + "_   (Enter keeps it, Esc clears it)"
	}
	by := "precedence"
	if v.sort > 0 {
		by = strings.ToLower(heads[v.sort-1].Head)
	}
	if v.reverse {
		by += ", reversed"
	}
	parts := []string{"q quit", "s sort (" + by + ")", "r reverse"}
	if v.filter != "" {
		parts = append(parts, "/ filter ("+v.filter+")")
	} else {
		parts = append(parts, "/ filter")
	}
	if v.unmet {
		parts = append(parts, "u all needs")
	} else {
		parts = append(parts, "u unmet")
	}
	return strings.Join(append(parts, "↑↓ scroll", "Esc reset"), "  ")
}

package fleet

import "strings"

// validID reports whether s has the id syntax of shards, nodes and moves (WIRE-2.7).
func validID(s string) bool {
	if len(s) < 1 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("._-", s[i]) < 0 {
			return false
		}
	}
	return true
}

// ValidCluster reports whether s has the id syntax of clusters (WIRE-2.7).
func ValidCluster(s string) bool {
	if len(s) < 1 || len(s) > 253 || !alphanumeric(s[0]) {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("._:/@-", s[i]) < 0 {
			return false
		}
	}
	return true
}

// validProvider reports whether s can name a provider. Reported addresses serve as names, and a shard with several
// providers reports them as one string, so the syntax is wide: printable, without the separator of keys.
func validProvider(s string) bool {
	return len(s) >= 1 && len(s) <= 4096 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// validLabelKey and validLabelValue are the label syntax of domains (COORD-1.9).
func validLabelKey(s string) bool {
	name := s
	if prefix, rest, ok := strings.Cut(s, "/"); ok {
		name = rest
		if len(prefix) < 1 || len(prefix) > 253 || !edges(prefix, lowerAlphanumeric) ||
			!each(prefix, func(c byte) bool { return lowerAlphanumeric(c) || c == '-' || c == '.' }) {
			return false
		}
	}
	return validLabelValue(name)
}

func validLabelValue(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && edges(s, alphanumeric) &&
		each(s, func(c byte) bool { return alphanumeric(c) || strings.IndexByte("._-", c) >= 0 })
}

func edges(s string, ok func(byte) bool) bool { return ok(s[0]) && ok(s[len(s)-1]) }

func each(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func lowerAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
func alphanumeric(c byte) bool      { return lowerAlphanumeric(c) || c >= 'A' && c <= 'Z' }

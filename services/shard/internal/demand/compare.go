package demand

import "strconv"

// Compares reports whether a label's value answers Gt or Lt, as kube-scheduler reads them: both sides are integers, or nothing matches.
func (r *Requirement) Compares(value string) bool {
	if len(r.Values) != 1 {
		return false
	}
	have, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	want, err := strconv.ParseInt(r.Values[0], 10, 64)
	if err != nil {
		return false
	}
	if r.Op == Gt {
		return have > want
	}
	return have < want
}

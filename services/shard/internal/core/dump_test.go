package core

import "github.com/google/go-cmp/cmp"

// diff says where two states differ.
func diff(a, b *Core) string {
	return cmp.Diff(a.capture(), b.capture(), cmp.AllowUnexported(Snapshot{}, savedCycle{}, savedProvider{}))
}

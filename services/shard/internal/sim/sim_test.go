package sim

import "testing"

func BenchmarkSeeds(b *testing.B) {
	for i := range b.N {
		r, err := Run(Options{Seed: uint64(i + 1)})
		if err != nil {
			b.Fatal(err)
		}
		if r.Failure != nil {
			b.Log(r.Failure)
		}
	}
}

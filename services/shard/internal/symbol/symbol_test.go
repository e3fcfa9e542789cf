package symbol

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ENG-21.11: a table knows exactly the strings that have users, each under one number, whatever came and went; and so do a
// clone and a frozen copy, which stay as they were when the original continues.
func TestSpaceAgainstCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSpace()
		users, ids := map[[2]string]int{}, map[[2]string]ID{}
		step := func() {
			p := [2]string{rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "first"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "second")}
			if users[p] > 0 && rapid.Bool().Draw(t, "release") {
				users[p]--
				if gone := s.Keys.Release(ids[p]); p != [2]string{} && gone != (users[p] == 0) {
					t.Fatalf("released %v: gone %v with %d users left", p, gone, users[p])
				}
				return
			}
			id := s.Keys.Intern(p[0], p[1])
			if users[p] > 0 && id != ids[p] {
				t.Fatalf("%v is %d and %d", p, ids[p], id)
			}
			users[p]++
			ids[p] = id
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			step()
		}
		was := map[[2]string]int{}
		for p, n := range users {
			was[p] = n
		}
		at := map[[2]string]ID{}
		for p, id := range ids {
			at[p] = id
		}
		clone, frozen := s.Clone(), s.Freeze()
		for range rapid.IntRange(0, 20).Draw(t, "steps after") {
			step()
		}
		same(t, s, users, ids)
		same(t, clone, was, at)
		same(t, frozen.Thaw(), was, at)
	})
}

func same(t *rapid.T, s *Space, users map[[2]string]int, ids map[[2]string]ID) {
	live := 1 // the pair of two empty strings is always known
	for p, n := range users {
		id, known := s.Keys.Find(p[0], p[1])
		if want := n > 0 || p == [2]string{}; known != want || known && id != ids[p] {
			t.Fatalf("%v has %d users and is found %v as %d, want %d", p, n, known, id, ids[p])
		}
		if n > 0 {
			if a, b := s.Keys.Text(ids[p]); [2]string{a, b} != p {
				t.Fatalf("%d is %q, %q, want %v", ids[p], a, b, p)
			}
			if p != [2]string{} {
				live++
			}
		}
	}
	if s.Keys.Live() != live {
		t.Fatalf("%d pairs are known, %d have users", s.Keys.Live(), live)
	}
	for p, n := range users { // the last release takes the strings along
		for range n {
			s.Keys.Release(ids[p])
		}
	}
	if s.Strings.Live() != 1 || s.Keys.Live() != 1 {
		t.Fatalf("left over: %d strings, %d pairs", s.Strings.Live(), s.Keys.Live())
	}
}

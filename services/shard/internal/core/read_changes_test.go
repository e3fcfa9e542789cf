package core

import "testing"

// WIRE-9.4: a plan that came to the same end again is not a change for readers. Starts that a pause holds back are planned again each time.
func TestSamePlanIsNoChange(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Paused = true }, slotsOf(8)...)
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(5, 4, 8))
	w.run(Minute)
	blockOf := func(cluster string) *NeedBlock {
		for _, b := range w.view.Needs {
			if b.Cluster == cluster {
				return b
			}
		}
		t.Fatalf("nothing is known of %s", cluster)
		return nil
	}
	before := blockOf("red")
	if before.HeldBack != 2 {
		t.Fatalf("%d rows of red are held back, want 2", before.HeldBack)
	}
	w.rollup("blue", needs(0, 4)) // comes after red, and takes nothing from it
	w.run(Minute)
	if after := blockOf("red"); after.of == before.of {
		t.Fatal("red was not planned again: this test shows nothing")
	} else if after.ChangedAt() != before.ChangedAt() {
		t.Errorf("red changed at %d and again at %d, with the same rows", before.ChangedAt(), after.ChangedAt())
	}
	if b := blockOf("blue"); b.ChangedAt() <= before.ChangedAt() {
		t.Error("blue's new row is no change")
	}
	w.rollup("red", needs(5, 4, 12))
	w.run(Minute)
	if after := blockOf("red"); after.ChangedAt() <= before.ChangedAt() {
		t.Error("another row of red is no change")
	}
}

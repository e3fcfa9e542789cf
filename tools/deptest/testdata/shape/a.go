package shape

type caller struct{ to *callee }

func (c caller) ask() int  { return c.to.answer(c) + one }
func (c caller) zero() int { return 0 }

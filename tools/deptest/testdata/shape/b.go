package shape

type callee struct{}

func (callee) answer(c caller) int { return c.zero() + one }

package shape

const one = 1

func long() int {
	n := one
	return n
}

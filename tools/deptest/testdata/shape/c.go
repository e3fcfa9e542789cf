package shape

const one = 1

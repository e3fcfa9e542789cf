package core

// hintSent is the last hint a session got for one shape.
type hintSent struct {
	count      int64
	confidence Confidence
	price      int64
	at         int64
}

// statusSent is the last verdict a session got for one row.
type statusSent struct {
	hash uint64
	at   int64
}

func (c *Core) hintsDue() {}

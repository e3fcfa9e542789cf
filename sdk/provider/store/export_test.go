package store

import "os"

// OpenWith is Open with logs of that size, small transactions and without flushes; step is called before and after whatever changes a file, by any
// goroutine.
func OpenWith(path string, limit int64, step func(string)) (Store, error) {
	if step == nil {
		step = func(string) {}
	}
	return open(path, options{limit: limit, part: 4, step: step, flush: func(*os.File) error { return nil }, fast: true})
}

// FillDisk makes the next write of the log fail as on a full disk.
func FillDisk(s Store) (err error) {
	g := s.(*file).logs[s.(*file).now]
	if err := g.f.Close(); err != nil {
		return err
	}
	g.f, err = os.OpenFile("/dev/full", os.O_RDWR, 0)
	return err
}

// FreeDisk makes room again.
func FreeDisk(s Store) (err error) {
	g := s.(*file).logs[s.(*file).now]
	if err := g.f.Close(); err != nil {
		return err
	}
	g.f, err = os.OpenFile(g.name, os.O_RDWR, 0)
	return err
}

var Explain = explain

package inventory

import (
	"math"
	"math/bits"
)

// StockVersion grows when a class gains its first, or loses its last, owned machine that is Idle or Speculative, or such a
// machine that is not withheld from all clusters.
func (t *Table) StockVersion() uint64 { return t.stockVersion }

// ElsewhereVersion grows when a class gains its first, or loses its last, Idle or Speculative machine of another shard. It is 0
// as long as there was none.
func (t *Table) ElsewhereVersion() uint64 { return t.elsewhereVersion }

// FailureHostLost is the wire's MACHINE_FAILURE_HOST_LOST.
const FailureHostLost = 8

// Exists reports whether the machine has a host, which costs its price: from Idle to Deleting, and Failed as long as its
// provider names a host that is not lost. A Create that is on its way or was refused has none (ENG-5.1).
func (m *Machine) Exists() bool {
	return m.State.Hosted() || m.State == Failed && m.HostRef != "" && m.Failure != FailureHostLost
}

// Exists is Machine.Exists of a machine of the table.
func (t *Table) Exists(i Index) bool {
	s := t.rows.at(i).State()
	if s != Failed {
		return s.Hosted()
	}
	_, host := t.host(i)
	return host != "" && t.errors[i].class != FailureHostLost
}

// Billed is the price of all owned machines that exist, millionths of a dollar per hour, saturating.
func (t *Table) Billed() int64 { return t.billed.saturated() }

// wide is a sum of many prices that never overflows.
type wide struct{ hi, lo uint64 }

func (w *wide) add(v int64, by int32) {
	var carry uint64
	if by > 0 {
		w.lo, carry = bits.Add64(w.lo, uint64(v), 0)
		w.hi += carry
	} else {
		w.lo, carry = bits.Sub64(w.lo, uint64(v), 0)
		w.hi -= carry
	}
}

func (w *wide) saturated() int64 {
	if w.hi != 0 || w.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(w.lo)
}

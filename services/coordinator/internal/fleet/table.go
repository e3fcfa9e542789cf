package fleet

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
	"google.golang.org/protobuf/proto"
)

// table is one immutable table in key order. Keys are compared byte for byte. The zero table is empty.
//
// What it does is in tree, which is not a generic type: every method of a generic one is compiled again for each type of row in
// every package that has a State, which was half of what these packages cost to compile (adr/0170).
type table[T any] struct{ tree tree }

func (t table[T]) get(key string) *T {
	row, _ := t.tree.get(key).(*T)
	return row
}

func (t table[T]) len() int { return t.tree.len() }

// put and drop replace the table in place; tables copied from it before are not affected.
func (t *table[T]) put(key string, row *T) { t.tree.put(key, row) }

func (t *table[T]) drop(key string) { t.tree.drop(key) }

// all walks the table in key order.
func (t table[T]) all() iter.Seq2[string, *T] { return typed[T](t.tree.under("")) }

// under walks the rows whose key starts with prefix, in key order.
func (t table[T]) under(prefix string) iter.Seq2[string, *T] { return typed[T](t.tree.under(prefix)) }

// after walks the rows whose key is greater than key, in key order.
func (t table[T]) after(key string) iter.Seq2[string, *T] { return typed[T](t.tree.after(key)) }

// first returns the row with the smallest key.
func (t table[T]) first() (string, *T) {
	key, value := t.tree.first()
	row, _ := value.(*T)
	return key, row
}

//go:noinline
func typed[T any](all iter.Seq2[string, any]) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		all(func(key string, row any) bool { return yield(key, row.(*T)) })
	}
}

// tree holds *T for a T that only its table knows. Its methods are not inlined: that would bring the tree into the callers.
type tree struct{ of *iradix.Tree[any] }

//go:noinline
func (t tree) get(key string) any {
	if t.of == nil {
		return nil
	}
	row, _ := t.of.Get([]byte(key))
	return row
}

//go:noinline
func (t tree) len() int {
	if t.of == nil {
		return 0
	}
	return t.of.Len()
}

//go:noinline
func (t *tree) put(key string, row any) {
	if t.of == nil {
		t.of = iradix.New[any]()
	}
	t.of, _, _ = t.of.Insert([]byte(key), row)
}

//go:noinline
func (t *tree) drop(key string) {
	if t.of != nil {
		t.of, _, _ = t.of.Delete([]byte(key))
	}
}

//go:noinline
func (t tree) under(prefix string) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		if t.of == nil {
			return
		}
		it := t.of.Root().Iterator()
		it.SeekPrefix([]byte(prefix))
		for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
			if !yield(string(key), row) {
				return
			}
		}
	}
}

//go:noinline
func (t tree) after(key string) iter.Seq2[string, any] {
	if key == "" {
		return t.under("")
	}
	return func(yield func(string, any) bool) {
		if t.of == nil {
			return
		}
		it := t.of.Root().Iterator()
		it.SeekLowerBound([]byte(key))
		for k, row, ok := it.Next(); ok; k, row, ok = it.Next() {
			if string(k) != key && !yield(string(k), row) {
				return
			}
		}
	}
}

//go:noinline
func (t tree) first() (string, any) {
	if t.of == nil {
		return "", nil
	}
	key, row, ok := t.of.Root().Minimum()
	if !ok {
		return "", nil
	}
	return string(key), row
}

// hashedTable is a table of rows that knows their digest (COORD-3.7).
type hashedTable[T any, P rowOf[T]] struct {
	table[T]
	digest digest
}

// rowOf is a message behind a pointer.
type rowOf[T any] interface {
	*T
	proto.Message
}

func (t *hashedTable[T, P]) put(key string, row *T) {
	t.forget(key)
	t.digest.add(digestOf(P(row)))
	t.table.put(key, row)
}

func (t *hashedTable[T, P]) drop(key string) {
	t.forget(key)
	t.table.drop(key)
}

// forget takes the row of a key out of the digest. Rows do not change, so it is what was added.
func (t *hashedTable[T, P]) forget(key string) {
	if old := t.get(key); old != nil {
		t.digest.remove(digestOf(P(old)))
	}
}

// set is an index: keys without rows.
type set struct{ table[struct{}] }

func (s *set) add(key string) { s.put(key, &struct{}{}) }

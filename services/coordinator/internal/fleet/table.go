package fleet

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
	"google.golang.org/protobuf/proto"
)

// table is one immutable table in key order. Keys are compared byte for byte. The zero table is empty.
//
// The tree holds any, which is always *T: a tree of every row type would be compiled again in every package that has a
// table of it, which was two seconds for each (adr/0115).
type table[T any] struct {
	tree *iradix.Tree[any]
}

func (t table[T]) get(key string) *T {
	if t.tree == nil {
		return nil
	}
	row, ok := t.tree.Get([]byte(key))
	if !ok {
		return nil
	}
	return row.(*T)
}

func (t table[T]) len() int {
	if t.tree == nil {
		return 0
	}
	return t.tree.Len()
}

// put and drop replace the table in place; tables copied from it before are not affected.
func (t *table[T]) put(key string, row *T) {
	if t.tree == nil {
		t.tree = iradix.New[any]()
	}
	t.tree, _, _ = t.tree.Insert([]byte(key), row)
}

func (t *table[T]) drop(key string) {
	if t.tree != nil {
		t.tree, _, _ = t.tree.Delete([]byte(key))
	}
}

// all walks the table in key order.
func (t table[T]) all() iter.Seq2[string, *T] { return t.under("") }

// under walks the rows whose key starts with prefix, in key order.
func (t table[T]) under(prefix string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		if t.tree == nil {
			return
		}
		it := t.tree.Root().Iterator()
		it.SeekPrefix([]byte(prefix))
		for key, row, ok := it.Next(); ok; key, row, ok = it.Next() {
			if !yield(string(key), row.(*T)) {
				return
			}
		}
	}
}

// after walks the rows whose key is greater than key, in key order.
func (t table[T]) after(key string) iter.Seq2[string, *T] {
	if key == "" {
		return t.all()
	}
	return func(yield func(string, *T) bool) {
		if t.tree == nil {
			return
		}
		it := t.tree.Root().Iterator()
		it.SeekLowerBound([]byte(key))
		for k, row, ok := it.Next(); ok; k, row, ok = it.Next() {
			if string(k) != key && !yield(string(k), row.(*T)) {
				return
			}
		}
	}
}

// first returns the row with the smallest key.
func (t table[T]) first() (string, *T) {
	if t.tree == nil {
		return "", nil
	}
	key, row, ok := t.tree.Root().Minimum()
	if !ok {
		return "", nil
	}
	return string(key), row.(*T)
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

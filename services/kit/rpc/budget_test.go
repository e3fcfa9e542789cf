package rpc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
)

func zeros(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// WIRE-4.4: messages that are decompressed at a time share one budget. One that finds none waits, and fails after a while.
func TestDecompressionHasABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(3 * decodeStep)
		open := func(size int) *countedReader {
			r := &countedReader{budget: b}
			if err := r.Reset(bytes.NewReader(zeros(t, size))); err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second := open(2*decodeStep-1), open(10)
		for _, r := range []*countedReader{first, second} {
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Fatal(err)
			}
		}
		if b.used != 3*decodeStep {
			t.Fatalf("%d bytes are held", b.used)
		}
		_, err := io.Copy(io.Discard, open(10))
		var refused *connect.Error
		if !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted {
			t.Fatalf("above the budget: %v", err)
		}
		waits := make(chan error, 1)
		go func() {
			r := open(10)
			_, err := io.Copy(io.Discard, r)
			waits <- errors.Join(err, r.Close())
		}()
		time.Sleep(decodeWaitMax / 2)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; err != nil {
			t.Errorf("one that waited: %v", err)
		}
		if err := second.Close(); err != nil || b.used != 0 {
			t.Errorf("%v; %d bytes are still held", err, b.used)
		}
	})
}

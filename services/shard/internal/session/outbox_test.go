package session

import (
	"fmt"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"pgregory.net/rapid"
)

func frame(c Class, key string, n int) Frame {
	return Frame{Class: c, Key: key, Bytes: n, Render: func() *pb.ShardMessage { return &pb.ShardMessage{} }}
}

func put(o *Outbox, f Frame) bool { _, ok := o.Put(f); return ok }

func names(o *Outbox, max int) (out []string) {
	for range max {
		f, ok := o.Next()
		if !ok {
			break
		}
		out = append(out, f.Class.String()+"/"+f.Key)
	}
	return out
}

// SHARD-9.3: a keyed frame replaces the waiting one of its key and keeps its place.
func TestNewestOfAKeyInTheOldPlace(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 8, Bytes: 1000})
	for i, k := range []string{"node:a", "node:b", "node:a", "ack:resync"} {
		if !put(o, frame(Keyed, k, i+1)) {
			t.Fatal("refused")
		}
	}
	if f, _ := o.Next(); f.Key != "node:a" || f.Bytes != 3 {
		t.Fatalf("first is %+v", f)
	}
	if got := fmt.Sprint(names(o, 9)); got != "[keyed/node:b keyed/ack:resync]" {
		t.Fatal(got)
	}
	if s := o.Stats(); s.Coalesced != 1 || s.Depth != [classes]int{} {
		t.Fatalf("%+v", s)
	}
}

// SHARD-9.2: essential frames are never dropped; one too many ends the session.
func TestEssentialFramesAreBounded(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 3, Bytes: 1000})
	for i := range 3 {
		if !put(o, frame(Essential, "", 1)) {
			t.Fatalf("frame %d refused", i)
		}
	}
	if put(o, frame(Essential, "", 1)) {
		t.Fatal("one past the limit was taken")
	}
}

// SHARD-9.4: at the byte limit hints go first, then need statuses, then the session; node states never.
func TestDropOrderAtTheByteLimit(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 3, Bytes: 100})
	put(o, frame(Hint, "available:x", 30))
	put(o, frame(NeedStatus, "need:x", 30))
	put(o, frame(Keyed, "node:a", 30))
	if !put(o, frame(Keyed, "node:b", 30)) {
		t.Fatal("dropping the hint should have made room")
	}
	if s := o.Stats(); s.Dropped[Hint] != 1 || s.Dropped[NeedStatus] != 0 {
		t.Fatalf("%+v", s)
	}
	if !put(o, frame(Keyed, "node:c", 40)) {
		t.Fatal("dropping the need status should have made room")
	}
	if put(o, frame(Keyed, "node:d", 1)) {
		t.Fatal("node states were dropped to stay inside the limit")
	}
}

// SHARD-9.5: after 64 essential frames in a row one keyed frame is sent.
func TestKeyedFramesAreNotStarved(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 1000, Bytes: 1 << 20})
	for range 200 {
		put(o, frame(Essential, "", 1))
	}
	put(o, frame(Keyed, "node:a", 1))
	put(o, frame(Keyed, "node:b", 1))
	got := names(o, 300)
	if got[64] != "keyed/node:a" || got[129] != "keyed/node:b" || len(got) != 202 {
		t.Fatalf("order: 64=%s 129=%s of %d", got[64], got[129], len(got))
	}
}

// SHARD-33.5.11: essential frames come out complete and in order, and the last frame of a key is the newest.
func TestOutboxAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := NewOutbox(OutboxLimits{EssentialFrames: 1 << 20, Bytes: 1 << 30})
		var sentEssential, gotEssential []int
		newest, last := map[string]int{}, map[string]int{}
		take := func() {
			if f, ok := o.Next(); ok && f.Class == Essential {
				gotEssential = append(gotEssential, f.Bytes)
			} else if ok {
				last[f.Key] = f.Bytes
			}
		}
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				sentEssential = append(sentEssential, i)
				put(o, frame(Essential, "", i))
			case 1:
				k := rapid.SampledFrom([]string{"node:a", "node:b", "node:c"}).Draw(t, "key")
				newest[k] = i
				put(o, frame(Keyed, k, i))
			default:
				take()
			}
		}
		for range 400 {
			take()
		}
		if fmt.Sprint(sentEssential) != fmt.Sprint(gotEssential) || fmt.Sprint(newest) != fmt.Sprint(last) {
			t.Fatalf("essential %v became %v; newest %v, last %v", sentEssential, gotEssential, newest, last)
		}
	})
}

// SHARD-9.1: at most one writer at a time: the first frame of a queue at rest asks for one, and so does the first after it has
// found the queue empty. A closed outbox has stopped when its writer has.
func TestOneWriterWhileThereIsSomethingToWrite(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 9, Bytes: 1000})
	for round := range 3 {
		for i, want := range []bool{true, false, false} {
			if begin, ok := o.Put(frame(Essential, "", 1)); begin != want || !ok {
				t.Fatalf("round %d, frame %d: begin %v, ok %v", round, i, begin, ok)
			}
		}
		if got := len(names(o, 9)); got != 3 {
			t.Fatalf("%d frames", got)
		}
	}
	put(o, frame(Essential, "", 1))
	o.Close()
	select {
	case <-o.Stopped():
		t.Fatal("stopped while a writer was at work")
	default:
	}
	if begin, ok := o.Put(frame(Keyed, "k", 1)); begin || !ok {
		t.Fatalf("after the end: begin %v, ok %v", begin, ok)
	}
	if _, more := o.Next(); more {
		t.Fatal("a frame after the end")
	}
	<-o.Stopped()
	quiet := NewOutbox(OutboxLimits{EssentialFrames: 9, Bytes: 1000})
	quiet.Close()
	<-quiet.Stopped()
}

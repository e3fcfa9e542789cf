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
		if !o.Put(frame(Keyed, k, i+1)) {
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
		if !o.Put(frame(Essential, "", 1)) {
			t.Fatalf("frame %d refused", i)
		}
	}
	if o.Put(frame(Essential, "", 1)) {
		t.Fatal("one past the limit was taken")
	}
}

// SHARD-9.4: at the byte limit hints go first, then need statuses, then the session; node states never.
func TestDropOrderAtTheByteLimit(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 3, Bytes: 100})
	o.Put(frame(Hint, "available:x", 30))
	o.Put(frame(NeedStatus, "need:x", 30))
	o.Put(frame(Keyed, "node:a", 30))
	if !o.Put(frame(Keyed, "node:b", 30)) {
		t.Fatal("dropping the hint should have made room")
	}
	if s := o.Stats(); s.Dropped[Hint] != 1 || s.Dropped[NeedStatus] != 0 {
		t.Fatalf("%+v", s)
	}
	if !o.Put(frame(Keyed, "node:c", 40)) {
		t.Fatal("dropping the need status should have made room")
	}
	if o.Put(frame(Keyed, "node:d", 1)) {
		t.Fatal("node states were dropped to stay inside the limit")
	}
}

// SHARD-9.5: after 64 essential frames in a row one keyed frame is sent.
func TestKeyedFramesAreNotStarved(t *testing.T) {
	o := NewOutbox(OutboxLimits{EssentialFrames: 1000, Bytes: 1 << 20})
	for range 200 {
		o.Put(frame(Essential, "", 1))
	}
	o.Put(frame(Keyed, "node:a", 1))
	o.Put(frame(Keyed, "node:b", 1))
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
				o.Put(frame(Essential, "", i))
			case 1:
				k := rapid.SampledFrom([]string{"node:a", "node:b", "node:c"}).Draw(t, "key")
				newest[k] = i
				o.Put(frame(Keyed, k, i))
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

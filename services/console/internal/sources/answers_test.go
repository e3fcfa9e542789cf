package sources

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OPS-6.3: equal questions cost a shard one call. Who asked and leaves ends the call, and one of those who wait asks again.
func TestWhoLeavesEndsItsQuestion(t *testing.T) {
	s, question := &Shard{}, &pb.GetStatusRequest{}
	type got struct {
		answer *pb.GetStatusResponse
		err    error
	}
	asked := make(chan struct{}, 10)
	ask := func(ctx context.Context, answer *pb.GetStatusResponse) <-chan got {
		out := make(chan got, 1)
		go func() {
			res, _, err := Shared(ctx, s, Rows, "status", question, func() (*pb.GetStatusResponse, error) {
				asked <- struct{}{}
				if answer == nil {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				return answer, nil
			})
			out <- got{res, err}
		}()
		return out
	}
	leaving, leave := context.WithCancel(t.Context())
	first := ask(leaving, nil)
	<-asked
	want := &pb.GetStatusResponse{ShardId: "a"}
	waiting := []<-chan got{ask(t.Context(), want), ask(t.Context(), want), ask(t.Context(), want)}
	leave()
	if g := <-first; !errors.Is(g.err, context.Canceled) {
		t.Errorf("who left got %v, %v", g.answer, g.err)
	}
	for _, w := range waiting {
		select {
		case g := <-w:
			if g.err != nil || g.answer.GetShardId() != "a" {
				t.Errorf("who waited got %v, %v", g.answer, g.err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("who waited got nothing")
		}
	}
	if n := len(asked); n < 1 || n > 3 {
		t.Errorf("those who waited asked %d times", n)
	}
}

// A shard's refusal is the answer of all who wait, and is not kept.
func TestRefusalIsNotKept(t *testing.T) {
	s := &Shard{}
	refused := errors.New("refused")
	for _, want := range []error{refused, nil} {
		_, _, err := Shared(t.Context(), s, Rows, "status", &pb.GetStatusRequest{}, func() (*pb.GetStatusResponse, error) { return &pb.GetStatusResponse{}, want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// OPS-6.5: an answer that others got before says how old it is, and who asked first hears of no age.
func TestSharedAnswerHasItsAge(t *testing.T) {
	s := &Shard{}
	for i := range 2 {
		_, age, err := Shared(t.Context(), s, Rows, "status", &pb.GetStatusRequest{}, func() (*pb.GetStatusResponse, error) {
			time.Sleep(150 * time.Millisecond) // it serves for a hundred times as long
			return &pb.GetStatusResponse{}, nil
		})
		if err != nil || (i == 0) != (age == 0) || i == 1 && age < 150*time.Millisecond {
			t.Errorf("question %d: age %v, %v", i, age, err)
		}
	}
}

// OPS-6.2: after an order no viewer gets what the shard said before it.
func TestOrdersEndOldAnswers(t *testing.T) {
	s := &Shard{}
	for i, want := range []string{"before", "before", "after"} {
		if i == 2 {
			s.Forget()
		}
		got, _, err := Shared(t.Context(), s, Rows, "status", &pb.GetStatusRequest{}, func() (*pb.GetStatusResponse, error) {
			time.Sleep(150 * time.Millisecond)
			return &pb.GetStatusResponse{ShardId: map[bool]string{true: "before", false: "after"}[i < 2]}, nil
		})
		if err != nil || got.GetShardId() != want {
			t.Errorf("question %d: %v, %v", i, got, err)
		}
	}
}

package core

import "testing"

// SHARD-14.6, WIRE-7.5, scenario 39: every code, before and after bytes were sent.
func TestClassify(t *testing.T) {
	want := map[Code]Class{
		CodeOK:                 Accepted,
		CodeCanceled:           Unknown,
		CodeUnknown:            Unknown,
		CodeInvalidArgument:    Refused,
		CodeDeadlineExceeded:   Unknown,
		CodeNotFound:           Gone,
		CodeAlreadyExists:      Unknown,
		CodePermissionDenied:   NotTouched,
		CodeResourceExhausted:  NotTouched,
		CodeFailedPrecondition: FenceSuspect,
		CodeAborted:            Unknown,
		CodeOutOfRange:         Refused,
		CodeUnimplemented:      Refused,
		CodeInternal:           Unknown,
		CodeUnavailable:        Unknown,
		CodeDataLoss:           Unknown,
		CodeUnauthenticated:    NotTouched,
	}
	for code := CodeOK; code <= CodeUnauthenticated; code++ {
		if got := Classify(code, true, true); got != want[code] {
			t.Errorf("%v after bytes were sent: %v, want %v", code, got, want[code])
		}
		if got := Classify(code, false, false); code != CodeOK && got != NotTouched {
			t.Errorf("%v before anything was sent: %v", code, got)
		}
	}
	// SHARD-10.7: a success whose ack the gate rejects proves nothing.
	if got := Classify(CodeOK, true, false); got != Unknown {
		t.Errorf("a bad ack is %v", got)
	}
	// A code of a newer peer is not proof of anything either.
	if got := Classify(99, true, true); got != Unknown {
		t.Errorf("an unheard-of code is %v", got)
	}
}

// SHARD-14.12: throttling is not a broken provider; a wrong certificate is.
func TestWhatOpensTheBreaker(t *testing.T) {
	for _, c := range []struct {
		code Code
		sent bool
		want bool
	}{
		{CodeUnavailable, false, true}, {CodeUnavailable, true, true}, {CodeDeadlineExceeded, true, true},
		{CodeUnauthenticated, true, true}, {CodePermissionDenied, true, true},
		{CodeResourceExhausted, true, false}, {CodeInvalidArgument, true, false}, {CodeNotFound, true, false},
		{CodeFailedPrecondition, true, false}, {CodeOK, true, false},
	} {
		if got := hurtsBreaker(c.code, Classify(c.code, c.sent, true)); got != c.want {
			t.Errorf("%v sent=%v: %v", c.code, c.sent, got)
		}
	}
}

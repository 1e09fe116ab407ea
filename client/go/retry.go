package tensorplane

import (
	"context"
	"math/rand"
	"time"

	"google.golang.org/grpc/codes"
)

// Retry says how what was UNAVAILABLE is repeated: with growing pauses, within the timeout. Once a part of an answer has
// arrived nothing is repeated.
type Retry struct {
	// Attempts in all; 1: nothing is repeated.
	Attempts int
	// FirstPause doubles up to LongestPause.
	FirstPause, LongestPause time.Duration
}

// DefaultRetry is that of a Client whose options name none.
var DefaultRetry = Retry{Attempts: 5, FirstPause: 100 * time.Millisecond, LongestPause: 2 * time.Second}

func (r Retry) run(ctx context.Context, attempt func() (bool, *Error)) error {
	var first *Error
	longest := r.FirstPause
	for made := 1; ; made++ {
		begun, err := attempt()
		if err == nil {
			return nil
		}
		if longest > r.LongestPause {
			longest = r.LongestPause
		}
		pause := time.Duration(float64(longest) * (0.8 + 0.2*rand.Float64()))
		longest *= 2
		deadline, limited := ctx.Deadline()
		if begun || err.Code != codes.Unavailable || made >= r.Attempts || (limited && time.Until(deadline) <= pause) {
			if first != nil {
				err = &Error{Code: err.Code, Text: err.Text, cause: first}
			}
			return err
		}
		if first == nil {
			first = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &Error{Code: codes.Canceled, Text: "the call was cancelled", cause: first}
		}
	}
}

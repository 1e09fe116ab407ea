package tensorplane

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
)

// Stop is returned by a callback of Watch or Generate that has enough; the call then returns nil.
var Stop = errors.New("stop")

// run makes the attempts of a call. An attempt says whether a part of the answer had arrived.
func (c *Client) run(ctx context.Context, attempt func(context.Context) (bool, error)) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	return c.retry.run(ctx, func() (bool, *Error) {
		one, cancel := context.WithCancel(ctx)
		defer cancel() // ends what is left of a stream
		begun, err := attempt(one)
		if err == nil {
			return begun, nil
		}
		return begun, fromRPC(err, c.server)
	})
}

// unary is a call of one message up and one down.
func unary[Request, Response any](ctx context.Context, c *Client,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error), request *Request) (response *Response, err error) {
	err = c.run(ctx, func(ctx context.Context) (bool, error) {
		response, err = method(ctx, request)
		return false, err
	})
	return response, err
}

// follow hands on what a stream brings, one by one, until it ends or the callback returns an error.
func follow[T any](ctx context.Context, c *Client, open func(context.Context) (func() (T, error), error), callback func(T) error) error {
	var given error // by the callback
	err := c.run(ctx, func(ctx context.Context) (begun bool, err error) {
		receive, err := open(ctx)
		if err != nil {
			return false, err
		}
		for ; ; begun = true {
			value, err := receive()
			if err == io.EOF {
				return begun, nil
			}
			if err != nil {
				return begun, err
			}
			if given = callback(value); given != nil {
				return true, nil
			}
		}
	})
	if err == nil && given != nil && !errors.Is(given, Stop) {
		return given
	}
	return err
}

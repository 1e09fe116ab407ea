package tensorplane

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is what every call returns where it fails. Text names the field, what was given and what is allowed.
type Error struct {
	Code codes.Code
	Text string
	// cause is the first error of a call that was repeated, or what lies below.
	cause error
}

var codeNames = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// CodeName is "NOT_FOUND" of codes.NotFound.
func CodeName(code codes.Code) string {
	if name, known := codeNames[code]; known {
		return name
	}
	return strings.ToUpper(code.String())
}

// Error is "NOT_FOUND: text".
func (e *Error) Error() string { return CodeName(e.Code) + ": " + e.Text }

// Unwrap is the first error of a call that was repeated, or what lies below.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

// Code is the code of an error of this package; Unknown of another one, OK of nil.
func Code(err error) codes.Code {
	var own *Error
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &own):
		return own.Code
	}
	return codes.Unknown
}

func errorf(code codes.Code, format string, arguments ...interface{}) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, arguments...)}
}

// fromRPC is our error of one of gRPC's; it names the address where nobody answers.
func fromRPC(err error, server string) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	told, ok := status.FromError(err)
	if !ok {
		told = status.FromContextError(err)
	}
	text := told.Message()
	if told.Code() == codes.Unavailable && strings.Contains(text, "connection error") {
		text = fmt.Sprintf("no coordinator answers at %s: %s", server, text)
	}
	return &Error{Code: told.Code(), Text: text, cause: err}
}

package tensorplane

import (
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// ReadSubmission reads a .pb, .textproto (or .pbtxt) or .json file. Relative paths of weights become those of its folder.
func ReadSubmission(path string) (*v1.Submission, error) {
	submission := &v1.Submission{}
	var parse func([]byte) error
	switch filepath.Ext(path) {
	case ".pb":
		parse = func(data []byte) error { return proto.Unmarshal(data, submission) }
	case ".textproto", ".pbtxt":
		parse = func(data []byte) error { return prototext.Unmarshal(data, submission) }
	case ".json":
		parse = func(data []byte) error { return protojson.Unmarshal(data, submission) }
	default:
		return nil, errorf(codes.InvalidArgument, "'%s': a submission's file ends in .pb, .textproto or .json", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Code: codes.NotFound, Text: err.Error(), cause: err}
	}
	if err := parse(data); err != nil {
		return nil, &Error{Code: codes.InvalidArgument, Text: path + ": " + err.Error(), cause: err}
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Code: codes.Internal, Text: err.Error(), cause: err}
	}
	folder := filepath.Dir(whole)
	if submission.WeightsFile != "" {
		submission.WeightsFile = below(folder, submission.WeightsFile)
	}
	for _, source := range submission.GetWeights() {
		resolve(folder, source)
	}
	return submission, nil
}

func below(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

func resolve(folder string, source *v1.WeightSource) {
	if file := source.GetFile(); file != nil {
		file.Path = below(folder, file.GetPath())
	}
	if slice := source.GetSlice(); slice != nil {
		resolve(folder, slice.GetOf())
	}
	if transposed := source.GetTranspose(); transposed != nil {
		resolve(folder, transposed.GetOf())
	}
	for _, part := range source.GetConcat().GetParts() {
		resolve(folder, part)
	}
}

func submissionBytes(submission *v1.Submission) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(submission)
	if err != nil {
		return nil, &Error{Code: codes.InvalidArgument, Text: "the submission can't be serialized: " + err.Error(), cause: err}
	}
	return data, nil
}

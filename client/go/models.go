package tensorplane

import (
	"context"
	"io"
	"strings"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// ModelSummary is a model's line in lists. State: "READY", "LOADING", ...
type ModelSummary struct {
	Name, State, Error, Fingerprint         string
	Mesh                                    Mesh
	ParameterBytes, LoadedBytes, TotalBytes uint64
}

// SubmitOptions: Name and Mesh ("tp=2") take the place of the submission's. DryRun validates and compiles only. Replace:
// the READY model of this name, which serves until all ranks hold the new one.
type SubmitOptions struct {
	Name, Mesh      string
	DryRun, Replace bool
	Progress        Progress
}

// TakenOver is what a model that replaced another has of it.
type TakenOver struct {
	States                          int
	SizeBytes, WireBytes, BytesRead uint64
}

// SubmitResult is that of a finished submit.
type SubmitResult struct {
	Model     ModelSummary
	Warnings  []string
	TakenOver *TakenOver // of one that replaced a model
}

// LocalBlock is a rank's block of a parameter.
type LocalBlock struct {
	Rank          int
	Shape, Offset []int64
}

// Parameter is a parameter or buffer; Placements: "tp=S(0)".
type Parameter struct {
	Name       string
	Shape      []int64
	DType      DType
	Placements string
	Local      []LocalBlock // by rank
	Buffer     bool
}

// Module is what the plan does to a module; Path is empty for the root.
type Module struct {
	Path, Kind, Style string
	Inputs, Outputs   []string
}

// ModelWorker is what a worker holds of a model.
type ModelWorker struct {
	ID                        string
	Rank                      int
	BytesRead, ParameterBytes uint64
}

// InputType is an input with symbolic sizes: "8", "batch".
type InputType struct {
	Name  string
	DType DType
	Shape []string
}

// ModelDescription is a model in full.
type ModelDescription struct {
	Model      ModelSummary
	Parameters []Parameter
	Modules    []Module
	Workers    []ModelWorker // by rank
	Inputs     []InputType
	Generates  bool
	Submission []byte // serialized, where asked for
}

func summaryOf(proto *v1.ModelSummary) ModelSummary {
	return ModelSummary{
		Name: proto.GetName(), State: strings.TrimPrefix(proto.GetState().String(), "MODEL_STATE_"), Error: proto.GetError(),
		Fingerprint: proto.GetFingerprint(), Mesh: meshFromProto(proto.GetMesh()), ParameterBytes: proto.GetParameterBytes(),
		LoadedBytes: proto.GetLoadedBytes(), TotalBytes: proto.GetTotalBytes()}
}

// upload is the sending side of Submit and CreateModel: chunks until the server has ended the call, whose error the
// receiving side tells.
func upload(data []byte, progress Progress, send func(*v1.Chunk) error) error {
	if err := sendChunks([][]byte{data}, progress, send); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// Submit sends a .pb, .textproto or .json file and returns when the model is READY or has failed. Options may be nil.
func (c *Client) Submit(ctx context.Context, path string, options *SubmitOptions) (*SubmitResult, error) {
	submission, err := ReadSubmission(path)
	if err != nil {
		return nil, err
	}
	return c.SubmitMessage(ctx, submission, options)
}

// SubmitMessage is Submit of a message.
func (c *Client) SubmitMessage(ctx context.Context, submission *v1.Submission, options *SubmitOptions) (*SubmitResult, error) {
	if options == nil {
		options = &SubmitOptions{}
	}
	data, err := submissionBytes(submission)
	if err != nil {
		return nil, err
	}
	header := &v1.SubmitHeader{RequestId: newRequestID(), SizeBytes: uint64(len(data)), Name: options.Name,
		DryRun: options.DryRun, Replace: options.Replace}
	if options.Mesh != "" {
		if header.Mesh, err = parseMesh(options.Mesh); err != nil {
			return nil, err
		}
	}
	var response *v1.SubmitResponse
	err = c.run(ctx, func(ctx context.Context) (bool, error) {
		stream, err := c.stub.Submit(ctx)
		if err != nil {
			return false, err
		}
		if err := stream.Send(&v1.SubmitRequest{Kind: &v1.SubmitRequest_Header{Header: header}}); err != nil && err != io.EOF {
			return false, err
		}
		err = upload(data, options.Progress, func(chunk *v1.Chunk) error {
			return stream.Send(&v1.SubmitRequest{Kind: &v1.SubmitRequest_Chunk{Chunk: chunk}})
		})
		if err != nil {
			return false, err
		}
		response, err = stream.CloseAndRecv()
		return false, err
	})
	if err != nil {
		return nil, err
	}
	result := &SubmitResult{Model: summaryOf(response.GetModel()), Warnings: response.GetWarnings()}
	if taken := response.GetTakenOver(); taken != nil {
		result.TakenOver = &TakenOver{int(taken.GetStates()), taken.GetSizeBytes(), taken.GetWireBytes(), taken.GetBytesRead()}
	}
	return result, nil
}

// CreateModel is step 1 of 3 of a submit: validates and keeps a model's definition. Name replaces the submission's where
// it is not empty.
func (c *Client) CreateModel(ctx context.Context, submission *v1.Submission, name string, progress Progress) (*ModelSummary, error) {
	data, err := submissionBytes(submission)
	if err != nil {
		return nil, err
	}
	header := &v1.CreateModelHeader{RequestId: newRequestID(), SizeBytes: uint64(len(data)), Name: name}
	var response *v1.CreateModelResponse
	err = c.run(ctx, func(ctx context.Context) (bool, error) {
		stream, err := c.stub.CreateModel(ctx)
		if err != nil {
			return false, err
		}
		if err := stream.Send(&v1.CreateModelRequest{Kind: &v1.CreateModelRequest_Header{Header: header}}); err != nil && err != io.EOF {
			return false, err
		}
		err = upload(data, progress, func(chunk *v1.Chunk) error {
			return stream.Send(&v1.CreateModelRequest{Kind: &v1.CreateModelRequest_Chunk{Chunk: chunk}})
		})
		if err != nil {
			return false, err
		}
		response, err = stream.CloseAndRecv()
		return false, err
	})
	if err != nil {
		return nil, err
	}
	summary := summaryOf(response.GetModel())
	return &summary, nil
}

// InitStates is step 2 or 3: the states get their first values.
func (c *Client) InitStates(ctx context.Context, name string, buffersOnCPU bool) (*ModelSummary, error) {
	request := &v1.InitStatesRequest{RequestId: newRequestID(), Name: name, BufferDevice: v1.BufferDevice_BUFFER_DEVICE_DEVICE}
	if buffersOnCPU {
		request.BufferDevice = v1.BufferDevice_BUFFER_DEVICE_CPU
	}
	response, err := unary(ctx, c, c.stub.InitStates, request)
	if err != nil {
		return nil, err
	}
	summary := summaryOf(response.GetModel())
	return &summary, nil
}

// Parallelize is step 2 or 3: places the model by a plan (nil: its own), on a mesh ("": the plan's).
func (c *Client) Parallelize(ctx context.Context, name string, plan *v1.ParallelPlan, mesh string) (*SubmitResult, error) {
	request := &v1.ParallelizeRequest{RequestId: newRequestID(), Name: name, Plan: plan}
	if mesh != "" {
		parsed, err := parseMesh(mesh)
		if err != nil {
			return nil, err
		}
		request.Mesh = parsed
	}
	response, err := unary(ctx, c, c.stub.Parallelize, request)
	if err != nil {
		return nil, err
	}
	return &SubmitResult{Model: summaryOf(response.GetModel()), Warnings: response.GetWarnings()}, nil
}

// Models are all models, by name.
func (c *Client) Models(ctx context.Context) ([]ModelSummary, error) {
	response, err := unary(ctx, c, c.stub.ListModels, &v1.ListModelsRequest{})
	models := []ModelSummary{}
	for _, model := range response.GetModels() {
		models = append(models, summaryOf(model))
	}
	return models, err
}

// Describe is one model: its states with placements and local shapes, modules, workers, inputs.
func (c *Client) Describe(ctx context.Context, name string, includeSubmission bool) (*ModelDescription, error) {
	response, err := unary(ctx, c, c.stub.GetModel, &v1.GetModelRequest{Name: name, IncludeSubmission: includeSubmission})
	if err != nil {
		return nil, err
	}
	told := &ModelDescription{Model: summaryOf(response.GetModel()), Generates: response.GetGenerates(), Submission: response.GetSubmission()}
	for _, state := range response.GetParameters() {
		parameter := Parameter{Name: state.GetName(), Shape: state.GetShape(), DType: DType(state.GetDtype().String()),
			Placements: placementsText(told.Model.Mesh, state.GetPlacements()), Buffer: state.GetBuffer()}
		for _, local := range state.GetLocal() {
			parameter.Local = append(parameter.Local, LocalBlock{int(local.GetRank()), local.GetShape(), local.GetOffset()})
		}
		told.Parameters = append(told.Parameters, parameter)
	}
	for _, module := range response.GetModules() {
		told.Modules = append(told.Modules, Module{module.GetPath(), module.GetKind(), module.GetStyle(), module.GetInputs(), module.GetOutputs()})
	}
	for _, worker := range response.GetWorkers() {
		told.Workers = append(told.Workers, ModelWorker{worker.GetId(), int(worker.GetRank()), worker.GetBytesRead(), worker.GetParameterBytes()})
	}
	for i, input := range response.GetInputTypes() {
		if i < len(response.GetInputNames()) {
			told.Inputs = append(told.Inputs, InputType{response.GetInputNames()[i], DType(input.GetDtype().String()), input.GetShape()})
		}
	}
	return told, nil
}

// Delete frees a model on all its workers; requests in flight are cancelled.
func (c *Client) Delete(ctx context.Context, name string) error {
	request := &v1.DeleteModelRequest{RequestId: newRequestID(), Name: name}
	_, err := unary(ctx, c, c.stub.DeleteModel, request)
	return err
}

// Watch calls onChange with the model's state now, and again at every change, until it is deleted. An error of onChange
// ends it and is returned; Stop ends it without one.
func (c *Client) Watch(ctx context.Context, name string, onChange func(ModelSummary) error) error {
	return follow(ctx, c, func(ctx context.Context) (func() (ModelSummary, error), error) {
		stream, err := c.stub.WatchModel(ctx, &v1.WatchModelRequest{Name: name})
		return func() (ModelSummary, error) {
			response, err := stream.Recv()
			return summaryOf(response.GetModel()), err
		}, err
	}, onChange)
}

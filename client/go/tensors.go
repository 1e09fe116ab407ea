package tensorplane

import (
	"context"
	"strings"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// MeshInfo is a named mesh. State: "READY", ...
type MeshInfo struct {
	Name, State, Error string
	Mesh               Mesh
	Workers            []string // by rank
	Epoch              uint64
	Tensors            []string
}

// TensorInfo is a named tensor. State: "READY", "LOST", ...
type TensorInfo struct {
	Name, MeshName, State, Error string
	Mesh                         Mesh
	DType                        DType
	Shape                        []int64
	Placements                   string
}

// TensorShard is a rank's block.
type TensorShard struct {
	Rank          int
	Worker        string
	Offset, Shape []int64
	SizeBytes     uint64
}

// TensorDescription is a tensor and the blocks of its ranks.
type TensorDescription struct {
	Tensor TensorInfo
	Shards []TensorShard
}

// RedistributeStep is one step, as planned or as counted in the run.
type RedistributeStep struct {
	Op, Axis  string
	SizeBytes uint64
}

// RedistributeResult is a tensor in its new layout.
type RedistributeResult struct {
	Tensor                TensorInfo
	Steps, Counted        []RedistributeStep
	WireBytes, DurationUs uint64
}

// RedistributeOptions: an axis that Placements does not name keeps its placement; on another mesh it is R. The result
// takes the tensor's place unless As gives it a name.
type RedistributeOptions struct {
	Placements, Mesh, As string
}

// CreateTensorOptions of CreateTensor. Initializer: nil is zeros.
type CreateTensorOptions struct {
	Mesh, Placements string
	DType            DType
	Shape            []int64
	Initializer      *v1.Initializer
	Seed             uint64
}

// SaveResult of SaveTensors.
type SaveResult struct {
	Files     []string
	SizeBytes uint64
}

// LoadResult of LoadTensors.
type LoadResult struct {
	Tensors   []TensorInfo
	BytesRead uint64
}

func meshInfo(proto *v1.MeshDescription) MeshInfo {
	return MeshInfo{Name: proto.GetName(), State: strings.TrimPrefix(proto.GetState().String(), "MESH_STATE_"), Error: proto.GetError(),
		Mesh: meshFromProto(proto.GetMesh()), Workers: proto.GetWorkers(), Epoch: proto.GetEpoch(), Tensors: proto.GetTensors()}
}

func tensorInfo(proto *v1.TensorDescription) TensorInfo {
	mesh := meshFromProto(proto.GetAxes())
	return TensorInfo{Name: proto.GetName(), MeshName: proto.GetMesh(), State: strings.TrimPrefix(proto.GetState().String(), "TENSOR_STATE_"),
		Error: proto.GetError(), Mesh: mesh, DType: DType(proto.GetDtype().String()), Shape: proto.GetShape(),
		Placements: placementsText(mesh, proto.GetPlacements())}
}

// CreateMesh makes a named mesh ("tp=2") and connects its workers (by rank; none: chosen).
func (c *Client) CreateMesh(ctx context.Context, name, mesh string, workers ...string) (*MeshInfo, error) {
	parsed, err := parseMesh(mesh)
	if err != nil {
		return nil, err
	}
	request := &v1.CreateMeshRequest{RequestId: newRequestID(), Name: name, Mesh: parsed, Workers: workers}
	response, err := unary(ctx, c, c.stub.CreateMesh, request)
	if err != nil {
		return nil, err
	}
	info := meshInfo(response.GetMesh())
	return &info, nil
}

// Meshes are all named meshes, by name.
func (c *Client) Meshes(ctx context.Context) ([]MeshInfo, error) {
	response, err := unary(ctx, c, c.stub.ListMeshes, &v1.ListMeshesRequest{})
	meshes := []MeshInfo{}
	for _, mesh := range response.GetMeshes() {
		meshes = append(meshes, meshInfo(mesh))
	}
	return meshes, err
}

// DeleteMesh ends a mesh that has no tensors.
func (c *Client) DeleteMesh(ctx context.Context, name string) error {
	request := &v1.DeleteMeshRequest{RequestId: newRequestID(), Name: name}
	_, err := unary(ctx, c, c.stub.DeleteMesh, request)
	return err
}

// CreateTensor makes a tensor by an initializer, slice by slice on each rank.
func (c *Client) CreateTensor(ctx context.Context, name string, options CreateTensorOptions) (*TensorInfo, error) {
	placements, err := parsePlacements(options.Placements)
	if err != nil {
		return nil, err
	}
	if options.DType == "" {
		options.DType = F32
	}
	if options.Initializer == nil {
		options.Initializer = &v1.Initializer{Kind: &v1.Initializer_Zeros_{Zeros: &v1.Initializer_Zeros{}}}
	}
	request := &v1.CreateTensorRequest{RequestId: newRequestID(), Name: name, Mesh: options.Mesh, Placements: placements,
		Dtype: dtypeToProto(options.DType), Shape: options.Shape, Initializer: options.Initializer, Seed: options.Seed}
	response, err := unary(ctx, c, c.stub.CreateTensor, request)
	if err != nil {
		return nil, err
	}
	info := tensorInfo(response.GetTensor())
	return &info, nil
}

// RedistributeTensor changes a tensor's layout, or moves it to another mesh.
func (c *Client) RedistributeTensor(ctx context.Context, name string, options RedistributeOptions) (*RedistributeResult, error) {
	placements, err := parsePlacements(options.Placements)
	if err != nil {
		return nil, err
	}
	request := &v1.RedistributeTensorRequest{RequestId: newRequestID(), Name: name, Mesh: options.Mesh, Placements: placements, As: options.As}
	response, err := unary(ctx, c, c.stub.RedistributeTensor, request)
	if err != nil {
		return nil, err
	}
	steps := func(protos []*v1.RedistributeStepCount) (steps []RedistributeStep) {
		for _, step := range protos {
			steps = append(steps, RedistributeStep{step.GetOp(), step.GetAxis(), step.GetBytes()})
		}
		return steps
	}
	return &RedistributeResult{Tensor: tensorInfo(response.GetTensor()), Steps: steps(response.GetSteps()),
		Counted: steps(response.GetCounted()), WireBytes: response.GetWireBytes(), DurationUs: response.GetDurationUs()}, nil
}

// DescribeTensor is a tensor and the blocks of its ranks.
func (c *Client) DescribeTensor(ctx context.Context, name string) (*TensorDescription, error) {
	response, err := unary(ctx, c, c.stub.DescribeTensor, &v1.DescribeTensorRequest{Name: name})
	if err != nil {
		return nil, err
	}
	told := &TensorDescription{Tensor: tensorInfo(response.GetTensor())}
	for _, shard := range response.GetShards() {
		told.Shards = append(told.Shards, TensorShard{int(shard.GetRank()), shard.GetWorker(), shard.GetOffset(), shard.GetShape(), shard.GetSizeBytes()})
	}
	return told, nil
}

func tensorInfos(protos []*v1.TensorDescription) []TensorInfo {
	infos := []TensorInfo{}
	for _, tensor := range protos {
		infos = append(infos, tensorInfo(tensor))
	}
	return infos
}

// Tensors are all tensors, by name.
func (c *Client) Tensors(ctx context.Context) ([]TensorInfo, error) {
	response, err := unary(ctx, c, c.stub.ListTensors, &v1.ListTensorsRequest{})
	return tensorInfos(response.GetTensors()), err
}

// DeleteTensor frees a tensor on all its workers.
func (c *Client) DeleteTensor(ctx context.Context, name string) error {
	request := &v1.DeleteTensorRequest{RequestId: newRequestID(), Name: name}
	_, err := unary(ctx, c, c.stub.DeleteTensor, request)
	return err
}

// SaveTensors writes tensors as safetensors files to a folder that all workers see; they write their own blocks.
func (c *Client) SaveTensors(ctx context.Context, directory string, names ...string) (*SaveResult, error) {
	request := &v1.SaveTensorsRequest{RequestId: newRequestID(), Directory: directory, Names: names}
	response, err := unary(ctx, c, c.stub.SaveTensors, request)
	if err != nil {
		return nil, err
	}
	return &SaveResult{response.GetFiles(), response.GetSizeBytes()}, nil
}

// LoadTensors reads the tensors of a folder or a .safetensors file (no names: all), each worker its own slices.
func (c *Client) LoadTensors(ctx context.Context, directory, mesh, placements string, names ...string) (*LoadResult, error) {
	parsed, err := parsePlacements(placements)
	if err != nil {
		return nil, err
	}
	request := &v1.LoadTensorsRequest{RequestId: newRequestID(), Directory: directory, Mesh: mesh, Placements: parsed, Names: names}
	response, err := unary(ctx, c, c.stub.LoadTensors, request)
	if err != nil {
		return nil, err
	}
	return &LoadResult{tensorInfos(response.GetTensors()), response.GetBytesRead()}, nil
}

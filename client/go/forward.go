package tensorplane

import (
	"context"
	"io"
	"sort"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// Input of a forward: a *Tensor, *Shards or Ref.
type Input interface {
	// addTo fills the message and returns the arrays whose bytes follow.
	addTo(*v1.ForwardInput) ([][]byte, error)
}

// Inputs of a forward by name.
type Inputs map[string]Input

// Ref is an input that lies on the workers: a tensor on a mesh of the model's axes and workers.
type Ref string

// Shards is a tensor as blocks of ranks, one for each rank that holds any element.
type Shards struct {
	Blocks     map[int]*Tensor // by rank, of one dtype
	Placements string          // "tp=S(0)"; an axis that is not named is R; P is allowed
	Shape      []int64         // global; nil: inferred, which needs equal blocks
}

func (t *Tensor) addTo(input *v1.ForwardInput) ([][]byte, error) {
	if err := t.check("input '" + input.GetName() + "'"); err != nil {
		return nil, err
	}
	input.Dtype, input.Shape = dtypeToProto(t.DType), t.Shape
	return [][]byte{t.Data}, nil
}

func (r Ref) addTo(input *v1.ForwardInput) ([][]byte, error) {
	input.Source = &v1.ForwardInput_Ref{Ref: string(r)}
	return nil, nil
}

// locals are the blocks as messages, by rank, with their bytes and dtype.
func (s *Shards) locals(what string) (dtype DType, locals []*v1.LocalTensor, arrays [][]byte, err error) {
	if s == nil || len(s.Blocks) == 0 {
		return "", nil, nil, errorf(codes.InvalidArgument, "'%s': no block is given", what)
	}
	ranks := make([]int, 0, len(s.Blocks))
	for rank := range s.Blocks {
		ranks = append(ranks, rank)
	}
	sort.Ints(ranks)
	for _, rank := range ranks {
		tensor := s.Blocks[rank]
		if err := tensor.check("'" + what + "'"); err != nil {
			return "", nil, nil, err
		}
		if dtype == "" {
			dtype = tensor.DType
		}
		if tensor.DType != dtype {
			return "", nil, nil, errorf(codes.InvalidArgument, "'%s': the block of rank %d is %s, that of rank %d %s", what, rank,
				tensor.DType, ranks[0], dtype)
		}
		locals = append(locals, &v1.LocalTensor{Rank: int32(rank), Shape: tensor.Shape})
		arrays = append(arrays, tensor.Data)
	}
	return dtype, locals, arrays, nil
}

func (s *Shards) addTo(input *v1.ForwardInput) ([][]byte, error) {
	dtype, locals, arrays, err := s.locals(input.GetName())
	if err != nil {
		return nil, err
	}
	placements, err := parsePlacements(s.Placements)
	if err != nil {
		return nil, err
	}
	input.Dtype, input.Shape = dtypeToProto(dtype), s.Shape
	input.Source = &v1.ForwardInput_Shards{Shards: &v1.InputShards{Placements: placements, Locals: locals, InferShape: s.Shape == nil}}
	return arrays, nil
}

// ForwardOptions: OutputShards answers with each rank's block of every output in place of the global tensors.
// ModuleOutputs: the outputs of every module too, named "layers.0.fc:output".
type ForwardOptions struct {
	OutputShards, ModuleOutputs bool
	Progress                    Progress
}

// OutputShard is a rank's block of an output.
type OutputShard struct {
	Rank   int
	Offset []int64
	Tensor *Tensor
}

// OutputShards are the blocks of an output, by rank.
type OutputShards struct {
	DType      DType
	Shape      []int64 // global
	Placements string
	Shards     []OutputShard
}

// Collective as counted in the run; SizeBytes is the payload that the busiest rank received.
type Collective struct {
	Module, Op, Axis string
	SizeBytes        uint64
}

// ForwardResult is an answer. Names are those of the outputs, in the model's order.
type ForwardResult struct {
	Names                 []string
	Outputs               map[string]*Tensor
	OutputShards          map[string]*OutputShards // in place of Outputs, where asked for
	Mesh                  Mesh
	Collectives           []Collective
	WireBytes, DurationUs uint64
}

// Forward runs the model once. Options may be nil.
func (c *Client) Forward(ctx context.Context, model string, inputs Inputs, options *ForwardOptions) (*ForwardResult, error) {
	if options == nil {
		options = &ForwardOptions{}
	}
	header := &v1.ForwardHeader{RequestId: newRequestID(), Model: model, ModuleOutputs: options.ModuleOutputs}
	if options.OutputShards {
		header.OutputForm = v1.OutputForm_OUTPUT_FORM_SHARDS
	}
	names := make([]string, 0, len(inputs))
	for name := range inputs {
		names = append(names, name)
	}
	sort.Strings(names)
	var arrays [][]byte
	for _, name := range names {
		input := &v1.ForwardInput{Name: name}
		if inputs[name] == nil {
			return nil, errorf(codes.InvalidArgument, "input '%s': no tensor is given", name)
		}
		more, err := inputs[name].addTo(input)
		if err != nil {
			return nil, err
		}
		header.Inputs, arrays = append(header.Inputs, input), append(arrays, more...)
	}
	var result *ForwardResult
	err := c.run(ctx, func(ctx context.Context) (begun bool, err error) {
		stream, err := c.stub.Forward(ctx)
		if err != nil {
			return false, err
		}
		go func() { // its errors are told by the receiving side
			if stream.Send(&v1.ForwardRequest{Kind: &v1.ForwardRequest_Header{Header: header}}) == nil {
				_ = sendChunks(arrays, options.Progress, func(chunk *v1.Chunk) error {
					return stream.Send(&v1.ForwardRequest{Kind: &v1.ForwardRequest_Chunk{Chunk: chunk}})
				})
			}
			_ = stream.CloseSend()
		}()
		answer := &forwardAnswer{shards: options.OutputShards}
		for ; ; begun = true {
			message, err := stream.Recv()
			if err == io.EOF {
				result, err = answer.result()
				return begun, err
			}
			if err == nil {
				err = answer.add(message)
			}
			if err != nil {
				return begun, err
			}
		}
	})
	return result, err
}

// forwardAnswer checks the blocks of an answer as they come, and puts them together.
type forwardAnswer struct {
	shards  bool
	header  *v1.ForwardResponseHeader
	summary *v1.ForwardSummary
	mesh    Mesh
	dtypes  []DType // of the outputs
	blocks  []*block
	owners  []int // of each block the index of its output
}

func (a *forwardAnswer) add(message *v1.ForwardResponse) error {
	switch kind := message.GetKind().(type) {
	case *v1.ForwardResponse_Header:
		return a.begin(kind.Header)
	case *v1.ForwardResponse_Chunk:
		return receive(a.blocks, kind.Chunk)
	case *v1.ForwardResponse_Summary:
		a.summary = kind.Summary
	}
	return nil
}

func (a *forwardAnswer) begin(header *v1.ForwardResponseHeader) error {
	if a.header != nil {
		return errorf(codes.Internal, "the answer has two headers")
	}
	a.header, a.mesh = header, meshFromProto(header.GetMesh())
	for _, output := range header.GetOutputs() {
		dtype, err := dtypeFromProto(output.GetDtype())
		if err != nil {
			return err
		}
		a.dtypes = append(a.dtypes, dtype)
	}
	for _, proto := range header.GetBlocks() {
		if int64(proto.GetOutput()) >= int64(len(a.dtypes)) {
			return errorf(codes.Internal, "an answer's block names no output")
		}
		index := int(proto.GetOutput())
		output := header.GetOutputs()[index]
		b := &block{what: "output '" + output.GetName() + "'", rank: int(proto.GetRank()), offset: proto.GetOffset(),
			shape: proto.GetShape(), item: itemSizes[a.dtypes[index]]}
		if a.shards {
			owned := ownedIndices(output.GetShape(), a.mesh, output.GetPlacements(), b.rank)
			if !fits(b.shape, owned) {
				return errorf(codes.Internal, "an answer's block is not that of its rank")
			}
		} else if err := b.checkInside(output.GetShape()); err != nil {
			return err
		}
		a.blocks, a.owners = append(a.blocks, b), append(a.owners, index)
	}
	return nil
}

func fits(shape []int64, owned [][]int64) bool {
	if len(shape) != len(owned) {
		return false
	}
	for i, kept := range owned {
		if shape[i] != int64(len(kept)) {
			return false
		}
	}
	return true
}

func (a *forwardAnswer) result() (*ForwardResult, error) {
	if a.header == nil {
		return nil, errorf(codes.Internal, "the answer has no header")
	}
	if err := checkWhole(a.blocks); err != nil {
		return nil, err
	}
	result := &ForwardResult{Outputs: map[string]*Tensor{}, OutputShards: map[string]*OutputShards{}, Mesh: a.mesh,
		WireBytes: a.summary.GetWireBytes(), DurationUs: a.summary.GetDurationUs()}
	for _, count := range a.summary.GetCollectives() {
		result.Collectives = append(result.Collectives, Collective{count.GetModule(), count.GetOp(), count.GetAxis(), count.GetBytes()})
	}
	for index, output := range a.header.GetOutputs() {
		var blocks []*block
		for i, owner := range a.owners {
			if owner == index {
				blocks = append(blocks, a.blocks[i])
			}
		}
		result.Names = append(result.Names, output.GetName())
		if !a.shards {
			result.Outputs[output.GetName()] = join(blocks, a.dtypes[index], output.GetShape())
			continue
		}
		sort.Slice(blocks, func(i, j int) bool { return blocks[i].rank < blocks[j].rank })
		shards := &OutputShards{DType: a.dtypes[index], Shape: output.GetShape(), Placements: placementsText(a.mesh, output.GetPlacements())}
		for rank := 0; rank < a.mesh.Ranks(); rank++ {
			if len(blocks) != a.mesh.Ranks() || blocks[rank].rank != rank {
				return nil, errorf(codes.DataLoss, "the block of a rank is missing")
			}
			tensor := &Tensor{DType: shards.DType, Shape: blocks[rank].shape, Data: blocks[rank].data}
			shards.Shards = append(shards.Shards, OutputShard{rank, blocks[rank].offset, tensor})
		}
		result.OutputShards[output.GetName()] = shards
	}
	return result, nil
}

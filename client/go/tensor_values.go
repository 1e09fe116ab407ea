package tensorplane

import (
	"context"
	"io"
	"sort"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// PutOptions: an axis that Placements ("tp=S(0)") does not name is R. SrcDataRank: of equal copies, the coordinate that
// gets the bytes and passes them on. NoSrcDataRank: each gets them by itself.
type PutOptions struct {
	Mesh, Placements string
	SrcDataRank      int
	NoSrcDataRank    bool
	Progress         Progress
}

// PutTensor distributes a tensor.
func (c *Client) PutTensor(ctx context.Context, name string, tensor *Tensor, options PutOptions) (*TensorInfo, error) {
	if err := tensor.check("tensor '" + name + "'"); err != nil {
		return nil, err
	}
	header := &v1.PutTensorHeader{Name: name, Dtype: dtypeToProto(tensor.DType), Shape: tensor.Shape}
	return c.put(ctx, header, [][]byte{tensor.Data}, options)
}

// PutShards registers the blocks of ranks; their placements stand in them.
func (c *Client) PutShards(ctx context.Context, name string, shards *Shards, options PutOptions) (*TensorInfo, error) {
	if options.Placements != "" {
		return nil, errorf(codes.InvalidArgument, "the placements of Shards stand in them")
	}
	dtype, locals, arrays, err := shards.locals(name)
	if err != nil {
		return nil, err
	}
	options.Placements = shards.Placements
	header := &v1.PutTensorHeader{Name: name, Dtype: dtypeToProto(dtype), Shape: shards.Shape, Locals: locals, InferShape: shards.Shape == nil}
	return c.put(ctx, header, arrays, options)
}

func (c *Client) put(ctx context.Context, header *v1.PutTensorHeader, arrays [][]byte, options PutOptions) (*TensorInfo, error) {
	placements, err := parsePlacements(options.Placements)
	if err != nil {
		return nil, err
	}
	header.RequestId, header.Mesh, header.Placements = newRequestID(), options.Mesh, placements
	header.NoSrcDataRank = options.NoSrcDataRank
	if options.SrcDataRank != 0 {
		source := int32(options.SrcDataRank)
		header.SrcDataRank = &source
	}
	var response *v1.PutTensorResponse
	err = c.run(ctx, func(ctx context.Context) (bool, error) {
		stream, err := c.stub.PutTensor(ctx)
		if err != nil {
			return false, err
		}
		if err := stream.Send(&v1.PutTensorRequest{Kind: &v1.PutTensorRequest_Header{Header: header}}); err != nil && err != io.EOF {
			return false, err
		}
		err = sendChunks(arrays, options.Progress, func(chunk *v1.Chunk) error {
			return stream.Send(&v1.PutTensorRequest{Kind: &v1.PutTensorRequest_Chunk{Chunk: chunk}})
		})
		if err != nil && err != io.EOF { // EOF: the receiving side tells why
			return false, err
		}
		response, err = stream.CloseAndRecv()
		return false, err
	})
	if err != nil {
		return nil, err
	}
	info := tensorInfo(response.GetTensor())
	return &info, nil
}

// boxes are those of an answer.
type boxes struct {
	tensor *v1.TensorDescription
	dtype  DType
	blocks []*block
}

func (b *boxes) add(message *v1.GetTensorResponse) error {
	if chunk := message.GetChunk(); chunk != nil {
		return receive(b.blocks, chunk)
	}
	if b.tensor != nil {
		return errorf(codes.Internal, "the answer has two headers")
	}
	b.tensor = message.GetHeader().GetTensor()
	dtype, err := dtypeFromProto(b.tensor.GetDtype())
	if err != nil {
		return err
	}
	b.dtype = dtype
	for _, proto := range message.GetHeader().GetBlocks() {
		box := &block{what: "tensor '" + b.tensor.GetName() + "'", rank: int(proto.GetRank()), offset: proto.GetOffset(),
			shape: proto.GetShape(), item: itemSizes[dtype]}
		if err := box.checkInside(b.tensor.GetShape()); err != nil {
			return err
		}
		b.blocks = append(b.blocks, box)
	}
	return nil
}

func (c *Client) get(ctx context.Context, name string, localBlocks bool) (*boxes, error) {
	var whole *boxes
	err := c.run(ctx, func(ctx context.Context) (begun bool, err error) {
		stream, err := c.stub.GetTensor(ctx, &v1.GetTensorRequest{Name: name, LocalBlocks: localBlocks})
		if err != nil {
			return false, err
		}
		whole = &boxes{}
		for ; ; begun = true {
			message, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err == nil {
				err = whole.add(message)
			}
			if err != nil {
				return begun, err
			}
		}
		if whole.tensor == nil {
			return begun, errorf(codes.Internal, "the answer has no header")
		}
		return begun, checkWhole(whole.blocks)
	})
	return whole, err
}

// GetTensor is a tensor's global value; P is reduced on the way out.
func (c *Client) GetTensor(ctx context.Context, name string) (*Tensor, error) {
	whole, err := c.get(ctx, name, false)
	if err != nil {
		return nil, err
	}
	return join(whole.blocks, whole.dtype, whole.tensor.GetShape()), nil
}

// GetLocalBlocks are each rank's raw local block, terms of P as they are; a rank without elements has an empty one.
func (c *Client) GetLocalBlocks(ctx context.Context, name string) ([]*Tensor, error) {
	whole, err := c.get(ctx, name, true)
	if err != nil {
		return nil, err
	}
	mesh, item := meshFromProto(whole.tensor.GetAxes()), itemSizes[whole.dtype]
	locals := []*Tensor{}
	for rank := 0; rank < mesh.Ranks(); rank++ {
		owned := ownedIndices(whole.tensor.GetShape(), mesh, whole.tensor.GetPlacements(), rank)
		local := &Tensor{DType: whole.dtype, Shape: make([]int64, len(owned))}
		for dim, kept := range owned {
			local.Shape[dim] = int64(len(kept))
		}
		local.Data = make([]byte, elementCount(local.Shape)*item)
		got := int64(0)
		for _, box := range whole.blocks {
			if box.rank != rank || box.size() == 0 {
				continue
			}
			at, ok := place(owned, box) // a box is contiguous in the rank's block, too
			if !ok {
				return nil, errorf(codes.Internal, "rank %d sent a box that is not its own: offset %v, shape %v", rank, box.offset, box.shape)
			}
			copyBox(local.Data, local.Shape, at, box.data, box.shape, item)
			got += box.size()
		}
		if got != int64(len(local.Data)) {
			return nil, errorf(codes.DataLoss, "the block of rank %d is not whole", rank)
		}
		locals = append(locals, local)
	}
	return locals, nil
}

// place is where a box lies in the block of the rank that owns these indices.
func place(owned [][]int64, box *block) ([]int64, bool) {
	at := make([]int64, len(owned))
	for dim, kept := range owned {
		begin := sort.Search(len(kept), func(i int) bool { return kept[i] >= box.offset[dim] })
		at[dim] = int64(begin)
		for i := int64(0); i < box.shape[dim]; i++ {
			if begin+int(i) >= len(kept) || kept[begin+int(i)] != box.offset[dim]+i {
				return nil, false
			}
		}
	}
	return at, true
}

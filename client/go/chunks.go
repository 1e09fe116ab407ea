package tensorplane

import (
	"hash/crc32"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// chunkBytes is the most that a chunk holds.
const chunkBytes = 1 << 20

// Progress is called with bytes sent and in all, before the first chunk and after each.
type Progress func(done, total int64)

// sendChunks sends the arrays one after the other, each in chunks with their CRC-32.
func sendChunks(arrays [][]byte, progress Progress, send func(*v1.Chunk) error) error {
	var done, total int64
	for _, data := range arrays {
		total += int64(len(data))
	}
	if progress != nil {
		progress(0, total)
	}
	for index, data := range arrays {
		for offset := 0; offset < len(data); offset += chunkBytes {
			end := offset + chunkBytes
			if end > len(data) {
				end = len(data)
			}
			piece := data[offset:end]
			chunk := &v1.Chunk{Index: uint32(index), Offset: uint64(offset), Data: piece, Crc32: crc32.ChecksumIEEE(piece)}
			if err := send(chunk); err != nil {
				return err
			}
			done += int64(len(piece))
			if progress != nil {
				progress(done, total)
			}
		}
	}
	return nil
}

// block is a box of a tensor that arrives row-major.
type block struct {
	what          string // for messages
	rank          int
	offset, shape []int64
	item          int64
	data          []byte
}

func (b *block) size() int64 { return elementCount(b.shape) * b.item }

func (b *block) checkInside(shape []int64) error {
	inside := len(b.offset) == len(shape) && len(b.shape) == len(shape)
	for i := 0; inside && i < len(shape); i++ {
		inside = b.offset[i] >= 0 && b.shape[i] >= 0 && b.offset[i] <= shape[i]-b.shape[i]
	}
	if !inside {
		return errorf(codes.Internal, "%s: a block of the answer lies outside of its tensor", b.what)
	}
	return nil
}

// receive checks a chunk and adds it to its block.
func receive(blocks []*block, chunk *v1.Chunk) error {
	if int64(chunk.GetIndex()) >= int64(len(blocks)) {
		return errorf(codes.Internal, "a chunk names no block")
	}
	if crc32.ChecksumIEEE(chunk.GetData()) != chunk.GetCrc32() {
		return errorf(codes.DataLoss, "chunk %d at offset %d: checksum does not match", chunk.GetIndex(), chunk.GetOffset())
	}
	to := blocks[chunk.GetIndex()]
	if chunk.GetOffset() != uint64(len(to.data)) || int64(len(to.data)+len(chunk.GetData())) > to.size() {
		return errorf(codes.Internal, "the answer's chunks are out of order")
	}
	to.data = append(to.data, chunk.GetData()...)
	return nil
}

func checkWhole(blocks []*block) error {
	for _, b := range blocks {
		if int64(len(b.data)) != b.size() {
			return errorf(codes.DataLoss, "%s: expected %d bytes of a block, got %d", b.what, b.size(), len(b.data))
		}
	}
	return nil
}

// join is the tensor of which the blocks together are the whole.
func join(blocks []*block, dtype DType, shape []int64) *Tensor {
	whole := &Tensor{DType: dtype, Shape: append([]int64{}, shape...), Data: make([]byte, elementCount(shape)*itemSizes[dtype])}
	for _, b := range blocks {
		copyBox(whole.Data, shape, b.offset, b.data, b.shape, b.item)
	}
	return whole
}

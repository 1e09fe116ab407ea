package tensorplane

import (
	"bytes"
	"encoding/binary"
	"math"

	"google.golang.org/grpc/codes"

	v1 "github.com/tensorplane/tensorplane/client/go/tpv1"
)

// DType is an element type, named as in safetensors.
type DType string

// The element types.
const (
	F32  DType = "F32"
	BF16 DType = "BF16"
	F16  DType = "F16"
	F64  DType = "F64"
	I64  DType = "I64"
	I32  DType = "I32"
	U8   DType = "U8"
	Bool DType = "BOOL"
)

var itemSizes = map[DType]int64{F32: 4, BF16: 2, F16: 2, F64: 8, I64: 8, I32: 4, U8: 1, Bool: 1}

// Tensor is a dense row-major array, little endian. A shape without dims is a scalar; a 0 is legal in any dim.
type Tensor struct {
	DType DType
	Shape []int64
	Data  []byte
}

// Element is what Go has a type for.
type Element interface {
	float32 | float64 | int64 | int32 | uint8 | bool
}

func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int64:
		return I64
	case int32:
		return I32
	case uint8:
		return U8
	}
	return Bool
}

// NewTensor copies the values. Calls refuse one whose number of values is not that of its shape.
func NewTensor[T Element](values []T, shape ...int64) *Tensor {
	var data bytes.Buffer
	_ = binary.Write(&data, binary.LittleEndian, values) // a buffer takes all
	return &Tensor{DType: dtypeOf[T](), Shape: append([]int64{}, shape...), Data: data.Bytes()}
}

// Values are those of a tensor of T's type. INVALID_ARGUMENT where it is of another one.
func Values[T Element](tensor *Tensor) ([]T, error) {
	if tensor == nil {
		return nil, errorf(codes.InvalidArgument, "there is no such tensor")
	}
	if tensor.DType != dtypeOf[T]() {
		return nil, errorf(codes.InvalidArgument, "the tensor is of %s, not of %s", tensor.DType, dtypeOf[T]())
	}
	if err := tensor.check("tensor"); err != nil {
		return nil, err
	}
	values := make([]T, elementCount(tensor.Shape))
	if err := binary.Read(bytes.NewReader(tensor.Data), binary.LittleEndian, values); err != nil && len(values) > 0 {
		return nil, errorf(codes.InvalidArgument, "tensor: %v", err)
	}
	return values, nil
}

// NewBFloat16 rounds the values to the nearest bfloat16, halves to even.
func NewBFloat16(values []float32, shape ...int64) *Tensor {
	data := make([]byte, 2*len(values))
	for i, value := range values {
		bits := math.Float32bits(value)
		if value != value {
			bits |= 0x400000
		} else {
			bits += 0x7FFF + (bits>>16)&1
		}
		binary.LittleEndian.PutUint16(data[2*i:], uint16(bits>>16))
	}
	return &Tensor{DType: BF16, Shape: append([]int64{}, shape...), Data: data}
}

// Float32s are the values of a tensor of F32 or BF16; exact.
func (t *Tensor) Float32s() ([]float32, error) {
	if t == nil || t.DType != BF16 {
		return Values[float32](t)
	}
	if err := t.check("tensor"); err != nil {
		return nil, err
	}
	values := make([]float32, len(t.Data)/2)
	for i := range values {
		values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
	}
	return values, nil
}

func (t *Tensor) check(what string) error {
	if t == nil {
		return errorf(codes.InvalidArgument, "%s: no tensor is given", what)
	}
	size, known := itemSizes[t.DType]
	if !known {
		return errorf(codes.InvalidArgument, "%s: unknown dtype '%s'; known are F32, BF16, F16, F64, I64, I32, U8, BOOL", what, t.DType)
	}
	for _, dim := range t.Shape {
		if dim < 0 {
			return errorf(codes.InvalidArgument, "%s: shape %v has a negative size", what, t.Shape)
		}
	}
	if want := elementCount(t.Shape) * size; want != int64(len(t.Data)) {
		return errorf(codes.InvalidArgument, "%s: expected %d bytes of %s%v, got %d", what, want, t.DType, t.Shape, len(t.Data))
	}
	return nil
}

func elementCount(shape []int64) int64 {
	count := int64(1)
	for _, dim := range shape {
		count *= dim
	}
	return count
}

func dtypeToProto(dtype DType) v1.DataType { return v1.DataType(v1.DataType_value[string(dtype)]) }

func dtypeFromProto(proto v1.DataType) (DType, error) {
	dtype := DType(proto.String())
	if _, known := itemSizes[dtype]; !known {
		return "", errorf(codes.Internal, "the answer has an unknown element type: %v", proto)
	}
	return dtype, nil
}

// copyBox copies a row-major box of the given shape to offset `to` of a row-major array.
func copyBox(array []byte, shape []int64, to []int64, box []byte, boxShape []int64, item int64) {
	if len(shape) == 0 || len(box) == 0 {
		copy(array, box)
		return
	}
	inner, boxInner := elementCount(shape[1:])*item, elementCount(boxShape[1:])*item
	for i := int64(0); i < boxShape[0]; i++ {
		copyBox(array[(to[0]+i)*inner:(to[0]+i+1)*inner], shape[1:], to[1:], box[i*boxInner:(i+1)*boxInner], boxShape[1:], item)
	}
}

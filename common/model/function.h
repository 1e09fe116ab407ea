// The functions that graph nodes call and programs run: names, arguments, attributes, and shape inference. One table.
// Example: FindFunction("softmax")->arguments[0].name is "input".
// Functions by family; sizes are global, `?` marks optional arguments, attributes stand behind the semicolon with their
// defaults. dtypes: F32 and BF16 ("floating"), I64 and I32 ("integer"), BOOL. Broadcasting is numpy's.
//  linear.cc      linear(input, weight, bias?; output_dtype="")           [.., k] x [n, k] -> [.., n]
//                 embedding(input, weight)                                ids [..] -> [.., d]
//                 conv1d, conv2d(input, weight, bias?; stride, padding, dilation = integers, groups=1)
//                                           [batch, in, size..] x [out, in/groups, kernel..] -> [batch, out, size'..]
//                 matmul(input, other)      numpy's: [.., m, k] x [.., k, n], 1-D operands too
//                 bmm(input, other)         [b, m, k] x [b, k, n]
//  attention.cc   rotary(input; theta=1e4)                [batch, time, heads, head_dim]   (positions are implicit)
//                 attention(query, key, value; causal=true, scale=0 (1/sqrt(head_dim)), cache=true)
//  norm.cc        rms_norm(input, weight; eps=1e-6)       last dim
//                 layer_norm(input, weight?, bias?; dims=1, eps=1e-5)    over the last `dims` dims
//                 softmax, log_softmax(input; dim=-1)
//  elementwise.cc neg, abs, exp, log, sqrt, rsqrt, sin, cos, tanh, sigmoid, silu, relu, gelu(input); gelu:
//                 approximate="none"|"tanh"; logical_not(input) BOOL; cast(input; dtype)
//                 add, sub, mul, div, pow, maximum, minimum, floor_div, remainder(input, other?; scalar)
//                 eq, ne, lt, le, gt, ge(input, other?; scalar) -> BOOL; logical_and, logical_or(input, other) BOOL
//                    (exactly one of `other` and `scalar` is given; both operands have one dtype; div and pow of
//                    integers are refused: cast first; floor_div and remainder are Python's; NaN != NaN)
//                 where(condition, input, other), masked_fill(input, mask; value)   condition and mask BOOL
//  shape.cc       reshape, view(input; shape: dims, -1 once), flatten(input; start_dim=0, end_dim=-1)
//                 squeeze(input; dims=[] (all of constant size 1)), unsqueeze(input; dim)
//                 transpose(input; dim0, dim1), permute(input; dims), expand(input; shape, -1 keeps a size)
//                 cat, stack(tensors...; dim=0), split(input; sizes, dim=0) and chunk(input; chunks, dim=0) -> several
//                 slice(input; dim=0, start=0, end=max, step=1), select(input; dim, index) (both from the end where
//                 negative; of a free dim: slice with step 1, start >= 0 and end max or negative, select any)
//  index.cc       index_select(input, index; dim)     index [n] integer
//                 gather(input, index; dim)           index: rank of input, sizes <= input's but on dim
//                 arange(; start=0, end: dims of one, step=1, dtype=I64)          [ceil((end - start) / step)]
//                 pick(input, index; dim, ignore_index) [.., 1 at dim, ..] <- index without dim; 0 where ignored
//  reduce.cc      sum, mean, max, min(input; dims=[] (all), keepdim=false)        mean: floating; sum of BOOL: I64
//                 argmax(input; dim=-1, keepdim=false), topk(input; k, dim=-1) -> values, indices (descending)
//                 max_with_index, min_with_index(input; dim, keepdim=false) -> values, indices
//                    (ties to the lowest index; NaN counts as the largest value)
//                 cross_entropy(input, target; dim=1, ignore_index=-100, reduction="mean"|"sum"|"none")   F32
// Programs have all but these, which flattening replaces: view, flatten, squeeze, unsqueeze by reshape; bmm by matmul;
// chunk by split; stack by reshape and cat; cross_entropy by max, sub, exp, sum, log, pick, eq, masked_fill, div, ...
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/attribute.h"
#include "common/tensor/dim.h"
#include "common/tensor/dtype.h"

namespace tp {

// dtype and global symbolic shape of a value.
struct TensorType {
  DType dtype = DType::kF32;
  SymShape shape;
  bool operator==(const TensorType&) const = default;
};

struct FunctionArgument {
  std::string name;
  bool optional = false;
  bool variadic = false;  // the last one: takes one value or more
};
struct FunctionAttribute {
  std::string name;
  Attribute fallback;  // also gives the type
  bool required = false;
};
struct FunctionDef {
  std::string name;
  std::vector<FunctionArgument> arguments;
  std::vector<FunctionAttribute> attributes;
  // Types of the outputs. `inputs` has one entry for each argument (of a variadic one: for each value), nullptr for an
  // omitted optional. INVALID_ARGUMENT with the shapes where they do not fit; UNIMPLEMENTED naming what is left out.
  std::function<absl::StatusOr<std::vector<TensorType>>(absl::Span<const TensorType* const> inputs,
                                                        const Attributes& attributes)>
      infer;
};

// nullptr where there is no such function.
const FunctionDef* FindFunction(std::string_view name);
std::vector<std::string> FunctionNames();
// Fills defaults; INVALID_ARGUMENT with all unknown names (with the nearest), wrong types and missing required ones. An
// integer is accepted for a number.
absl::StatusOr<Attributes> CheckAttributes(const FunctionDef& function, const Attributes& given);

}  // namespace tp

// The functions that graph nodes call and programs run: names, arguments, attributes, and shape inference. One table.
// Example: FindFunction("softmax")->arguments[0].name is "input".
//   linear(input, weight, bias?)        [.., k] x [n, k] -> [.., n]            output_dtype
//   embedding(input, weight)            ids [..] -> [.., d]
//   rms_norm(input, weight)             last dim                                eps
//   rotary(input)                       [batch, time, heads, head_dim]          theta   (positions are implicit)
//   attention(query, key, value)        [batch, time, heads, head_dim]          causal, scale (0 = 1/sqrt(head_dim))
//   silu(input), relu(input), gelu(input)                                       approximate ("none", "tanh")
//   add, sub, mul(input, other)         numpy broadcasting                      (one floating dtype)
//   softmax(input)                                                              dim
//   reshape(input)                                                              shape (dims; -1 once)
//   transpose(input)                                                            dim0, dim1
//   argmax(input)                       -> I64 without the dim                  dim
//   cast(input)                                                                 dtype
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
  // Types of the outputs. `inputs` has one entry for each argument, nullptr for an omitted optional. INVALID_ARGUMENT
  // with the shapes where they do not fit.
  std::function<absl::StatusOr<std::vector<TensorType>>(absl::Span<const TensorType* const> inputs,
                                                        const Attributes& attributes)>
      infer;
};

// nullptr where there is no such function.
const FunctionDef* FindFunction(std::string_view name);
std::vector<std::string> FunctionNames();
// Fills defaults; INVALID_ARGUMENT for unknown names (with the nearest), wrong types and missing required ones. An
// integer is accepted for a number.
absl::StatusOr<Attributes> CheckAttributes(const FunctionDef& function, const Attributes& given);

}  // namespace tp

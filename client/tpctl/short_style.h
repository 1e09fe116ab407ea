// Styles as tables show them: without arguments at their defaults, layouts in the short forms of placements. Pure.
// Example: "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)" is
// "ColwiseParallel", and with output_layouts=(Replicate(),) "ColwiseParallel(output_layouts=R)".
#pragma once

#include <string>

namespace tp::client {

// `text`: StyleText of one style, or of several joined by "; ".
std::string ShortStyle(const std::string& text);

}  // namespace tp::client

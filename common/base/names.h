// Help for wrong names in errors: the candidates nearest to what was given.
// Example: NearestNames("layers.*.wl", {"w1", "w2"}).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tp {

// At most `limit` of `candidates`, nearest by edit distance first (ties by name).
std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& candidates,
                                      size_t limit = 3);
// "a, b or c"; "none" for an empty list.
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace tp

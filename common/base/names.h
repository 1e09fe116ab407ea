// Help for wrong names in errors: the candidates nearest to what was given, and texts cut to what a message can hold.
// Example: NearestNames("layers.*.wl", {"w1", "w2"}).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tp {

// At most `limit` of `candidates`, nearest by edit distance first (ties by name).
std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& candidates,
                                      size_t limit = 3);
// What a message repeats of a user's text: cut to about `most` bytes, between characters, with "..." behind.
std::string Cut(std::string_view text, size_t most = 80);
// "a, b or c", each cut; "none" for an empty list.
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace tp

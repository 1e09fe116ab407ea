// Numbers with their noun in messages. Example: CountText(1, "collective") is "1 collective", of 2 "2 collectives".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tp {

// `noun` in the singular; its plural has an s.
inline std::string CountText(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace tp

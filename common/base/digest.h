// Checksums of bytes: CRC-32 (zlib's, on the wire) and SHA-256 (fingerprints of programs, contents of requests).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tp {

// CRC-32 as zlib computes it. Crc32("123456789") == 0xcbf43926. `before`: of the bytes that come before these.
uint32_t Crc32(std::string_view bytes, uint32_t before = 0);
// The 32 bytes of SHA-256, as 64 lower-case hex digits.
std::string Sha256Hex(std::string_view bytes);

}  // namespace tp

// Weight schemes and packed layouts of package format 1 (src/edgeseek/package/FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace edgeseek {

enum class Scheme : uint8_t { f32, f16, q8, q4, q4z, q5, q5z, q4k, q5k, q6k };
constexpr int kSchemeCount = 10;

struct SchemeInfo {
    const char* name;
    int block;              // columns in a block
    int bytes_per_channel;  // bytes of a block for one channel
};

constexpr SchemeInfo kSchemeInfo[kSchemeCount] = {
    {"f32", 1, 4},  {"f16", 1, 2},   {"q8", 32, 34},    {"q4", 32, 18},    {"q4z", 32, 20},
    {"q5", 32, 22}, {"q5z", 32, 24}, {"q4k", 256, 144}, {"q5k", 256, 176}, {"q6k", 256, 210},
};

inline const SchemeInfo& info(Scheme scheme) { return kSchemeInfo[static_cast<int>(scheme)]; }

inline Scheme scheme_from_name(const std::string& name) {
    for (int i = 0; i < kSchemeCount; ++i) {
        if (name == kSchemeInfo[i].name) return static_cast<Scheme>(i);
    }
    throw std::invalid_argument("unknown weight scheme '" + name + "'");
}

/// Whether products are integer, on int8 activations (else fp32 activations).
inline bool is_integer(Scheme scheme) { return scheme != Scheme::f32 && scheme != Scheme::f16; }

constexpr int kTile = 16;   // output channels interleaved in layout "tiles"
constexpr int kGroup = 32;  // columns that share an activation scale
constexpr int kChunk = 4;   // columns interleaved per channel

}  // namespace edgeseek

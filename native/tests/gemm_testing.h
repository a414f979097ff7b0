// Random packed tiles, what they stand for by FORMAT.md, and quantized activations, for tests of the
// products.
#pragma once

#include <cmath>

#include "edgeseek/exact_math.h"
#include "kernel_testing.h"

namespace kernel_testing {

using edgeseek::Activations;
using edgeseek::Scheme;

inline std::vector<Scheme> all_schemes() {
    std::vector<Scheme> schemes;
    for (int i = 0; i < edgeseek::kSchemeCount; ++i) schemes.push_back(static_cast<Scheme>(i));
    return schemes;
}

/// Column counts to test: one block, several, and one that is no multiple of the 1,024 columns unpacked at a
/// time.
inline std::vector<size_t> column_counts(Scheme scheme) {
    switch (edgeseek::info(scheme).block) {
        case 256:
            return {256, 1024, 1280};
        case 32:
            return {32, 96, 1024, 1056};
        default:
            return {1, 40, 1056};
    }
}

/// One tile of 16 channels in its packed form.
struct Tile {
    Scheme scheme;
    size_t columns;
    Guarded<uint8_t> bytes;

    size_t block_bytes() const { return static_cast<size_t>(edgeseek::info(scheme).bytes_per_channel) * 16; }
    size_t blocks() const { return columns / static_cast<size_t>(edgeseek::info(scheme).block); }
};

inline Tile empty_tile(Scheme scheme, size_t columns) {
    const auto block = static_cast<size_t>(edgeseek::info(scheme).block);
    const auto bytes = static_cast<size_t>(edgeseek::info(scheme).bytes_per_channel) * 16;
    return {scheme, columns, Guarded<uint8_t>(columns / block * bytes)};
}

inline void put_half(uint8_t* p, float value) {
    const uint16_t half = edgeseek::float_to_half(value);
    std::memcpy(p, &half, 2);
}

/// Arrays of 16 halves that a block of an integer scheme starts with.
inline int leading_scales(Scheme scheme) {
    switch (scheme) {
        case Scheme::q4z:
        case Scheme::q5z:
        case Scheme::q4k:
        case Scheme::q5k:
            return 2;
        default:
            return 1;
    }
}

inline Tile random_tile(Random& random, Scheme scheme, size_t columns) {
    Tile tile = empty_tile(scheme, columns);
    if (scheme == Scheme::f32) {
        for (size_t i = 0; i < 16 * columns; ++i) {
            const float v = random.uniform(-0.5f, 0.5f);
            std::memcpy(tile.bytes.data() + 4 * i, &v, 4);
        }
        return tile;
    }
    if (scheme == Scheme::f16) {
        for (size_t i = 0; i < 16 * columns; ++i) {
            put_half(tile.bytes.data() + 2 * i, random.uniform(-0.5f, 0.5f));
        }
        return tile;
    }
    for (uint8_t& b : tile.bytes) b = random.byte();
    for (size_t b = 0; b < tile.blocks(); ++b) {
        for (int i = 0; i < 16 * leading_scales(scheme); ++i) {
            put_half(tile.bytes.data() + b * tile.block_bytes() + 2 * i, random.uniform(-0.05f, 0.05f));
        }
    }
    return tile;
}

/// Every code (and sub-block scale) at its largest magnitude, every half 1.
inline Tile extreme_tile(Scheme scheme, size_t columns) {
    Tile tile = empty_tile(scheme, columns);
    for (uint8_t& b : tile.bytes) b = scheme == Scheme::q8 ? 0x80 : 0xff;
    for (size_t b = 0; b < tile.blocks(); ++b) {
        uint8_t* block = tile.bytes.data() + b * tile.block_bytes();
        for (int i = 0; i < 16 * leading_scales(scheme); ++i) put_half(block + 2 * i, 1.0f);
        if (scheme == Scheme::q6k) std::memset(block + 32, 0x80, 256);
    }
    return tile;
}

/// Reads one tile as FORMAT.md describes it, value by value, with no code in common with the kernels.
class TileReader {
  public:
    explicit TileReader(const Tile& tile) : tile_(tile) {}

    double value(size_t channel, size_t column) const {
        const uint8_t* all = tile_.bytes.data();
        if (tile_.scheme == Scheme::f32) {
            float v;
            std::memcpy(&v, all + 4 * (16 * column + channel), 4);
            return v;
        }
        if (tile_.scheme == Scheme::f16) return half(all + 32 * column, channel);

        const auto width = static_cast<size_t>(edgeseek::info(tile_.scheme).block);
        const uint8_t* block = all + column / width * tile_.block_bytes();
        const size_t in_block = column % width, group = in_block / 32, chunk = in_block % 32 / 4;
        const size_t byte = 4 * channel + in_block % 4;  // of a chunk
        const double d = half(block, channel);
        switch (tile_.scheme) {
            case Scheme::q8:
                return d * static_cast<int8_t>(block[32 + 64 * chunk + byte]);
            case Scheme::q4:
                return d * (nibble(block + 32, chunk, byte) - 8);
            case Scheme::q4z:
                return d * nibble(block + 64, chunk, byte) + half(block + 32, channel);
            case Scheme::q5:
                return d * (five_bits(block + 32, chunk, byte) - 16);
            case Scheme::q5z:
                return d * five_bits(block + 64, chunk, byte) + half(block + 32, channel);
            case Scheme::q4k: {
                const int code = nibble(block + 256 + 256 * group, chunk, byte);
                return d * six_bits(block + 64, group, channel) * code - minimum(block, group, channel);
            }
            case Scheme::q5k: {
                const int code = five_bits(block + 256 + 320 * group, chunk, byte);
                return d * six_bits(block + 64, group, channel) * code - minimum(block, group, channel);
            }
            default: {
                const uint8_t* codes = block + 288 + 384 * group;
                const int high = codes[256 + 64 * (chunk / 4) + byte] >> (2 * (chunk % 4)) & 3;
                const size_t row = 2 * group + (chunk < 4 ? 0 : 1);
                const auto scale = static_cast<int8_t>(block[32 + 16 * row + channel]);
                return d * scale * ((nibble(codes, chunk, byte) | high << 4) - 32);
            }
        }
    }

  private:
    static double half(const uint8_t* p, size_t i) {
        const int bits = p[2 * i] | p[2 * i + 1] << 8;
        const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        const double magnitude =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        return bits & 0x8000 ? -magnitude : magnitude;
    }
    static int nibble(const uint8_t* nibbles, size_t chunk, size_t byte) {
        const int pair = nibbles[64 * (chunk / 2) + byte];
        return chunk % 2 == 0 ? pair & 15 : pair >> 4;
    }
    static int five_bits(const uint8_t* nibbles, size_t chunk, size_t byte) {
        return nibble(nibbles, chunk, byte) | (nibbles[256 + byte] >> chunk & 1) << 4;
    }
    static int six_bits(const uint8_t* scales, size_t group, size_t channel) {
        const int low = scales[16 * (group / 2) + channel] >> (4 * (group % 2)) & 15;
        const int high = scales[64 + 16 * (group / 4) + channel] >> (2 * (group % 4)) & 3;
        return low | high << 4;
    }
    static double minimum(const uint8_t* block, size_t group, size_t channel) {
        return half(block + 32, channel) * six_bits(block + 64 + 96, group, channel);
    }

    const Tile& tile_;
};

/// Rows of activations with their quantized form, made by one table.
class Rows {
  public:
    Rows(const Kernels& kernels, const Guarded<float>& x, size_t rows, size_t columns)
        : rows_(rows),
          columns_(columns),
          groups_(columns / 32),
          x_(x.data()),
          q_(rows * columns),
          d_(rows * groups_),
          sum_(rows * groups_),
          sum8_(rows * groups_),
          sum16_(rows * groups_),
          half32_(2 * rows * groups_) {
        if (columns % 32 != 0) return;  // only float schemes have such widths, and they read x
        for (size_t r = 0; r < rows; ++r) {
            kernels.quantize(x_ + r * columns, columns, row(r));
        }
    }

    edgeseek::QuantizedRow row(size_t r) {
        const size_t g = r * groups_;
        return {q_.data() + r * columns_, d_.data() + g,     sum_.data() + g,
                sum8_.data() + g,         sum16_.data() + g, half32_.data() + 2 * g};
    }
    Activations activations() const {
        Activations a;
        a.q = q_.data();
        a.d = d_.data();
        a.sum = sum_.data();
        a.sum8 = sum8_.data();
        a.sum16 = sum16_.data();
        a.half32 = half32_.data();
        a.x = x_;
        a.ldq = columns_;
        a.ldg = groups_;
        a.ldx = columns_;
        return a;
    }
    /// What the kernels of `scheme` multiply with.
    double value(Scheme scheme, size_t r, size_t column) const {
        if (!edgeseek::is_integer(scheme)) return static_cast<double>(x_[r * columns_ + column]);
        const size_t g = r * groups_ + column / 32;
        return static_cast<double>(d_[g]) * q_[r * columns_ + column];
    }
    size_t rows() const { return rows_; }
    size_t columns() const { return columns_; }

  private:
    size_t rows_, columns_, groups_;
    const float* x_;
    Guarded<int8_t> q_;
    Guarded<float> d_, sum_, sum8_, sum16_, half32_;
};

/// Products of `tile` with all rows, [rows][16]; throws if the kernel writes anything else.
inline std::vector<float> multiply(const Kernels& kernels, const Tile& tile, const Rows& rows,
                                   size_t first = 0, size_t count = 0) {
    constexpr size_t ldo = 19;
    constexpr float untouched = -12345.0f;
    count = count == 0 ? rows.rows() : count;
    alignas(64) static thread_local uint8_t scratch[edgeseek::kScratchBytes];
    std::vector<float> wide(count * ldo, untouched), out;
    kernels.gemm[static_cast<int>(tile.scheme)](tile.bytes.data(), tile.columns,
                                                rows.activations().from_row(first), count, wide.data(), ldo,
                                                scratch, tile.bytes.data());
    for (size_t r = 0; r < count; ++r) {
        out.insert(out.end(), wide.begin() + static_cast<std::ptrdiff_t>(r * ldo),
                   wide.begin() + static_cast<std::ptrdiff_t>(r * ldo + 16));
        for (size_t i = 16; i < ldo; ++i) {
            if (wide[r * ldo + i] != untouched) throw std::runtime_error("wrote beyond 16 channels");
        }
    }
    return out;
}

}  // namespace kernel_testing

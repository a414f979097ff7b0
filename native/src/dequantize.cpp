// Rows of packed matrices as floats: embedding look-ups and checks. One row at a time, any layout.
#include <cstring>

#include "edgeseek/exact_math.h"
#include "edgeseek/matrix.h"

namespace edgeseek {
namespace {

/// Reads one channel of a block whose parts interleave `width` channels.
struct Channel {
    const uint8_t* block;
    size_t width;
    size_t index;

    float half(size_t offset) const {  // offset in bytes per channel
        uint16_t bits;
        std::memcpy(&bits, block + offset * width + 2 * index, 2);
        return half_to_float(bits);
    }
    uint8_t byte(size_t offset) const { return block[offset * width + index]; }
    /// Byte of column `k` (0..31) of a run of chunks that starts at `offset` bytes per channel.
    uint8_t chunk_byte(size_t offset, size_t chunk, size_t k) const {
        return block[(offset + 4 * chunk) * width + 4 * index + k % 4];
    }
    int nibble(size_t offset, size_t k) const {
        const size_t chunk = k / 4;
        return (chunk_byte(offset, chunk / 2, k) >> (4 * (chunk % 2))) & 15;
    }
    int five_bits(size_t offset, size_t k) const {
        return nibble(offset, k) | ((chunk_byte(offset + 16, 0, k) >> (k / 4) & 1) << 4);
    }
    int six_bits(size_t offset, size_t k) const {
        const size_t chunk = k / 4;
        return nibble(offset, k) | ((chunk_byte(offset + 16, chunk / 4, k) >> (2 * (chunk % 4)) & 3) << 4);
    }
    int scale(size_t offset, size_t sub) const {  // 6-bit scales of q4k and q5k
        const int low = byte(offset + sub / 2) >> (4 * (sub % 2)) & 15;
        const int high = byte(offset + 4 + sub / 4) >> (2 * (sub % 4)) & 3;
        return low | high << 4;
    }
};

void block_values(Scheme scheme, const Channel& c, size_t count, float* out) {
    switch (scheme) {
        case Scheme::f32:
            std::memcpy(out, c.block + 4 * c.index, 4);
            return;
        case Scheme::f16:
            out[0] = c.half(0);
            return;
        case Scheme::q8: {
            const float d = c.half(0);
            for (size_t k = 0; k < count; ++k) {
                out[k] = d * static_cast<float>(static_cast<int8_t>(c.chunk_byte(2, k / 4, k)));
            }
            return;
        }
        case Scheme::q4: {
            const float d = c.half(0);
            for (size_t k = 0; k < count; ++k) out[k] = d * static_cast<float>(c.nibble(2, k) - 8);
            return;
        }
        case Scheme::q4z: {
            const float d = c.half(0), m = c.half(2);
            for (size_t k = 0; k < count; ++k) out[k] = d * static_cast<float>(c.nibble(4, k)) + m;
            return;
        }
        case Scheme::q5: {
            const float d = c.half(0);
            for (size_t k = 0; k < count; ++k) out[k] = d * static_cast<float>(c.five_bits(2, k) - 16);
            return;
        }
        case Scheme::q5z: {
            const float d = c.half(0), m = c.half(2);
            for (size_t k = 0; k < count; ++k) out[k] = d * static_cast<float>(c.five_bits(4, k)) + m;
            return;
        }
        case Scheme::q4k:
        case Scheme::q5k: {
            const size_t group_bytes = scheme == Scheme::q4k ? 16 : 20;
            const float d = c.half(0), dmin = c.half(2);
            for (size_t k = 0; k < count; ++k) {
                const size_t sub = k / 32, offset = 16 + sub * group_bytes;
                const float scale = d * static_cast<float>(c.scale(4, sub));
                const float minimum = dmin * static_cast<float>(c.scale(10, sub));
                const int code =
                    scheme == Scheme::q4k ? c.nibble(offset, k % 32) : c.five_bits(offset, k % 32);
                out[k] = scale * static_cast<float>(code) - minimum;
            }
            return;
        }
        case Scheme::q6k: {
            const float d = c.half(0);
            for (size_t k = 0; k < count; ++k) {
                const float scale = d * static_cast<float>(static_cast<int8_t>(c.byte(2 + k / 16)));
                out[k] = scale * static_cast<float>(c.six_bits(18 + k / 32 * 24, k % 32) - 32);
            }
            return;
        }
    }
}

}  // namespace

void dequantize_row(const Matrix& matrix, size_t row, float* out) {
    const size_t width = matrix.interleave();
    const size_t block = static_cast<size_t>(info(matrix.scheme).block);
    const size_t block_bytes = static_cast<size_t>(info(matrix.scheme).bytes_per_channel) * width;
    const uint8_t* data = matrix.tile(row / width);
    for (size_t k = 0; k < matrix.columns; k += block) {
        const size_t count = matrix.columns - k < block ? matrix.columns - k : block;
        block_values(matrix.scheme, Channel{data + k / block * block_bytes, width, row % width}, count,
                     out + k);
    }
}

}  // namespace edgeseek

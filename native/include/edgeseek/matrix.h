// A weight matrix in a packed layout, pointing into memory that someone else keeps alive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "edgeseek/scheme.h"

namespace edgeseek {

enum class Layout : uint8_t { tiles, rows };  // 16 or 1 output channels interleaved

struct Matrix {
    Scheme scheme = Scheme::f32;
    Layout layout = Layout::tiles;
    size_t rows = 0;     // output channels
    size_t columns = 0;  // inputs
    const uint8_t* data = nullptr;

    size_t interleave() const { return layout == Layout::tiles ? kTile : 1; }
    size_t tiles() const { return (rows + interleave() - 1) / interleave(); }
    size_t padded_columns() const {
        const size_t block = static_cast<size_t>(info(scheme).block);
        return (columns + block - 1) / block * block;
    }
    size_t tile_bytes() const {
        const size_t blocks = padded_columns() / static_cast<size_t>(info(scheme).block);
        return blocks * static_cast<size_t>(info(scheme).bytes_per_channel) * interleave();
    }
    /// Bytes that the layout reads, without padding to 64.
    size_t bytes() const { return tiles() * tile_bytes(); }
    const uint8_t* tile(size_t i) const { return data + i * tile_bytes(); }
    bool exists() const { return data != nullptr; }
};

/// out[0..columns) = row `row` as floats, the values of FORMAT.md exactly. `row` < rows.
void dequantize_row(const Matrix& matrix, size_t row, float* out);

}  // namespace edgeseek

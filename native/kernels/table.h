// The kernels of one instruction set, as a table of functions. Every table computes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "edgeseek/kv_pool.h"
#include "edgeseek/scheme.h"

namespace edgeseek {

/// Rows of activations, quantized per group of 32 columns: x ~ d * q, q in [-127, 127].
struct Activations {
    const int8_t* q = nullptr;      // [rows][ldq]
    const float* d = nullptr;       // [rows][ldg] scale of each group
    const float* sum = nullptr;     // [rows][ldg] d * sum of q
    const float* sum8 = nullptr;    // [rows][ldg] 8 * sum, for codes stored with offset 8
    const float* sum16 = nullptr;   // [rows][ldg] 16 * sum, offset 16
    const float* half32 = nullptr;  // [rows][2 ldg] 32 * d * sum of each 16 columns, offset 32
    const float* x = nullptr;       // [rows][ldx] the unquantized values (f16 and f32 weights)
    size_t ldq = 0, ldg = 0, ldx = 0;

    __attribute__((always_inline)) Activations from_row(size_t row) const {
        Activations a = *this;
        a.q += row * ldq;
        a.d += row * ldg;
        a.sum += row * ldg;
        a.sum8 += row * ldg;
        a.sum16 += row * ldg;
        a.half32 += row * 2 * ldg;
        a.x += row * ldx;
        return a;
    }
};

/// Where one row's quantized form is written; arrays as in Activations.
struct QuantizedRow {
    int8_t* q;
    float *d, *sum, *sum8, *sum16, *half32;
};

constexpr size_t kScratchGroups = 32;                   // columns unpacked at a time: 1,024
constexpr size_t kScratchBytes = kScratchGroups * 640;  // 512 codes + 2 x 16 scales per group

/// out[r][0..15] = dot products of one tile of 16 channels with `rows` rows. `columns` is padded to the
/// scheme's block. `scratch` has kScratchBytes, 64-byte aligned. `next` is the tile that this thread does
/// after it, whose beginning is fetched into cache meanwhile, or null.
using GemmTile = void (*)(const uint8_t* tile, size_t columns, const Activations& a, size_t rows, float* out,
                          size_t ldo, uint8_t* scratch, const uint8_t* next);

/// Absolute positions whose keys and values are summed before the sums are merged, left to right.
constexpr int kAttentionRange = 256;

/// One attention unit: the query heads of one KV head for consecutive tokens of one sequence.
struct AttentionUnit {
    const float* q;         // first token's first query head of this group, already rotated
    size_t q_token_stride;  // floats between tokens; heads are head_dim apart
    float* out;             // same shape as q
    size_t out_token_stride;
    int tokens;  // query tokens at positions first_position, ...
    int first_position;
    int heads;  // query heads that share the KV head
    int head_dim;
    int window;  // 0: all positions
    float scale;
    const uint16_t* const* k;  // per KV block: this KV head's plane of keys, see KvShape
    const uint16_t* const* v;  // per KV block: its plane of values
    float* scratch;            // attention_scratch_floats(...)
};

/// First and last range of kAttentionRange positions that some token of the unit attends to.
inline int first_range(const AttentionUnit& u) {
    const int first = u.first_position - u.window + 1;
    return u.window > 0 && first > 0 ? first / kAttentionRange : 0;
}
inline int last_range(const AttentionUnit& u) { return (u.first_position + u.tokens - 1) / kAttentionRange; }

/// Floats of one range's result for `rows` rows (tokens x heads), before it is merged: a multiple of 16.
inline size_t attention_part_floats(int rows, int head_dim) {
    return (static_cast<size_t>(rows) * (static_cast<size_t>(head_dim) + 2) + 15) / 16 * 16;
}

/// Floats of scratch that each of the attention functions needs.
inline size_t attention_scratch_floats(int tokens, int heads, int head_dim) {
    const size_t rows = static_cast<size_t>(tokens) * static_cast<size_t>(heads);
    return 64 + rows * (256 + 3 * static_cast<size_t>(head_dim) + 48) + 32 * static_cast<size_t>(head_dim) +
           32 * static_cast<size_t>(kv_groups(head_dim));
}

/// One unit of latent attention: query heads of consecutive tokens of one sequence over the plane that all
/// heads read. `width` and `latent` are multiples of 16.
struct LatentUnit {
    const float* q;  // [tokens][heads][width] absorbed queries: latent part, then the rotated one
    float* out;      // [tokens][heads][latent] sums of latents; may be q
    size_t token_stride, head_stride;  // floats, of both
    int tokens;                        // query tokens at positions first_position, ...
    int first_position;
    int heads;
    int width;   // latent + rotated dimensions
    int latent;  // values are the first `latent` of a row
    float scale;
    const uint16_t* const* blocks;  // per KV block: [32 tokens][width] halves
    float* scratch;                 // latent_scratch_floats(...)
};

/// Floats of scratch that `attention_mla` needs.
inline size_t latent_scratch_floats(int rows, int width, int latent) {
    const size_t row = 256 + static_cast<size_t>(width) + 2 * static_cast<size_t>(latent) + 4;
    return 64 + static_cast<size_t>(rows) * row;
}

struct Kernels {
    const char* name;
    GemmTile gemm[kSchemeCount];  // indexed by Scheme
    /// Quantizes n floats (n a multiple of 32).
    void (*quantize)(const float* x, size_t n, QuantizedRow out);
    /// out = x / sqrt(mean(x^2) + eps) * weight for any n (tail lanes are zero); out may be x.
    void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out);
    /// out = silu(gate) * up.
    void (*swiglu)(const float* gate, const float* up, size_t n, float* out);
    /// x += y.
    void (*add)(float* x, const float* y, size_t n);
    /// Rotates `heads` heads of head_dim in place, halves convention; tables have head_dim / 2 entries.
    void (*rope)(float* x, int heads, int head_dim, const float* cosine, const float* sine);
    /// Writes one token's key (strided by 32) and value of one head as halves.
    void (*store_kv)(const float* k, const float* v, int head_dim, uint16_t* k_column, uint16_t* v_row);
    /// The same for an int8 cache: `column` is the token's place in its block.
    void (*store_kv_int8)(const float* k, const float* v, int head_dim, int column, uint16_t* k_plane,
                          uint16_t* v_plane);
    void (*attention[kKvTypeCount])(const AttentionUnit& unit);  // indexed by KvType
    /// One range of a unit; `part` takes attention_part_floats(...). Reads the range's entries of k and v
    /// only.
    void (*attention_range[kKvTypeCount])(const AttentionUnit& unit, int range, float* part);
    /// Merges what attention_range wrote for first_range(unit) to last_range(unit), in this order, into out:
    /// the bits that `attention` computes.
    void (*attention_join)(const AttentionUnit& unit, float* const* parts);
    void (*attention_mla)(const LatentUnit& unit);
    /// Writes n floats as halves; n a multiple of 16.
    void (*to_halves)(const float* x, size_t n, uint16_t* out);
    /// Arithmetic alone, see peak.h; `sink` takes 16 floats.
    uint64_t (*int8_chain)(size_t groups, float* sink);
};

// One per file kernels_*.cpp; nullptr where the file is not built for this architecture.
const Kernels* scalar_kernels();
const Kernels* avx2_kernels();
const Kernels* avxvnni_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Kernels* neondot_kernels();

}  // namespace edgeseek

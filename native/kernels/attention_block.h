// One block of cached keys or values and the sums over it, written once over F16. Included inside an
// anonymous namespace after ops.h.

constexpr int kRange = kAttentionRange;
constexpr int kKvBlock = 32;

inline int at_least(int a, int b) { return a > b ? a : b; }
inline int at_most(int a, int b) { return a < b ? a : b; }

// Keys [head_dim][32] or values [32][head_dim] in each form they are read in. Where a cache stores codes,
// sums run over plain codes, and the scale of 32 dimensions is applied once to each sum: `scales` is
// [groups][32]. While one block is read, `next`, the block that follows, is brought near: blocks lie anywhere
// in the pool, so that no hardware prefetcher finds them.

struct HalfBlock {
    static constexpr bool scaled = false;
    const uint16_t* data;
    const uint16_t* next;
    const float* scales;
    int head_dim;
    ES_INLINE F16 key(int dim, int token) const { return f_load_half(data + kKvBlock * dim + token); }
    ES_INLINE F16 value(int token, int dim) const { return f_load_half(data + token * head_dim + dim); }
    ES_INLINE void prefetch_keys(int dim, int token) const {
        __builtin_prefetch(next + kKvBlock * (dim + token / 16));
    }
    ES_INLINE void prefetch_values(int token, int dim) const {
        __builtin_prefetch(next + token * head_dim + dim);
    }
};

struct CodeBlock {
    static constexpr bool scaled = true;
    const uint8_t* codes;
    const uint8_t* next;
    const float* scales;
    int head_dim;
    /// The scales of `plane` go to `floats`.
    CodeBlock(const uint16_t* plane, const uint16_t* following, float* floats, int dims)
        : codes(reinterpret_cast<const uint8_t*>(plane)),
          next(reinterpret_cast<const uint8_t*>(following)),
          scales(floats),
          head_dim(dims) {
        const int behind = kKvBlock * dims / 2;
        for (int i = 0; i < kKvBlock * kv_groups(dims); i += 16) {
            if (i % 32 == 0) __builtin_prefetch(following + behind + i);
            f_store(floats + i, f_load_half(plane + behind + i));
        }
    }
    ES_INLINE F16 key(int dim, int token) const { return f_from_s8(b_load(codes + kKvBlock * dim + token)); }
    ES_INLINE F16 value(int token, int dim) const {
        return f_from_s8(b_load(codes + token * head_dim + dim));
    }
    ES_INLINE void prefetch_keys(int dim, int /*token*/) const { __builtin_prefetch(next + kKvBlock * dim); }
    ES_INLINE void prefetch_values(int token, int dim) const {
        __builtin_prefetch(next + token * head_dim + dim);
    }
};

/// Either of them converted before, where so many rows use it that this pays.
template <class Block>
struct Converted {
    static constexpr bool scaled = Block::scaled;
    const float* data;
    const float* scales;
    int head_dim;
    ES_INLINE F16 key(int dim, int token) const { return f_load(data + kKvBlock * dim + token); }
    ES_INLINE F16 value(int token, int dim) const { return f_load(data + token * head_dim + dim); }
    ES_INLINE void prefetch_keys(int /*dim*/, int /*token*/) const {}
    ES_INLINE void prefetch_values(int /*token*/, int /*dim*/) const {}
};

/// Keys of a block as floats [head_dim][32].
template <class Block>
Converted<Block> convert_keys(const Block& block, float* out) {
    for (int d = 0; d < block.head_dim; d += 2) {
        for (int t = 0; t < kKvBlock; t += 16) {
            block.prefetch_keys(d, t);
            for (int i = d; i < d + 2; ++i) f_store(out + kKvBlock * i + t, block.key(i, t));
        }
    }
    return {out, block.scales, block.head_dim};
}

/// Tokens [begin, end) of a block's values as floats [32][head_dim].
template <class Block>
Converted<Block> convert_values(const Block& block, int begin, int end, float* out) {
    const int head_dim = block.head_dim;
    for (int t = begin; t < end; ++t) {
        for (int d = 0; d < head_dim; d += 16) {
            block.prefetch_values(t, d);
            f_store(out + t * head_dim + d, block.value(t, d));
        }
    }
    return {out, block.scales, head_dim};
}

// prefetch_keys(dim, token) serves two dimensions and is called for both halves of the tokens.

/// acc[m][n] += sum over dims [begin, end) of q[m][d] * key[d][first + 16 n..) for M rows.
template <int M, int N, class Block>
ES_INLINE void score_dims(const float* q, const Block& k, int begin, int end, int first, F16 (&acc)[M][N]) {
    for (int pair = begin; pair < end; pair += 2) {
        for (int n = 0; n < N; ++n) k.prefetch_keys(pair, first + 16 * n);
#pragma GCC unroll 2
        for (int d = pair; d < pair + 2; ++d) {
            F16 key[N];
            for (int n = 0; n < N; ++n) key[n] = k.key(d, first + 16 * n);
#pragma GCC unroll 8
            for (int m = 0; m < M; ++m) {
                const F16 x = f_set1(q[m * k.head_dim + d]);
                for (int n = 0; n < N; ++n) acc[m][n] = f_fma(x, key[n], acc[m][n]);
            }
        }
    }
}

/// scores[r][0..16 N) = sum over dims of q[r][d] * key[d][first..first + 16 N) for M rows.
template <int M, int N, class Block>
ES_INLINE void score_rows(const float* q, const Block& k, int first, float* scores) {
    const int step = Block::scaled ? kKvGroup : k.head_dim;
    for (int begin = 0; begin < k.head_dim; begin += step) {
        F16 acc[M][N];
        for (int m = 0; m < M; ++m) {
            for (int n = 0; n < N; ++n) acc[m][n] = f_zero();
        }
        score_dims(q, k, begin, at_most(begin + step, k.head_dim), first, acc);
        for (int m = 0; m < M; ++m) {
            for (int n = 0; n < N; ++n) {
                float* score = scores + m * kRange + 16 * n;
                if constexpr (Block::scaled) {
                    const F16 scale = f_load(k.scales + kKvBlock * (begin / kKvGroup) + first + 16 * n);
                    const F16 before = begin == 0 ? f_zero() : f_load(score);
                    acc[m][n] = f_fma(acc[m][n], scale, before);
                }
                f_store(score, acc[m][n]);
            }
        }
    }
}

/// out[r][d..d + 16 N) += sum over tokens [begin, end) of p[r][t] * value[t][d..d + 16 N) for M rows.
template <int M, int N, class Block>
ES_INLINE void value_rows(const float* p, const Block& v, int begin, int end, int d, float* out) {
    out += d;
    int stride = kRange;
    alignas(64) float scaled[Block::scaled ? M * kKvBlock : 1];
    if constexpr (Block::scaled) {
        const float* scale = v.scales + kKvBlock * (d / kKvGroup);
        for (int m = 0; m < M; ++m) {
            for (int t = 0; t < kKvBlock; t += 16)
                f_store(scaled + m * kKvBlock + t, f_mul(f_load(p + m * kRange + t), f_load(scale + t)));
        }
        p = scaled;
        stride = kKvBlock;
    }
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_load(out + m * v.head_dim + 16 * n);
    }
    for (int t = begin; t < end; ++t) {
        v.prefetch_values(t, d);
        F16 value[N];
        for (int n = 0; n < N; ++n) value[n] = v.value(t, d + 16 * n);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            const F16 weight = f_set1(p[m * stride + t]);
            for (int n = 0; n < N; ++n) acc[m][n] = f_fma(weight, value[n], acc[m][n]);
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) f_store(out + m * v.head_dim + 16 * n, acc[m][n]);
    }
}

// Rows in blocks that keep the accumulators in 16 vector registers: 4 to 6 x 16 lanes, or up to 3 x 32.

template <int M, class Block>
ES_INLINE void score_halves(const float* q, const Block& k, float* scores) {
    for (int half = 0; half < kKvBlock; half += 16) score_rows<M, 1>(q, k, half, scores + half);
}

/// scores[r][0..32) of all rows against one block of keys.
template <class Block>
void score_block(const float* q, int rows, const Block& k, float* scores) {
    int r = 0;
    const auto at = [&] { return q + r * k.head_dim; };
    for (; r + 6 <= rows; r += 6) score_halves<6>(at(), k, scores + r * kRange);
    if (r + 5 == rows) return score_halves<5>(at(), k, scores + r * kRange);
    if (r + 4 == rows) return score_halves<4>(at(), k, scores + r * kRange);
    if (r + 3 <= rows) {
        score_rows<3, 2>(at(), k, 0, scores + r * kRange);
        r += 3;
    }
    if (r + 2 <= rows) {
        score_rows<2, 2>(at(), k, 0, scores + r * kRange);
        r += 2;
    }
    if (r < rows) score_rows<1, 2>(at(), k, 0, scores + r * kRange);
}

template <int M, class Block>
ES_INLINE void value_row_block(const float* p, const Block& v, int begin, int end, float* out) {
    int d = 0;
    for (; d + 32 <= v.head_dim; d += 32) value_rows<M, 2>(p, v, begin, end, d, out);
    if (d < v.head_dim) value_rows<M, 1>(p, v, begin, end, d, out);
}

template <int M, class Block>
ES_INLINE void value_narrow(const float* p, const Block& v, int begin, int end, float* out) {
    for (int d = 0; d < v.head_dim; d += 16) value_rows<M, 1>(p, v, begin, end, d, out);
}

/// Adds tokens [begin, end) of one block of values to all rows of out [rows][head_dim].
template <class Block>
void value_block(const float* p, int rows, const Block& v, int begin, int end, float* out) {
    int r = 0;
    const auto at = [&] { return out + r * v.head_dim; };
    for (; r + 6 <= rows; r += 6) value_narrow<6>(p + r * kRange, v, begin, end, at());
    if (r + 5 == rows) return value_narrow<5>(p + r * kRange, v, begin, end, at());
    if (r + 4 == rows) return value_narrow<4>(p + r * kRange, v, begin, end, at());
    if (r + 3 <= rows) {
        value_row_block<3>(p + r * kRange, v, begin, end, at());
        r += 3;
    }
    if (r + 2 <= rows) {
        value_row_block<2>(p + r * kRange, v, begin, end, at());
        r += 2;
    }
    if (r < rows) value_row_block<1>(p + r * kRange, v, begin, end, at());
}

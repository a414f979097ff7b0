// Paged attention with one order of sums for prefill, decode and verification, written once over F16.
// Included inside an anonymous namespace after ops.h.
//
// Positions are cut into ranges of 256 absolute positions. Inside a range a score sums dimensions ascending,
// the softmax denominator sums 16 lanes of positions mod 16, and the output sums tokens ascending; ranges are
// merged left to right by the online-softmax rule (Milakov and Gimelshein, arXiv 1805.02867). A row's result
// depends on its own position and the cached keys and values only, never on how tokens were grouped.

constexpr int kRange = kAttentionRange;
constexpr int kKvBlock = 32;
constexpr int kDirectQueries = 6;  // rows that one pass over the keys serves

// One block of keys [head_dim][32] or values [32][head_dim] in each form it is read in. Every form gives the
// same floats: a code times its scale has 19 significant bits, so the product is exact.

/// Converted before, where so many rows use it that this pays.
struct FloatBlock {
    const float* data;
    int head_dim;
    ES_INLINE F16 key_scale(int /*group*/, int /*token*/) const { return f_zero(); }
    ES_INLINE F16 key(int dim, int token, F16 /*scale*/) const {
        return f_load(data + kKvBlock * dim + token);
    }
    ES_INLINE F16 value_scale(int /*token*/, int /*group*/) const { return f_zero(); }
    ES_INLINE F16 value(int token, int dim, F16 /*scale*/) const {
        return f_load(data + token * head_dim + dim);
    }
};

struct HalfBlock {
    const uint16_t* data;
    int head_dim;
    ES_INLINE F16 key_scale(int /*group*/, int /*token*/) const { return f_zero(); }
    ES_INLINE F16 key(int dim, int token, F16 /*scale*/) const {
        return f_load_half(data + kKvBlock * dim + token);
    }
    ES_INLINE F16 value_scale(int /*token*/, int /*group*/) const { return f_zero(); }
    ES_INLINE F16 value(int token, int dim, F16 /*scale*/) const {
        return f_load_half(data + token * head_dim + dim);
    }
};

struct Int8Block {
    const uint8_t* codes;
    const uint16_t* scales;
    const float* value_scales;  // those of values as floats
    int head_dim;

    Int8Block(const uint16_t* plane, int dims, const float* floats)
        : codes(reinterpret_cast<const uint8_t*>(plane)),
          scales(plane + kKvBlock * dims / 2),
          value_scales(floats),
          head_dim(dims) {}
    ES_INLINE F16 key_scale(int group, int token) const {
        return f_load_half(scales + kKvBlock * group + token);
    }
    ES_INLINE F16 key(int dim, int token, F16 scale) const {
        return f_mul(f_from_s8(b_load(codes + kKvBlock * dim + token)), scale);
    }
    ES_INLINE F16 value_scale(int token, int group) const {
        return f_set1(value_scales[token * kv_groups(head_dim) + group]);
    }
    ES_INLINE F16 value(int token, int dim, F16 scale) const {
        return f_mul(f_from_s8(b_load(codes + token * head_dim + dim)), scale);
    }
};

/// scores[r][0..16 N) = sum over dims of q[r][d] * key[d][first..first + 16 N) for M rows.
template <int M, int N, class Block>
ES_INLINE void score_rows(const float* q, int head_dim, const Block& k, int first, float* scores) {
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_zero();
    }
    for (int begin = 0; begin < head_dim; begin += kKvGroup) {
        F16 scale[N];
        for (int n = 0; n < N; ++n) scale[n] = k.key_scale(begin / kKvGroup, first + 16 * n);
        const int end = begin + kKvGroup < head_dim ? begin + kKvGroup : head_dim;
        for (int d = begin; d < end; ++d) {
            F16 key[N];
            for (int n = 0; n < N; ++n) key[n] = k.key(d, first + 16 * n, scale[n]);
#pragma GCC unroll 8
            for (int m = 0; m < M; ++m) {
                const F16 x = f_set1(q[m * head_dim + d]);
                for (int n = 0; n < N; ++n) acc[m][n] = f_fma(x, key[n], acc[m][n]);
            }
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) f_store(scores + m * kRange + 16 * n, acc[m][n]);
    }
}

/// out[r][d..d + 16 N) += sum over tokens [begin, end) of p[r][t] * value[t][d..d + 16 N) for M rows.
template <int M, int N, class Block>
ES_INLINE void value_rows(const float* p, const Block& v, int begin, int end, int head_dim, int d,
                          float* out) {
    out += d;
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_load(out + m * head_dim + 16 * n);
    }
    for (int t = begin; t < end; ++t) {
        F16 value[N];
        const F16 scale = v.value_scale(t, d / kKvGroup);
        for (int n = 0; n < N; ++n) value[n] = v.value(t, d + 16 * n, scale);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            const F16 weight = f_set1(p[m * kRange + t]);
            for (int n = 0; n < N; ++n) acc[m][n] = f_fma(weight, value[n], acc[m][n]);
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) f_store(out + m * head_dim + 16 * n, acc[m][n]);
    }
}

// Rows in blocks that keep the accumulators in 16 vector registers: 4 to 6 x 16 lanes, or up to 3 x 32.

template <int M, class Block>
ES_INLINE void score_halves(const float* q, int head_dim, const Block& k, float* scores) {
    for (int half = 0; half < kKvBlock; half += 16) score_rows<M, 1>(q, head_dim, k, half, scores + half);
}

/// Scores of all rows against one block of keys ([head_dim][32]).
template <class Block>
void score_block(const float* q, int rows, int head_dim, const Block& k, float* scores) {
    int r = 0;
    for (; r + 6 <= rows; r += 6) score_halves<6>(q + r * head_dim, head_dim, k, scores + r * kRange);
    if (r + 5 == rows) return score_halves<5>(q + r * head_dim, head_dim, k, scores + r * kRange);
    if (r + 4 == rows) return score_halves<4>(q + r * head_dim, head_dim, k, scores + r * kRange);
    if (r + 3 <= rows) {
        score_rows<3, 2>(q + r * head_dim, head_dim, k, 0, scores + r * kRange);
        r += 3;
    }
    if (r + 2 <= rows) {
        score_rows<2, 2>(q + r * head_dim, head_dim, k, 0, scores + r * kRange);
        r += 2;
    }
    if (r < rows) score_rows<1, 2>(q + r * head_dim, head_dim, k, 0, scores + r * kRange);
}

template <int M, class Block>
ES_INLINE void value_row_block(const float* p, const Block& v, int begin, int end, int head_dim, float* out) {
    int d = 0;
    for (; d + 32 <= head_dim; d += 32) value_rows<M, 2>(p, v, begin, end, head_dim, d, out);
    if (d < head_dim) value_rows<M, 1>(p, v, begin, end, head_dim, d, out);
}

template <int M, class Block>
ES_INLINE void value_narrow(const float* p, const Block& v, int begin, int end, int head_dim, float* out) {
    for (int d = 0; d < head_dim; d += 16) value_rows<M, 1>(p, v, begin, end, head_dim, d, out);
}

/// Adds tokens [begin, end) of one block of values ([32][head_dim]) to all rows.
template <class Block>
void value_block(const float* p, int rows, int head_dim, const Block& v, int begin, int end, float* out) {
    int r = 0;
    for (; r + 6 <= rows; r += 6)
        value_narrow<6>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
    if (r + 5 == rows) return value_narrow<5>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
    if (r + 4 == rows) return value_narrow<4>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
    if (r + 3 <= rows) {
        value_row_block<3>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
        r += 3;
    }
    if (r + 2 <= rows) {
        value_row_block<2>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
        r += 2;
    }
    if (r < rows) value_row_block<1>(p + r * kRange, v, begin, end, head_dim, out + r * head_dim);
}

inline int at_least(int a, int b) { return a > b ? a : b; }
inline int at_most(int a, int b) { return a < b ? a : b; }

/// Turns scores of positions [lo, hi) of a range into exp(score - max), zero elsewhere in [from, to).
/// Returns the sum; `*largest` is the maximum.
ES_INLINE float softmax_row(float* scores, int from, int to, int lo, int hi, float* largest) {
    const F16 lowest = f_set1(-3.402823466e38f);
    F16 top = lowest;
    for (int t = lo / 16 * 16; t < hi; t += 16)
        top = f_max(f_keep(f_load(scores + t), lo - t, hi - t, lowest), top);
    *largest = f_reduce_max(top);
    const F16 shift = f_set1(*largest);
    F16 sum = f_zero();
    for (int t = from; t < to; t += 16) {
        F16 e = f_zero();
        if (t < hi && t + 16 > lo)
            e = f_keep(f_exp(f_sub(f_load(scores + t), shift)), lo - t, hi - t, f_zero());
        f_store(scores + t, e);
        sum = f_add(sum, e);
    }
    return f_reduce_add(sum);
}

/// Folds a later range (max m1, sum l1, out o1) into the running result (m0, l0, o0).
inline void merge_range(float* m0, float* l0, float* o0, float m1, float l1, const float* o1, int head_dim) {
    const float m = *m0 > m1 ? *m0 : m1;
    const float a = exact_exp(*m0 - m), b = exact_exp(m1 - m);
    *l0 = __builtin_fmaf(*l0, a, l1 * b);
    *m0 = m;
    const F16 va = f_set1(a), vb = f_set1(b);
    for (int d = 0; d < head_dim; d += 16) {
        f_store(o0 + d, f_fma(f_load(o0 + d), va, f_mul(f_load(o1 + d), vb)));
    }
}

template <KvType type>
struct BlockOf {
    using T = HalfBlock;
};
template <>
struct BlockOf<KvType::int8> {
    using T = Int8Block;
};

/// Keys of a block as floats [head_dim][32].
template <class Block>
void convert_keys(const Block& block, int head_dim, float* out) {
    for (int d = 0; d < head_dim; ++d) {
        for (int t = 0; t < kKvBlock; t += 16) {
            f_store(out + kKvBlock * d + t, block.key(d, t, block.key_scale(d / kKvGroup, t)));
        }
    }
}

/// Tokens [begin, end) of a block's values as floats [32][head_dim].
template <class Block>
void convert_values(const Block& block, int begin, int end, int head_dim, float* out) {
    for (int t = begin; t < end; ++t) {
        for (int d = 0; d < head_dim; d += 16) {
            f_store(out + t * head_dim + d, block.value(t, d, block.value_scale(t, d / kKvGroup)));
        }
    }
}

/// Where the rows of a unit stand after some ranges: outputs are sums of exp(score - max) x value.
struct Partial {
    float* out;  // [rows][head_dim]
    float* max;  // [rows]
    float* sum;  // [rows], 0 for a row that attends to nothing here
};

/// In memory of attention_part_floats(...).
inline Partial partial_in(float* memory, int rows, int head_dim) {
    float* max = memory + rows * head_dim;
    return {memory, max, max + rows};
}

/// The scratch of a unit, cut up; what vectors read begins where vectors do.
struct UnitScratch {
    explicit UnitScratch(const AttentionUnit& u)
        : rows(u.tokens * u.heads),
          scores(u.scratch),
          q(scores + rows * kRange),
          plane(q + 3 * rows * u.head_dim),
          value_scales(plane + kKvBlock * u.head_dim),
          total{q + rows * u.head_dim, value_scales + kKvBlock * kv_groups(u.head_dim), total.max + rows},
          part{total.out + rows * u.head_dim, total.sum + rows, part.max + rows} {}
    int rows;
    float* scores;        // [rows][256]
    float* q;             // [rows][head_dim], scaled
    float* plane;         // one block of K or V as floats
    float* value_scales;  // int8: those of one block of V, [32][groups]
    Partial total;        // of all ranges so far
    Partial part;         // of one range
};

inline void scale_queries(const AttentionUnit& u, const UnitScratch& s) {
    const F16 scale = f_set1(u.scale);
    for (int r = 0; r < s.rows; ++r) {
        const float* source =
            u.q + static_cast<size_t>(r / u.heads) * u.q_token_stride + (r % u.heads) * u.head_dim;
        for (int d = 0; d < u.head_dim; d += 16)
            f_store(s.q + r * u.head_dim + d, f_mul(f_load(source + d), scale));
    }
}

/// Positions [base, base + 256) for all rows, whose scaled queries are in the scratch.
template <KvType type>
void attend_range(const AttentionUnit& u, const UnitScratch& s, int base, const Partial& part) {
    using Block = typename BlockOf<type>::T;
    const int rows = s.rows, head_dim = u.head_dim;
    float *scores = s.scores, *plane = s.plane;
    const auto block_of = [&](const uint16_t* data) {
        if constexpr (type == KvType::int8) {
            return Block(data, head_dim, s.value_scales);
        } else {
            return Block{data, head_dim};
        }
    };
    const int last_position = u.first_position + u.tokens - 1;
    const int first_needed = u.window > 0 ? at_least(0, u.first_position - u.window + 1) : 0;
    // Whole KV blocks of this range that some row needs, as positions relative to base.
    const int from = at_least(0, (first_needed - base) / kKvBlock * kKvBlock);
    const int to = at_most(kRange, (last_position - base + kKvBlock) / kKvBlock * kKvBlock);
    for (int t = from; t < to; t += kKvBlock) {
        const Block k = block_of(u.k[(base + t) / kKvBlock]);
        if (rows <= kDirectQueries) {
            score_block(s.q, rows, head_dim, k, scores + t);
            continue;
        }
        convert_keys(k, head_dim, plane);
        score_block(s.q, rows, head_dim, FloatBlock{plane, head_dim}, scores + t);
    }
    for (int r = 0; r < rows; ++r) {
        const int position = u.first_position + r / u.heads;
        const int lo = u.window > 0 ? at_least(0, position - u.window + 1 - base) : 0;
        const int hi = at_most(kRange, position + 1 - base);
        if (lo < hi) {
            part.sum[r] = softmax_row(scores + r * kRange, from, to, lo, hi, part.max + r);
        } else {
            part.sum[r] = 0.0f;
            for (int t = from; t < to; t += 16) f_store(scores + r * kRange + t, f_zero());
        }
    }
    for (int i = 0; i < rows * head_dim; i += 16) f_store(part.out + i, f_zero());
    for (int t = from; t < to; t += kKvBlock) {
        const int begin = at_least(0, first_needed - base - t),
                  end = at_most(kKvBlock, last_position - base - t + 1);
        const Block v = block_of(u.v[(base + t) / kKvBlock]);
        if constexpr (type == KvType::int8) {
            for (int i = 0; i < kKvBlock * kv_groups(head_dim); i += 16)
                f_store(s.value_scales + i, f_load_half(v.scales + i));
        }
        if (rows <= kDirectQueries) {
            value_block(scores + t, rows, head_dim, v, begin, end, part.out);
            continue;
        }
        convert_values(v, begin, end, head_dim, plane);
        value_block(scores + t, rows, head_dim, FloatBlock{plane, head_dim}, begin, end, part.out);
    }
}

/// Folds the next range's result into that of all before it.
inline void fold(const Partial& total, const Partial& part, int rows, int head_dim) {
    for (int r = 0; r < rows; ++r) {
        if (part.sum[r] == 0.0f) continue;
        if (total.sum[r] == 0.0f) {
            total.max[r] = part.max[r];
            total.sum[r] = part.sum[r];
            for (int d = 0; d < head_dim; d += 16)
                f_store(total.out + r * head_dim + d, f_load(part.out + r * head_dim + d));
        } else {
            merge_range(total.max + r, total.sum + r, total.out + r * head_dim, part.max[r], part.sum[r],
                        part.out + r * head_dim, head_dim);
        }
    }
}

inline void write_out(const AttentionUnit& u, const Partial& total, int rows) {
    for (int r = 0; r < rows; ++r) {
        const F16 inverse = f_set1(1.0f / total.sum[r]);
        float* target =
            u.out + static_cast<size_t>(r / u.heads) * u.out_token_stride + (r % u.heads) * u.head_dim;
        for (int d = 0; d < u.head_dim; d += 16)
            f_store(target + d, f_mul(f_load(total.out + r * u.head_dim + d), inverse));
    }
}

template <KvType type>
void attention(const AttentionUnit& u) {
    const UnitScratch s(u);
    scale_queries(u, s);
    for (int r = 0; r < s.rows; ++r) s.total.sum[r] = 0.0f;
    for (int range = first_range(u); range <= last_range(u); ++range) {
        attend_range<type>(u, s, range * kRange, s.part);
        fold(s.total, s.part, s.rows, u.head_dim);
    }
    write_out(u, s.total, s.rows);
}

template <KvType type>
void attention_range(const AttentionUnit& u, int range, float* part) {
    const UnitScratch s(u);
    scale_queries(u, s);
    attend_range<type>(u, s, range * kRange, partial_in(part, s.rows, u.head_dim));
}

inline void attention_join(const AttentionUnit& u, float* const* parts) {
    const UnitScratch s(u);
    for (int r = 0; r < s.rows; ++r) s.total.sum[r] = 0.0f;
    for (int i = 0; i <= last_range(u) - first_range(u); ++i)
        fold(s.total, partial_in(parts[i], s.rows, u.head_dim), s.rows, u.head_dim);
    write_out(u, s.total, s.rows);
}

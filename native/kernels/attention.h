// Paged attention with one order of sums for prefill, decode and verification, written once over F16.
// Included inside an anonymous namespace after attention_block.h.
//
// Positions are cut into ranges of 256 absolute positions. Inside a range a score sums dimensions ascending,
// the softmax denominator sums 16 lanes of positions mod 16, and the output sums tokens ascending; ranges are
// merged left to right by the online-softmax rule (Milakov and Gimelshein, arXiv 1805.02867). A row's result
// depends on its own position and the cached keys and values only, never on how tokens were grouped.

constexpr int kDirectQueries = 6;  // rows that one pass over the keys serves

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
          block_scales(plane + kKvBlock * u.head_dim),
          total{q + rows * u.head_dim, block_scales + kKvBlock * kv_groups(u.head_dim), total.max + rows},
          part{total.out + rows * u.head_dim, total.sum + rows, part.max + rows} {}
    int rows;
    float* scores;        // [rows][256]
    float* q;             // [rows][head_dim], scaled
    float* plane;         // one block of K or V as floats
    float* block_scales;  // int8: those of one block, [groups][32]
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

/// Positions [base, base + 256) for all rows, whose scaled queries are in the scratch. `following`: whether
/// the range after it comes next.
template <KvType type>
void attend_range(const AttentionUnit& u, const UnitScratch& s, int base, const Partial& part,
                  bool following) {
    const int rows = s.rows, head_dim = u.head_dim;
    float *scores = s.scores, *plane = s.plane;
    const auto block_of = [&](const uint16_t* data, const uint16_t* next) {
        if constexpr (type == KvType::int8) {
            return CodeBlock(data, next, s.block_scales, head_dim);
        } else {
            return HalfBlock{data, next, nullptr, head_dim};
        }
    };
    const int last_position = u.first_position + u.tokens - 1;
    const int first_needed = u.window > 0 ? at_least(0, u.first_position - u.window + 1) : 0;
    // Whole KV blocks of this range that some row needs, as positions relative to base.
    const int from = at_least(0, (first_needed - base) / kKvBlock * kKvBlock);
    const int to = at_most(kRange, (last_position - base + kKvBlock) / kKvBlock * kKvBlock);
    for (int t = from; t < to; t += kKvBlock) {
        const uint16_t* const* plane_k = u.k + (base + t) / kKvBlock;
        const auto k = block_of(*plane_k, t + kKvBlock < to ? plane_k[1] : u.v[(base + from) / kKvBlock]);
        if (rows <= kDirectQueries) {
            score_block(s.q, rows, k, scores + t);
        } else {
            score_block(s.q, rows, convert_keys(k, plane), scores + t);
        }
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
    const bool more = following && base + kRange <= last_position;
    const uint16_t* next_keys = more ? u.k[(base + kRange) / kKvBlock] : u.v[(base + from) / kKvBlock];
    for (int t = from; t < to; t += kKvBlock) {
        const int begin = at_least(0, first_needed - base - t),
                  end = at_most(kKvBlock, last_position - base - t + 1);
        const uint16_t* const* plane_v = u.v + (base + t) / kKvBlock;
        const auto v = block_of(*plane_v, t + kKvBlock < to ? plane_v[1] : next_keys);
        if (rows <= kDirectQueries) {
            value_block(scores + t, rows, v, begin, end, part.out);
        } else {
            value_block(scores + t, rows, convert_values(v, begin, end, plane), begin, end, part.out);
        }
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
        attend_range<type>(u, s, range * kRange, s.part, true);
        fold(s.total, s.part, s.rows, u.head_dim);
    }
    write_out(u, s.total, s.rows);
}

template <KvType type>
void attention_range(const AttentionUnit& u, int range, float* part) {
    const UnitScratch s(u);
    scale_queries(u, s);
    attend_range<type>(u, s, range * kRange, partial_in(part, s.rows, u.head_dim), false);
}

inline void attention_join(const AttentionUnit& u, float* const* parts) {
    const UnitScratch s(u);
    for (int r = 0; r < s.rows; ++r) s.total.sum[r] = 0.0f;
    for (int i = 0; i <= last_range(u) - first_range(u); ++i)
        fold(s.total, partial_in(parts[i], s.rows, u.head_dim), s.rows, u.head_dim);
    write_out(u, s.total, s.rows);
}

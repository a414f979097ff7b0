// Paged attention over a latent cache that all heads read (multi-head latent attention, DeepSeek-V2, arXiv
// 2405.04434, section 2.1), with absorbed projections: a query has been multiplied into the latent space
// before, and what comes out is multiplied out of it afterwards. Written once over F16; included inside an
// anonymous namespace after attention.h.
//
// A block is [32 tokens][width] halves: `latent` values, which are keys and values alike, then the rotated
// part of the keys. Positions are cut into ranges of 256 absolute positions. Inside a range a score sums 16
// lanes of dimensions mod 16, dimensions ascending, the lanes then as a tree; the softmax denominator sums 16
// lanes of positions mod 16, and the output sums tokens ascending; ranges are merged left to right
// (merge_range). A row's result depends on its own position and the cache only, never on how rows were
// grouped.

// M x N results that are computed together: their accumulators, an operand of each column and one of a row
// fit the registers, 32 of 512 bits, 16 of 256 or 32 of 128. Halves are converted wherever they are used:
// that costs less than keeping them as floats, which takes twice the cache. On aarch64 a conversion takes a
// slot of a multiplication, so more rows share one.
#if defined(__aarch64__)
constexpr int kLatentRows = 4, kLatentColumns = 1;
#else
constexpr int kLatentRows = kRowBlock >= 8 ? 4 : kRowBlock >= 2 ? 2 : 1;
constexpr int kLatentColumns = kLatentRows;
#endif
constexpr int kLatentTokens = 8;  // whose latents stay in the first cache while all rows pass

/// scores[m][0..N) = q[m] . tokens [0, N) for M rows.
template <int M, int N>
ES_INLINE void latent_scores(const float* q, int width, const uint16_t* keys, float* scores) {
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_zero();
    }
    for (int d = 0; d < width; d += 16) {
        F16 key[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) key[n] = f_load_half(keys + n * width + d);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
            const F16 x = f_load(q + m * width + d);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[m][n] = f_fma(x, key[n], acc[m][n]);
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) scores[m * kRange + n] = f_reduce_add(acc[m][n]);
    }
}

template <int M>
ES_INLINE void latent_score_tokens(const float* q, int width, const uint16_t* keys, float* scores) {
    for (int t = 0; t < kLatentTokens; t += kLatentColumns)
        latent_scores<M, kLatentColumns>(q, width, keys + t * width, scores + t);
}

/// Scores of all rows against one block.
inline void latent_score_block(const float* q, int rows, int width, const uint16_t* block, float* scores) {
    for (int t = 0; t < kKvBlock; t += kLatentTokens) {
        const uint16_t* keys = block + t * width;
        int r = 0;
        for (; r + kLatentRows <= rows; r += kLatentRows)
            latent_score_tokens<kLatentRows>(q + r * width, width, keys, scores + t + r * kRange);
        for (; r < rows; ++r) latent_score_tokens<1>(q + r * width, width, keys, scores + t + r * kRange);
    }
}

/// out[m][0..16 N) += sum over tokens [0, count) of p[m][t] * values[t][0..16 N) for M rows.
template <int M, int N>
ES_INLINE void latent_values(const float* p, const uint16_t* values, int count, int width, int latent,
                             float* out) {
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_load(out + m * latent + 16 * n);
    }
    for (int t = 0; t < count; ++t) {
        F16 value[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) value[n] = f_load_half(values + t * width + 16 * n);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
            const F16 weight = f_set1(p[m * kRange + t]);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[m][n] = f_fma(weight, value[n], acc[m][n]);
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) f_store(out + m * latent + 16 * n, acc[m][n]);
    }
}

template <int N>
void latent_value_columns(const float* p, int rows, const uint16_t* values, int count, int width, int latent,
                          float* out) {
    int r = 0;
    for (; r + kLatentRows <= rows; r += kLatentRows)
        latent_values<kLatentRows, N>(p + r * kRange, values, count, width, latent, out + r * latent);
    for (; r < rows; ++r) latent_values<1, N>(p + r * kRange, values, count, width, latent, out + r * latent);
}

/// Adds the first `count` tokens of one block to all rows.
inline void latent_value_block(const float* p, int rows, const uint16_t* block, int count, int width,
                               int latent, float* out) {
    constexpr int N = kLatentColumns;
    int d = 0;
    for (; d + 16 * N <= latent; d += 16 * N)
        latent_value_columns<N>(p, rows, block + d, count, width, latent, out + d);
    for (; d < latent; d += 16) latent_value_columns<1>(p, rows, block + d, count, width, latent, out + d);
}

void attention_mla(const LatentUnit& u) {
    const int rows = u.tokens * u.heads, width = u.width, latent = u.latent;
    float* scores = u.scratch;            // [rows][256]
    float* q = scores + rows * kRange;    // [rows][width], scaled
    float* total = q + rows * width;      // [rows][latent], of all ranges so far
    float* part = total + rows * latent;  // [rows][latent], of this range
    float* running_max = part + rows * latent;
    float* running_sum = running_max + rows;
    float* range_max = running_sum + rows;
    float* range_sum = range_max + rows;
    const auto place = [&](int r) {
        return static_cast<size_t>(r / u.heads) * u.token_stride +
               static_cast<size_t>(r % u.heads) * u.head_stride;
    };

    const F16 scale = f_set1(u.scale);
    for (int r = 0; r < rows; ++r) {
        const float* source = u.q + place(r);
        for (int d = 0; d < width; d += 16) f_store(q + r * width + d, f_mul(f_load(source + d), scale));
        running_sum[r] = 0.0f;
    }
    const int last_position = u.first_position + u.tokens - 1;
    for (int base = 0; base <= last_position; base += kRange) {
        const int end = at_most(kRange, last_position - base + 1);
        const int to = (end + kKvBlock - 1) / kKvBlock * kKvBlock;
        for (int t = 0; t < to; t += kKvBlock) {
            latent_score_block(q, rows, width, u.blocks[(base + t) / kKvBlock], scores + t);
        }
        for (int r = 0; r < rows; ++r) {
            const int hi = at_most(kRange, u.first_position + r / u.heads + 1 - base);
            range_sum[r] = 0.0f;
            if (hi > 0) {
                range_sum[r] = softmax_row(scores + r * kRange, 0, to, 0, hi, range_max + r);
            } else {
                for (int t = 0; t < to; t += 16) f_store(scores + r * kRange + t, f_zero());
            }
        }
        for (int i = 0; i < rows * latent; i += 16) f_store(part + i, f_zero());
        for (int t = 0; t < to; t += kKvBlock) {
            latent_value_block(scores + t, rows, u.blocks[(base + t) / kKvBlock], at_most(kKvBlock, end - t),
                               width, latent, part);
        }
        for (int r = 0; r < rows; ++r) {
            if (range_sum[r] == 0.0f) continue;
            if (running_sum[r] == 0.0f) {
                running_max[r] = range_max[r];
                running_sum[r] = range_sum[r];
                for (int d = 0; d < latent; d += 16)
                    f_store(total + r * latent + d, f_load(part + r * latent + d));
            } else {
                merge_range(running_max + r, running_sum + r, total + r * latent, range_max[r], range_sum[r],
                            part + r * latent, latent);
            }
        }
    }
    for (int r = 0; r < rows; ++r) {
        const F16 inverse = f_set1(1.0f / running_sum[r]);
        float* target = u.out + place(r);
        for (int d = 0; d < latent; d += 16)
            f_store(target + d, f_mul(f_load(total + r * latent + d), inverse));
    }
}

/// n floats as halves, n a multiple of 16.
void to_halves(const float* x, size_t n, uint16_t* out) {
    for (size_t i = 0; i < n; i += 16) f_store_half(out + i, f_load(x + i));
}

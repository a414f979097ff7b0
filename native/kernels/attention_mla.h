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

struct HalfLatents {
    const uint16_t* data;
    ES_INLINE F16 load(int i) const { return f_load_half(data + i); }
};

/// Converted before, where so many rows use it that this pays.
struct FloatLatents {
    const float* data;
    ES_INLINE F16 load(int i) const { return f_load(data + i); }
};

// M x N results that are computed together. Their accumulators, an operand of each column and one of a row
// fit the registers: 32 of 512 bits, 16 of 256, 32 of 128.
constexpr int kLatentRows = kRowBlock >= 8 ? 4 : kRowBlock >= 2 ? 2 : 1;
constexpr int kLatentColumns = kLatentRows;
constexpr int kDirectLatentRows = 4 * kLatentRows;  // up to here halves are converted where they are used
constexpr int kLatentTokens = 8;                    // whose latents stay in the first cache while rows pass

/// scores[m][0..N) = q[m] . tokens [token, token + N) for M rows.
template <int M, int N, class Block>
ES_INLINE void latent_scores(const float* q, int width, const Block& block, int token, float* scores) {
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_zero();
    }
    for (int d = 0; d < width; d += 16) {
        F16 key[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) key[n] = block.load((token + n) * width + d);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
            const F16 x = f_load(q + m * width + d);
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) acc[m][n] = f_fma(x, key[n], acc[m][n]);
        }
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) scores[m * kRange + token + n] = f_reduce_add(acc[m][n]);
    }
}

/// Scores of all rows against one block.
template <class Block>
void latent_score_block(const float* q, int rows, int width, const Block& block, float* scores) {
    for (int first = 0; first < kKvBlock; first += kLatentTokens) {
        int r = 0;
        for (; r + kLatentRows <= rows; r += kLatentRows) {
            for (int t = first; t < first + kLatentTokens; t += kLatentColumns) {
                latent_scores<kLatentRows, kLatentColumns>(q + r * width, width, block, t,
                                                           scores + r * kRange);
            }
        }
        for (; r < rows; ++r) {
            for (int t = first; t < first + kLatentTokens; t += kLatentColumns) {
                latent_scores<1, kLatentColumns>(q + r * width, width, block, t, scores + r * kRange);
            }
        }
    }
}

/// out[m][d..d + 16 N) += sum over tokens [begin, end) of p[m][t] * latent[t][d..d + 16 N) for M rows.
template <int M, int N, class Block>
ES_INLINE void latent_values(const float* p, const Block& block, int begin, int end, int width, int latent,
                             int d, float* out) {
    out += d;
    F16 acc[M][N];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) acc[m][n] = f_load(out + m * latent + 16 * n);
    }
    for (int t = begin; t < end; ++t) {
        F16 value[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) value[n] = block.load(t * width + d + 16 * n);
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

template <int N, class Block>
ES_INLINE void latent_value_column(const float* p, int rows, const Block& block, int begin, int end,
                                   int width, int latent, int d, float* out) {
    int r = 0;
    for (; r + kLatentRows <= rows; r += kLatentRows) {
        latent_values<kLatentRows, N>(p + r * kRange, block, begin, end, width, latent, d, out + r * latent);
    }
    for (; r < rows; ++r) {
        latent_values<1, N>(p + r * kRange, block, begin, end, width, latent, d, out + r * latent);
    }
}

/// Adds tokens [begin, end) of one block to all rows.
template <class Block>
void latent_value_block(const float* p, int rows, const Block& block, int begin, int end, int width,
                        int latent, float* out) {
    constexpr int N = kLatentColumns;
    int d = 0;
    for (; d + 16 * N <= latent; d += 16 * N)
        latent_value_column<N>(p, rows, block, begin, end, width, latent, d, out);
    for (; d < latent; d += 16) latent_value_column<1>(p, rows, block, begin, end, width, latent, d, out);
}

void attention_mla(const LatentUnit& u) {
    const int rows = u.tokens * u.heads, width = u.width, latent = u.latent;
    float* scores = u.scratch;            // [rows][256]
    float* q = scores + rows * kRange;    // [rows][width], scaled
    float* total = q + rows * width;      // [rows][latent], of all ranges so far
    float* part = total + rows * latent;  // [rows][latent], of this range
    float* plane = part + rows * latent;  // one block as floats
    float* running_max = plane + kKvBlock * width;
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
    const bool direct = rows <= kDirectLatentRows;
    // Calls back with a block of the cache in the form in which all rows read it.
    const auto with_block = [&](int position, int begin, int end, const auto& use) {
        const uint16_t* block = u.blocks[position / kKvBlock];
        if (direct) return use(HalfLatents{block});
        for (int i = begin * width; i < end * width; i += 16) f_store(plane + i, f_load_half(block + i));
        use(FloatLatents{plane});
    };

    const int last_position = u.first_position + u.tokens - 1;
    for (int base = 0; base <= last_position; base += kRange) {
        const int end = at_most(kRange, last_position - base + 1);
        const int to = (end + kKvBlock - 1) / kKvBlock * kKvBlock;
        for (int t = 0; t < to; t += kKvBlock) {
            with_block(base + t, 0, kKvBlock,
                       [&](const auto& block) { latent_score_block(q, rows, width, block, scores + t); });
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
            const int stop = at_most(kKvBlock, end - t);
            with_block(base + t, 0, stop, [&](const auto& block) {
                latent_value_block(scores + t, rows, block, 0, stop, width, latent, part);
            });
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

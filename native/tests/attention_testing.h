// A paged cache filled with random keys and values, and attention over it in double precision, for tests.
#pragma once

#include <algorithm>
#include <cmath>

#include "edgeseek/exact_math.h"
#include "kernel_testing.h"

namespace kernel_testing {

constexpr size_t kKvBlockTokens = 32;

/// Keys and values of one KV head for positions [0, length), in blocks that lie in random order. Positions at
/// and after `length` hold NaN keys: nothing may depend on them.
class PagedCache {
  public:
    PagedCache(Random& random, size_t length, size_t head_dim)
        : length_(length),
          head_dim_(head_dim),
          blocks_((length + kKvBlockTokens - 1) / kKvBlockTokens),
          k_(blocks_ * kKvBlockTokens * head_dim),
          v_(blocks_ * kKvBlockTokens * head_dim) {
        std::vector<size_t> order(blocks_);
        for (size_t i = 0; i < blocks_; ++i) order[i] = i;
        for (size_t i = blocks_; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
        for (const size_t block : order) {
            k_table_.push_back(k_.data() + block * kKvBlockTokens * head_dim);
            v_table_.push_back(v_.data() + block * kKvBlockTokens * head_dim);
        }
        constexpr uint16_t nan = 0x7e00;
        for (uint16_t& half : k_) half = nan;
        for (uint16_t& half : v_) half = nan;
        for (size_t p = 0; p < length; ++p) {
            for (size_t d = 0; d < head_dim; ++d) {
                *k(p, d) = edgeseek::float_to_half(random.uniform(-1.0f, 1.0f));
                *v(p, d) = edgeseek::float_to_half(random.uniform(-1.0f, 1.0f));
            }
        }
    }

    uint16_t* k(size_t position, size_t d) {
        return k_table_[position / kKvBlockTokens] + d * kKvBlockTokens + position % kKvBlockTokens;
    }
    uint16_t* v(size_t position, size_t d) {
        return v_table_[position / kKvBlockTokens] + position % kKvBlockTokens * head_dim_ + d;
    }
    double key(size_t position, size_t d) { return edgeseek::half_to_float(*k(position, d)); }
    double value(size_t position, size_t d) { return edgeseek::half_to_float(*v(position, d)); }
    const uint16_t* const* k_table() const { return k_table_.data(); }
    const uint16_t* const* v_table() const { return v_table_.data(); }
    size_t length() const { return length_; }
    size_t head_dim() const { return head_dim_; }

  private:
    size_t length_, head_dim_, blocks_;
    Guarded<uint16_t> k_, v_;
    std::vector<uint16_t*> k_table_, v_table_;
};

struct AttentionShape {
    size_t head_dim, heads, tokens, first_position, window;
};

/// softmax(q k / sqrt(head_dim)) v of one query, over `count` positions that end with `position`.
inline std::vector<double> attend(PagedCache& cache, const float* q, size_t position, size_t count) {
    const size_t first = position + 1 - count, dims = cache.head_dim();
    std::vector<double> weights, out(dims);
    double largest = -1e300, sum = 0;
    for (size_t p = first; p <= position; ++p) {
        double score = 0;
        for (size_t d = 0; d < dims; ++d) score += q[d] * cache.key(p, d);
        weights.push_back(score / std::sqrt(static_cast<double>(dims)));
        largest = std::max(largest, weights.back());
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (size_t p = first; p <= position; ++p) {
        for (size_t d = 0; d < dims; ++d) out[d] += weights[p - first] / sum * cache.value(p, d);
    }
    return out;
}

/// How a unit is computed: at once, or in ranges that are joined afterwards.
enum class Way { whole, ranges };

/// Runs the unit. In ranges, the last comes first, and each sees its own entries of the block tables only.
inline void compute(const Kernels& kernels, edgeseek::KvType type, const edgeseek::AttentionUnit& unit,
                    Way way) {
    const auto kind = static_cast<size_t>(type);
    if (way == Way::whole) return kernels.attention[kind](unit);
    const int first = edgeseek::first_range(unit), last = edgeseek::last_range(unit);
    const auto ranges = static_cast<size_t>(last - first + 1);
    const size_t floats = edgeseek::attention_part_floats(unit.tokens * unit.heads, unit.head_dim);
    Guarded<float> memory(ranges * floats);
    std::fill(memory.begin(), memory.end(), std::nanf(""));
    std::vector<float*> parts;
    for (size_t i = 0; i < ranges; ++i) parts.push_back(memory.data() + i * floats);
    constexpr int per_range = edgeseek::kAttentionRange / static_cast<int>(kKvBlockTokens);
    const int blocks = (unit.first_position + unit.tokens - 1) / static_cast<int>(kKvBlockTokens) + 1;
    for (int range = last; range >= first; --range) {
        std::vector<const uint16_t*> k(static_cast<size_t>(blocks)), v(k.size());
        for (int i = range * per_range; i < std::min(blocks, (range + 1) * per_range); ++i) {
            k[static_cast<size_t>(i)] = unit.k[i];
            v[static_cast<size_t>(i)] = unit.v[i];
        }
        edgeseek::AttentionUnit one = unit;
        one.k = k.data();
        one.v = v.data();
        kernels.attention_range[kind](one, range, parts[static_cast<size_t>(range - first)]);
    }
    kernels.attention_join(unit, parts.data());
}

/// Runs tokens [first, first + count) of `shape` as one unit. `q` and the result are
/// [tokens][heads][head_dim].
inline void run_attention(const Kernels& kernels, const PagedCache& cache, const AttentionShape& shape,
                          const float* q, size_t first, size_t count, float* out, Way way = Way::whole) {
    const size_t stride = shape.heads * shape.head_dim;
    const auto tokens = static_cast<int>(count), heads = static_cast<int>(shape.heads);
    const auto head_dim = static_cast<int>(shape.head_dim);
    Guarded<float> scratch(edgeseek::attention_scratch_floats(tokens, heads, head_dim));
    std::fill(scratch.begin(), scratch.end(), std::nanf(""));
    edgeseek::AttentionUnit unit{};
    unit.q = q + first * stride;
    unit.q_token_stride = stride;
    unit.out = out + first * stride;
    unit.out_token_stride = stride;
    unit.tokens = tokens;
    unit.first_position = static_cast<int>(shape.first_position + first);
    unit.heads = heads;
    unit.head_dim = head_dim;
    unit.window = static_cast<int>(shape.window);
    unit.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    unit.k = cache.k_table();
    unit.v = cache.v_table();
    unit.scratch = scratch.data();
    compute(kernels, edgeseek::KvType::f16, unit, way);
}

/// All tokens in units of at most `chunk` tokens.
inline Guarded<float> run_in_chunks(const Kernels& kernels, const PagedCache& cache,
                                    const AttentionShape& shape, const Guarded<float>& q, size_t chunk,
                                    Way way = Way::whole) {
    Guarded<float> out(q.size());
    for (size_t first = 0; first < shape.tokens; first += chunk) {
        run_attention(kernels, cache, shape, q.data(), first, std::min(chunk, shape.tokens - first),
                      out.data(), way);
    }
    return out;
}

}  // namespace kernel_testing

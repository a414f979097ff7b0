// The int8 cache: what is stored is exact, and attention over it is the same bits in every table.
#include <algorithm>
#include <cmath>

#include "attention_testing.h"
#include "check.h"
#include "edgeseek/kv_pool.h"

using namespace kernel_testing;
using edgeseek::float_to_half;
using edgeseek::half_to_float;
using edgeseek::kKvGroup;
using edgeseek::KvShape;
using edgeseek::KvType;

namespace {

constexpr size_t kTokens = 32;

/// Keys and values of one head for positions [0, length), written by `kernels`.
struct Int8Cache {
    Int8Cache(Random& random, const Kernels& kernels, size_t length, size_t head_dim)
        : dims(head_dim),
          blocks((length + kTokens - 1) / kTokens),
          plane(KvShape{1, 1, static_cast<int>(head_dim), KvType::int8}.head_bytes() / 2),
          k(blocks * plane),
          v(blocks * plane) {
        for (size_t b = 0; b < blocks; ++b) {
            k_table.push_back(k.data() + b * plane);
            v_table.push_back(v.data() + b * plane);
        }
        for (size_t p = 0; p < length; ++p) {
            const Guarded<float> key = random_floats(random, dims), value = random_floats(random, dims);
            kernels.store_kv_int8(key.data(), value.data(), static_cast<int>(dims),
                                  static_cast<int>(p % kTokens), k.data() + p / kTokens * plane,
                                  v.data() + p / kTokens * plane);
        }
    }
    double key(size_t p, size_t d) const {
        const uint16_t* at = k.data() + p / kTokens * plane;
        const auto* codes = reinterpret_cast<const int8_t*>(at);
        const uint16_t scale = at[kTokens * dims / 2 + d / kKvGroup * kTokens + p % kTokens];
        return codes[d * kTokens + p % kTokens] * static_cast<double>(half_to_float(scale));
    }
    double value(size_t p, size_t d) const {
        const uint16_t* at = v.data() + p / kTokens * plane;
        const auto* codes = reinterpret_cast<const int8_t*>(at);
        const uint16_t scale = at[kTokens * dims / 2 + d / kKvGroup * kTokens + p % kTokens];
        return codes[p % kTokens * dims + d] * static_cast<double>(half_to_float(scale));
    }

    size_t dims, blocks, plane;
    Guarded<uint16_t> k, v;
    std::vector<const uint16_t*> k_table, v_table;
};

/// Tokens [0, tokens) at first_position in units of `chunk` tokens; [tokens][heads][dims].
Guarded<float> run(const Kernels& kernels, const Int8Cache& cache, const AttentionShape& s,
                   const Guarded<float>& q, size_t chunk, Way way = Way::whole) {
    Guarded<float> out(q.size());
    const size_t stride = s.heads * s.head_dim;
    const auto heads = static_cast<int>(s.heads), dims = static_cast<int>(s.head_dim);
    for (size_t first = 0; first < s.tokens; first += chunk) {
        const auto tokens = static_cast<int>(std::min(chunk, s.tokens - first));
        Guarded<float> scratch(edgeseek::attention_scratch_floats(tokens, heads, dims));
        std::fill(scratch.begin(), scratch.end(), std::nanf(""));
        edgeseek::AttentionUnit unit{};
        unit.q = q.data() + first * stride;
        unit.q_token_stride = unit.out_token_stride = stride;
        unit.out = out.data() + first * stride;
        unit.tokens = tokens;
        unit.first_position = static_cast<int>(s.first_position + first);
        unit.heads = heads;
        unit.head_dim = dims;
        unit.window = static_cast<int>(s.window);
        unit.scale = 1.0f / std::sqrt(static_cast<float>(dims));
        unit.k = cache.k_table.data();
        unit.v = cache.v_table.data();
        unit.scratch = scratch.data();
        compute(kernels, KvType::int8, unit, way);
    }
    return out;
}

double exact(const Int8Cache& cache, const AttentionShape& s, const float* q, size_t position, size_t dim) {
    const size_t first = s.window > 0 && position + 1 > s.window ? position + 1 - s.window : 0;
    std::vector<double> scores;
    for (size_t p = first; p <= position; ++p) {
        double score = 0;
        for (size_t d = 0; d < s.head_dim; ++d) score += q[d] * cache.key(p, d);
        scores.push_back(score / std::sqrt(static_cast<double>(s.head_dim)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0, total = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
        const double weight = std::exp(scores[i] - largest);
        sum += weight;
        total += weight * cache.value(first + i, dim);
    }
    return total / sum;
}

}  // namespace

TEST(a_token_of_the_1_5b_shape_takes_15232_bytes) {
    CHECK_EQ((KvShape{28, 2, 128, KvType::int8}.block_bytes()), size_t{15232 * 32});
    CHECK_EQ((KvShape{28, 2, 128, KvType::f16}.block_bytes()), size_t{28672 * 32});
}

TEST(planes_keep_their_alignment) {
    for (int dims = 16; dims <= 256; dims += 16) {
        CHECK_EQ((KvShape{1, 1, dims, KvType::int8}.head_bytes() % 64), size_t{0});
    }
}

TEST(codes_and_scales_are_the_documented_ones_in_every_table) {
    Random random(41);
    for (const size_t dims : {16, 32, 48, 64, 80, 128}) {
        const Guarded<float> k = random_floats(random, dims, -3.0f, 3.0f), v = random_floats(random, dims);
        const size_t plane = KvShape{1, 1, static_cast<int>(dims), KvType::int8}.head_bytes() / 2;
        for (const Kernels* kernels : all_tables()) {
            Guarded<uint16_t> k_plane(plane), v_plane(plane);
            kernels->store_kv_int8(k.data(), v.data(), static_cast<int>(dims), 7, k_plane.data(),
                                   v_plane.data());
            const auto* k_codes = reinterpret_cast<const int8_t*>(k_plane.data());
            const auto* v_codes = reinterpret_cast<const int8_t*>(v_plane.data());
            for (size_t d = 0; d < dims; ++d) {
                const size_t g = d / kKvGroup, first = g * kKvGroup, last = std::min(first + kKvGroup, dims);
                const auto expect = [&](const Guarded<float>& x, int* code) {
                    float largest = 0;
                    for (size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(x[i]));
                    const uint16_t half = float_to_half(largest / 127.0f);
                    *code = static_cast<int>(std::nearbyint(x[d] * (1.0f / half_to_float(half))));
                    *code = std::clamp(*code, -127, 127);
                    return half;
                };
                int code;
                CHECK_EQ(k_plane[kTokens * dims / 2 + g * kTokens + 7], expect(k, &code));
                CHECK_EQ(int{k_codes[d * kTokens + 7]}, code);
                CHECK_EQ(v_plane[kTokens * dims / 2 + g * kTokens + 7], expect(v, &code));
                CHECK_EQ(int{v_codes[7 * dims + d]}, code);
            }
        }
    }
}

TEST(zeros_and_huge_values_are_stored_without_nan) {
    Guarded<float> zero(32), huge(32);
    for (float& x : huge) x = 3e38f;
    for (const Kernels* kernels : all_tables()) {
        Guarded<uint16_t> k(KvShape{1, 1, 32, KvType::int8}.head_bytes() / 2), v(k.size());
        kernels->store_kv_int8(zero.data(), huge.data(), 32, 0, k.data(), v.data());
        CHECK_EQ(k[kTokens * 16], 0);
        CHECK_EQ(v[kTokens * 16], float_to_half(65504.0f));
        CHECK_EQ(int{reinterpret_cast<const int8_t*>(v.data())[0]}, 127);
    }
}

TEST(attention_is_close_to_double_and_the_same_bits_everywhere) {
    Random random(42);
    for (const AttentionShape& s : {AttentionShape{128, 6, 1, 700, 0}, AttentionShape{64, 3, 9, 250, 0},
                                    AttentionShape{80, 1, 4, 30, 0}, AttentionShape{48, 2, 7, 300, 40},
                                    AttentionShape{16, 4, 20, 0, 0}}) {
        const Int8Cache cache(random, *edgeseek::scalar_kernels(), s.first_position + s.tokens, s.head_dim);
        const Guarded<float> q = random_floats(random, s.tokens * s.heads * s.head_dim);
        const Guarded<float> expected = run(*edgeseek::scalar_kernels(), cache, s, q, s.tokens);
        double worst = 0;
        for (size_t r = 0; r < s.tokens * s.heads; ++r) {
            for (size_t d = 0; d < s.head_dim; d += 7) {
                const double want =
                    exact(cache, s, q.data() + r * s.head_dim, s.first_position + r / s.heads, d);
                worst = std::max(worst, std::abs(expected[r * s.head_dim + d] - want));
            }
        }
        CHECK(worst < 2e-6);
        for (const Kernels* kernels : all_tables()) {
            for (const size_t chunk : {size_t{1}, size_t{3}, s.tokens}) {
                CHECK(same_bits(run(*kernels, cache, s, q, chunk), expected));
                CHECK(same_bits(run(*kernels, cache, s, q, chunk, Way::ranges), expected));
            }
        }
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// Latent attention: against a plain softmax in double precision, bit for bit between instruction sets and
// groupings of rows.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "edgeseek/exact_math.h"
#include "edgeseek/kv_pool.h"
#include "kernel_testing.h"

using namespace kernel_testing;
using edgeseek::float_to_half;
using edgeseek::half_to_float;
using edgeseek::KvShape;
using edgeseek::KvType;

namespace {

constexpr size_t kTokens = 32;

struct Shape {
    size_t latent, rotated, heads, tokens, first_position;
    size_t width() const { return latent + rotated; }
    size_t length() const { return first_position + tokens; }
};

/// Latents of positions [0, length) in blocks whose memory lies in reverse; what follows them is NaN.
struct LatentCache {
    LatentCache(Random& random, const Shape& s)
        : width(s.width()),
          blocks((s.length() + kTokens - 1) / kTokens),
          data(blocks * kTokens * width),
          table(blocks) {
        for (size_t b = 0; b < blocks; ++b) table[b] = data.data() + (blocks - 1 - b) * kTokens * width;
        for (uint16_t& half : data) half = 0x7e00;
        for (size_t p = 0; p < s.length(); ++p) {
            for (size_t d = 0; d < width; ++d) *at(p, d) = float_to_half(random.uniform(-1.0f, 1.0f));
        }
    }
    uint16_t* at(size_t position, size_t d) {
        return const_cast<uint16_t*>(table[position / kTokens]) + position % kTokens * width + d;
    }

    size_t width, blocks;
    Guarded<uint16_t> data;
    std::vector<const uint16_t*> table;
};

float scale_of(const Shape& s) { return 1.0f / std::sqrt(static_cast<float>(s.width())); }

/// All rows in units of `tokens` tokens and `heads` heads; [tokens][heads][latent] of each row's `width`.
Guarded<float> run(const Kernels& kernels, const LatentCache& cache, const Shape& s, const Guarded<float>& q,
                   size_t tokens, size_t heads) {
    Guarded<float> rows(q.size());  // queries, and results over them
    std::copy(q.begin(), q.end(), rows.begin());
    for (size_t t = 0; t < s.tokens; t += tokens) {
        for (size_t h = 0; h < s.heads; h += heads) {
            edgeseek::LatentUnit unit{};
            unit.head_stride = s.width();
            unit.token_stride = s.heads * s.width();
            unit.out = rows.data() + t * unit.token_stride + h * unit.head_stride;
            unit.q = unit.out;
            unit.tokens = static_cast<int>(std::min(tokens, s.tokens - t));
            unit.first_position = static_cast<int>(s.first_position + t);
            unit.heads = static_cast<int>(std::min(heads, s.heads - h));
            unit.width = static_cast<int>(s.width());
            unit.latent = static_cast<int>(s.latent);
            unit.scale = scale_of(s);
            unit.blocks = cache.table.data();
            Guarded<float> scratch(
                edgeseek::latent_scratch_floats(unit.tokens * unit.heads, unit.width, unit.latent));
            std::fill(scratch.begin(), scratch.end(), std::nanf(""));
            unit.scratch = scratch.data();
            kernels.attention_mla(unit);
        }
    }
    return rows;
}

/// The same in double precision for one row: its sum of latents.
std::vector<double> exact(LatentCache& cache, const Shape& s, const float* q, size_t position) {
    std::vector<double> weights, out(s.latent);
    double largest = -1e300, sum = 0;
    for (size_t p = 0; p <= position; ++p) {
        double score = 0;
        for (size_t d = 0; d < s.width(); ++d) score += double{q[d]} * half_to_float(*cache.at(p, d));
        weights.push_back(score * scale_of(s));
        largest = std::max(largest, weights.back());
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (size_t p = 0; p <= position; ++p) {
        for (size_t d = 0; d < s.latent; ++d) out[d] += weights[p] / sum * half_to_float(*cache.at(p, d));
    }
    return out;
}

std::string label(const Kernels& kernels, const Shape& s, size_t tokens, size_t heads) {
    return std::string(kernels.name) + " latent " + std::to_string(s.latent) + " + " +
           std::to_string(s.rotated) + " heads " + std::to_string(s.heads) + " tokens " +
           std::to_string(s.tokens) + " first " + std::to_string(s.first_position) + " in units of " +
           std::to_string(tokens) + " x " + std::to_string(heads);
}

void check_shape(Random& random, const Shape& s) {
    LatentCache cache(random, s);
    const Guarded<float> q = random_floats(random, s.tokens * s.heads * s.width());
    const Guarded<float> expected = run(*edgeseek::scalar_kernels(), cache, s, q, s.tokens, s.heads);
    double worst = 0;
    for (size_t row = 0; row < s.tokens * s.heads; ++row) {
        const std::vector<double> want =
            exact(cache, s, q.data() + row * s.width(), s.first_position + row / s.heads);
        for (size_t d = 0; d < s.latent; ++d) {
            const double error = std::abs(expected[row * s.width() + d] - want[d]);
            worst = std::isnan(error) ? 1e300 : std::max(worst, error);
        }
    }
    const std::string what = label(*edgeseek::scalar_kernels(), s, s.tokens, s.heads);
    CHECK_EQ(what + (worst < 2e-6 ? ": close" : ": off by " + std::to_string(worst)), what + ": close");
    for (const Kernels* kernels : all_tables()) {
        for (const auto& [tokens, heads] :
             {std::pair{s.tokens, s.heads}, std::pair<size_t, size_t>{1, 1},
              std::pair<size_t, size_t>{1, s.heads}, std::pair<size_t, size_t>{3, 2}}) {
            const bool same = same_bits(run(*kernels, cache, s, q, tokens, heads), expected);
            const std::string way = label(*kernels, s, tokens, heads);
            CHECK_EQ(way + (same ? ": same bits" : ": different bits"), way + ": same bits");
        }
    }
}

}  // namespace

TEST(a_token_of_v2_lite_takes_31104_bytes) {
    const KvShape shape{27, 1, 512 + 64, KvType::f16, true};
    CHECK_EQ(shape.block_bytes(), size_t{31104 * kTokens});
    const edgeseek::KvPool pool(shape, 2);
    CHECK_EQ(pool.bytes(), size_t{2 * 31104 * kTokens});
    CHECK_EQ(pool.latent(1, 2) - pool.latent(0, 0), (27 + 2) * 32 * 576);
}

TEST(a_latent_pool_of_int8_or_of_several_heads_is_refused) {
    CHECK_THROWS(std::invalid_argument, edgeseek::KvPool(KvShape{1, 1, 64, KvType::int8, true}, 1));
    CHECK_THROWS(std::invalid_argument, edgeseek::KvPool(KvShape{1, 2, 64, KvType::f16, true}, 1));
}

TEST(every_width_agrees_everywhere) {
    Random random(50);
    for (const size_t latent : {16, 32, 48, 64, 80, 512}) {
        for (const size_t rotated : {16, 64}) check_shape(random, {latent, rotated, 3, 2, 40});
    }
}

TEST(every_number_of_heads_and_tokens_agrees_everywhere) {
    Random random(51);
    for (size_t heads = 1; heads <= 9; ++heads) check_shape(random, {32, 16, heads, 2, 31});
    for (size_t tokens = 1; tokens <= 9; ++tokens) check_shape(random, {48, 16, 2, tokens, 255});
    check_shape(random, {32, 16, 16, 4, 0});
}

TEST(many_ranges_merge_alike_everywhere) {
    Random random(52);
    for (const size_t first : {0, 1, 31, 32, 255, 256, 300}) check_shape(random, {16, 16, 2, 3, first});
    check_shape(random, {64, 16, 5, 2, 1500});
}

TEST(scores_far_apart_do_not_overflow) {
    Random random(53);
    const Shape s{64, 16, 1, 1, 299};
    LatentCache cache(random, s);
    const Guarded<float> q = random_floats(random, s.width(), -3000.0f, 3000.0f);
    const Guarded<float> expected = run(*edgeseek::scalar_kernels(), cache, s, q, 1, 1);
    for (size_t d = 0; d < s.latent; ++d) CHECK(std::isfinite(expected[d]));
    for (const Kernels* kernels : vector_tables())
        CHECK(same_bits(run(*kernels, cache, s, q, 1, 1), expected));
}

TEST(halves_are_rounded_alike_everywhere) {
    Random random(54);
    Guarded<float> x = random_floats(random, 64, -4.0f, 4.0f);
    x[3] = 1e6f;
    x[4] = 5e-8f;
    for (const Kernels* kernels : all_tables()) {
        Guarded<uint16_t> out(64);
        kernels->to_halves(x.data(), 64, out.data());
        for (size_t i = 0; i < 64; ++i) CHECK_EQ(out[i], float_to_half(x[i]));
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

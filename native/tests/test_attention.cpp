// Paged attention: against a plain softmax in double precision, bit for bit between instruction sets and
// groupings.
#include "attention_testing.h"
#include "check.h"

using namespace kernel_testing;

namespace {

constexpr size_t kFirstPositions[] = {0, 1, 31, 32, 255, 256, 300};

std::string label(const Kernels& kernels, const AttentionShape& s) {
    return std::string(kernels.name) + " head_dim " + std::to_string(s.head_dim) + " heads " +
           std::to_string(s.heads) + " tokens " + std::to_string(s.tokens) + " first " +
           std::to_string(s.first_position) + " window " + std::to_string(s.window);
}

/// The largest difference of `out` from attention in double precision.
double worst_error(PagedCache& cache, const AttentionShape& s, const Guarded<float>& q,
                   const Guarded<float>& out) {
    double worst = 0;
    for (size_t row = 0; row < s.tokens * s.heads; ++row) {
        const size_t position = s.first_position + row / s.heads;
        const size_t seen = s.window == 0 ? position + 1 : std::min(position + 1, s.window);
        const std::vector<double> expected = attend(cache, q.data() + row * s.head_dim, position, seen);
        for (size_t d = 0; d < s.head_dim; ++d) {
            const double error = std::abs(out[row * s.head_dim + d] - expected[d]);
            worst = std::isnan(error) ? 1e300 : std::max(worst, error);
        }
    }
    return worst;
}

void check_shape(Random& random, const AttentionShape& s) {
    PagedCache cache(random, s.first_position + s.tokens, s.head_dim);
    const Guarded<float> q = random_floats(random, s.tokens * s.heads * s.head_dim);
    const Guarded<float> expected = run_in_chunks(*edgeseek::scalar_kernels(), cache, s, q, s.tokens);
    const double error = worst_error(cache, s, q, expected);
    CHECK_EQ(label(*edgeseek::scalar_kernels(), s) +
                 (error < 2e-6 ? ": close" : ": off by " + std::to_string(error)),
             label(*edgeseek::scalar_kernels(), s) + ": close");
    for (const Kernels* kernels : all_tables()) {
        for (const size_t chunk : {s.tokens, size_t{1}, size_t{4}}) {
            for (const Way way : {Way::whole, Way::ranges}) {
                const bool same = same_bits(run_in_chunks(*kernels, cache, s, q, chunk, way), expected);
                const std::string what = label(*kernels, s) + " in units of " + std::to_string(chunk) +
                                         (way == Way::ranges ? ", range by range" : "");
                CHECK_EQ(what + (same ? ": same bits" : ": different bits"), what + ": same bits");
            }
        }
    }
}

}  // namespace

TEST(every_head_size_agrees_everywhere) {
    Random random(30);
    for (const size_t head_dim : {16, 32, 64, 80, 96, 128, 192, 256}) {
        check_shape(random, {head_dim, 2, 3, 40, 0});
        check_shape(random, {head_dim, 3, 2, 255, 0});
        check_shape(random, {head_dim, 1, 5, 30, 8});
    }
}

TEST(every_group_of_heads_agrees_everywhere) {
    Random random(31);
    for (size_t heads = 1; heads <= 8; ++heads) {
        check_shape(random, {32, heads, 2, 31, 0});
        check_shape(random, {32, heads, 3, 260, 8});
    }
}

TEST(every_number_of_tokens_and_start_agrees_everywhere) {
    Random random(32);
    for (const size_t first : kFirstPositions) {
        for (size_t tokens = 1; tokens <= 9; ++tokens) {
            check_shape(random, {16, 2, tokens, first, 0});
            check_shape(random, {16, 2, tokens, first, 8});
        }
    }
}

TEST(many_ranges_merge_alike_everywhere) {
    Random random(33);
    check_shape(random, {64, 3, 2, 1500, 0});
    check_shape(random, {64, 1, 3, 1022, 700});
}

TEST(a_window_of_8_attends_exactly_the_last_8_positions) {
    Random random(34);
    for (const size_t length : {7, 8, 9, 17}) {
        const AttentionShape s{64, 2, length, 0, 8};
        PagedCache cache(random, length, s.head_dim);
        const Guarded<float> q = random_floats(random, length * s.heads * s.head_dim);
        for (const Kernels* kernels : all_tables()) {
            for (const size_t chunk : {1, 3, 8, 9}) {
                const Guarded<float> out = run_in_chunks(*kernels, cache, s, q, chunk);
                CHECK(worst_error(cache, s, q, out) < 2e-6);
            }
        }
        // One position more or fewer would be seen: those results differ by far more than the tolerance.
        const float* last = q.data() + (length - 1) * s.heads * s.head_dim;
        const size_t seen = std::min<size_t>(length, 8);
        const double exact = attend(cache, last, length - 1, seen)[0];
        CHECK(std::abs(attend(cache, last, length - 1, seen - 1)[0] - exact) > 1e-4);
        if (length > 8) CHECK(std::abs(attend(cache, last, length - 1, 9)[0] - exact) > 1e-4);
    }
}

TEST(scores_far_apart_do_not_overflow) {
    Random random(35);
    const AttentionShape s{64, 1, 1, 299, 0};
    PagedCache cache(random, 300, s.head_dim);
    Guarded<float> q = random_floats(random, s.head_dim, -3000.0f, 3000.0f);
    const Guarded<float> expected = run_in_chunks(*edgeseek::scalar_kernels(), cache, s, q, 1);
    for (const float v : expected) CHECK(std::isfinite(v));
    for (const Kernels* kernels : vector_tables()) {
        CHECK(same_bits(run_in_chunks(*kernels, cache, s, q, 1), expected));
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// The sampler against a plain sort-everything version in double precision, and its refusals.
#include "edgeseek/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"

using edgeseek::random_bits;
using edgeseek::SampleParams;
using edgeseek::SampleResult;
using edgeseek::SampleScratch;

namespace {

SampleResult run(const std::vector<float>& logits, const SampleParams& params) {
    SampleScratch scratch;
    return edgeseek::sample(logits.data(), logits.size(), params, scratch);
}

std::vector<float> random_logits(size_t vocab, float spread, uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<float> logits(vocab);
    for (float& l : logits) l = spread * (static_cast<float>(generator()) / 4294967296.0f - 0.5f);
    return logits;
}

struct Token {
    double weight;
    int32_t id;
};

// Steps 4 to 8 of sample.h by sorting the whole vocabulary.
int32_t sort_everything(const std::vector<float>& logits, const SampleParams& p) {
    std::vector<int32_t> ids(logits.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    if (p.top_k > 0 && static_cast<size_t>(p.top_k) < ids.size()) ids.resize(static_cast<size_t>(p.top_k));
    const float max = logits[static_cast<size_t>(ids[0])];
    std::vector<Token> tokens;
    double total = 0;
    for (int32_t id : ids) {
        const float z = (logits[static_cast<size_t>(id)] - max) / p.temperature;
        tokens.push_back({std::floor(std::exp(static_cast<double>(z)) * 17592186044416.0), id});
        total += tokens.back().weight;
    }
    double sum = 0;
    size_t kept = 0;
    do sum += tokens[kept++].weight;
    while (kept < tokens.size() && sum < p.top_p * total);
    tokens.resize(kept);
    while (tokens.back().weight < p.min_p * tokens[0].weight) tokens.pop_back();
    total = 0;
    for (const Token& t : tokens) total += t.weight;
    std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
    double left = std::ldexp(static_cast<double>(random_bits(p.seed, p.position)), -64) * total;
    for (const Token& t : tokens) {
        if (left < t.weight) return t.id;
        left -= t.weight;
    }
    return tokens.back().id;
}

}  // namespace

TEST(random_bits_are_philox_4x32_10) {
    // Known answers of the Random123 distribution for counter and key all zero.
    CHECK_EQ(random_bits(0, 0), 0xe169c58d6627e8d5ull);
    CHECK(random_bits(0, 1) != random_bits(1, 0));
}

TEST(greedy_takes_the_highest_and_the_lowest_id_of_equals) {
    CHECK_EQ(run({0.0f, 3.0f, -1.0f, 3.0f}, {}).token, 1);
    for (size_t vocab : {1u, 15u, 16u, 17u, 1000u}) {
        std::vector<float> logits(vocab, -5.0f);
        logits.back() = 1.0f;
        CHECK_EQ(run(logits, {}).token, vocab - 1);
    }
}

TEST(every_combination_of_cuts_equals_sorting_everything) {
    int cases = 0;
    for (size_t vocab : {2u, 17u, 300u, 5000u}) {
        for (float spread : {0.01f, 4.0f, 30.0f}) {
            for (int32_t top_k : {0, 1, 7, 40, 290}) {
                for (double top_p : {1.0, 0.95, 0.3}) {
                    for (double min_p : {0.0, 0.05}) {
                        SampleParams params;
                        params.temperature = 0.7f;
                        params.top_k = top_k;
                        params.top_p = top_p;
                        params.min_p = min_p;
                        const std::vector<float> logits =
                            random_logits(vocab, spread, static_cast<uint32_t>(++cases));
                        for (params.seed = 0; params.seed < 6; ++params.seed) {
                            params.position = static_cast<uint64_t>(cases);
                            CHECK_EQ(run(logits, params).token, sort_everything(logits, params));
                        }
                    }
                }
            }
        }
    }
}

TEST(equal_logits_survive_top_k_by_ascending_id) {
    SampleParams params;
    params.temperature = 1.0f;
    params.top_k = 3;
    const std::vector<float> logits(500, 1.25f);
    for (params.position = 0; params.position < 200; ++params.position) CHECK(run(logits, params).token < 3);
}

TEST(the_draw_follows_the_distribution) {
    SampleParams params;
    params.temperature = 1.0f;
    std::vector<int> hits(4);
    const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)};
    for (params.position = 0; params.position < 20000; ++params.position) {
        hits[static_cast<size_t>(run(logits, params).token)]++;
    }
    for (size_t i = 0; i < 4; ++i) CHECK_NEAR(hits[i] / 20000.0, 0.1 * static_cast<double>(i + 1), 0.012);
}

TEST(repetition_penalty_divides_positive_and_multiplies_negative_logits) {
    const int32_t seen[] = {0, 1};
    SampleParams params;
    params.seen_ids = seen;
    params.num_seen = 2;
    params.repetition_penalty = 2.0f;
    CHECK_EQ(run({4.0f, -1.0f, 1.9f}, params).token, 0);
    CHECK_EQ(run({4.0f, -1.0f, 2.1f}, params).token, 2);
    CHECK_EQ(run({-1.0f, -1.0f, -1.9f}, params).token, 2);
}

TEST(presence_counts_once_and_frequency_counts_each) {
    const int32_t ids[] = {0, 1};
    const int32_t counts[] = {1, 3};
    SampleParams params;
    params.output_ids = ids;
    params.output_counts = counts;
    params.num_output = 2;
    params.presence_penalty = 1.0f;
    CHECK_EQ(run({2.0f, 2.5f, 1.4f}, params).token, 1);
    params.presence_penalty = 0.0f;
    params.frequency_penalty = 0.5f;
    CHECK_EQ(run({2.0f, 2.5f, 1.4f}, params).token, 0);
}

TEST(bias_shifts_and_minus_infinity_bans) {
    const int32_t ids[] = {1, 2};
    const float values[] = {5.0f, -std::numeric_limits<float>::infinity()};
    SampleParams params;
    params.bias_ids = ids;
    params.bias_values = values;
    params.num_bias = 2;
    CHECK_EQ(run({4.0f, 0.0f, 9.0f}, params).token, 1);
    params.temperature = 100.0f;
    for (params.position = 0; params.position < 300; ++params.position) {
        CHECK(run({4.0f, 0.0f, 9.0f}, params).token != 2);
    }
}

TEST(logprobs_are_of_the_row_as_it_came) {
    const int32_t ids[] = {0};
    const float values[] = {-100.0f};
    SampleParams params;
    params.bias_ids = ids;
    params.bias_values = values;
    params.num_bias = 1;
    params.top_logprobs = 2;
    const SampleResult result = run({std::log(0.5f), std::log(0.2f), std::log(0.3f)}, params);
    CHECK_EQ(result.token, 2);
    CHECK_NEAR(result.logprob, std::log(0.3), 1e-6);
    REQUIRE(result.top_ids.size() == 2);
    CHECK_EQ(result.top_ids[0], 0);
    CHECK_EQ(result.top_ids[1], 2);
    CHECK_NEAR(result.top_logprobs[0], std::log(0.5), 1e-6);
    params.top_logprobs = 50;
    CHECK_EQ(run({1.0f, 2.0f, 3.0f}, params).top_ids.size(), 3);
    params.top_logprobs = -1;
    CHECK_EQ(run({1.0f, 2.0f, 3.0f}, params).logprob, 0.0);
}

TEST(a_tiny_temperature_is_greedy_and_extreme_logits_do_not_break) {
    SampleParams params;
    params.temperature = 1e-38f;
    params.top_p = 0.9;
    CHECK_EQ(run({-3e38f, 1.0f, 3e38f}, params).token, 2);
    params.temperature = 1.0f;
    params.top_logprobs = 3;
    CHECK_EQ(run({-3e38f, 1.0f, 3e38f}, params).token, 2);
}

TEST(what_is_not_finite_is_refused_and_named) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    for (float bad : {nan, inf, -inf}) {
        for (size_t at : {0u, 15u, 16u, 20u}) {
            std::vector<float> logits(21, 0.0f);
            logits[at] = bad;
            CHECK_THROWS(std::invalid_argument, run(logits, {}));
        }
    }
}

TEST(parameters_out_of_range_are_refused) {
    const std::vector<float> logits = {1.0f, 2.0f};
    const int32_t ids[] = {2};
    const float values[] = {std::numeric_limits<float>::infinity()};
    const auto refuses = [&](auto change) {
        SampleParams params;
        change(params);
        CHECK_THROWS(std::invalid_argument, run(logits, params));
    };
    refuses([](SampleParams& p) { p.temperature = -1.0f; });
    refuses([](SampleParams& p) { p.temperature = std::numeric_limits<float>::quiet_NaN(); });
    refuses([](SampleParams& p) { p.top_k = -1; });
    refuses([](SampleParams& p) { p.top_p = 0.0; });
    refuses([](SampleParams& p) { p.top_p = 1.5; });
    refuses([](SampleParams& p) { p.min_p = -0.1; });
    refuses([](SampleParams& p) { p.repetition_penalty = 0.0f; });
    refuses([](SampleParams& p) { p.top_logprobs = -2; });
    refuses([&](SampleParams& p) {
        p.seen_ids = ids;
        p.num_seen = 1;
    });
    refuses([&](SampleParams& p) {
        p.output_ids = ids;
        p.num_output = 1;
    });
    refuses([&](SampleParams& p) {
        p.bias_ids = ids;
        p.bias_values = values;
        p.num_bias = 1;
    });
    const int32_t both[] = {0, 1};
    const float ban[] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
    refuses([&](SampleParams& p) {
        p.bias_ids = both;
        p.bias_values = ban;
        p.num_bias = 2;
    });
    SampleScratch scratch;
    CHECK_THROWS(std::invalid_argument, edgeseek::sample(nullptr, 0, {}, scratch));
}

int main(int argc, char** argv) { return check::run(argc, argv); }

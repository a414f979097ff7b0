#include "edgeseek/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "edgeseek/exact_math.h"

namespace edgeseek {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kBlock = 512;  // ratios whose 22-bit halves sum to less than 2^32 in each lane
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kUnit = 17592186044416.0f;  // 2^44, the weight of the most likely token

// e^x for x <= 0 (and -infinity) without fma or rounding instructions: this file is built for the oldest
// machine of its architecture, where both are library calls. Relative error < 2e-7; the same bits everywhere;
// e^0 == 1.
inline float exp_of_nonpositive(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    constexpr int32_t kLowest =
        -1028653056;  // the bits of -88; compared as integers, because compilers keep a
    int32_t pattern;  // branch for a comparison of floats, and the loop scalar
    std::memcpy(&pattern, &x, sizeof pattern);
    pattern |= std::numeric_limits<int32_t>::min();
    pattern = pattern < kLowest ? pattern : kLowest;
    std::memcpy(&x, &pattern, sizeof pattern);
    const float shifted = x * exact::kLog2e + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * exact::kLn2High) - n * exact::kLn2Low;  // n * kLn2High is exact
    const float* c = exact::kExpPoly;
    const float p = ((((c[0] * r + c[1]) * r + c[2]) * r + c[3]) * r + c[4]) * r + c[5];
    const float y = (p * (r * r) + r) + 1.0f;
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

// ratios[i] = e^((values[i] - max) / temperature), at most 1.
void probability_ratios(const float* values, size_t count, float max, float temperature, float* ratios) {
    for (size_t i = 0; i < count; ++i) ratios[i] = exp_of_nonpositive((values[i] - max) / temperature);
}

inline bool is_finite(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}

float highest(const float* values, size_t count) {
    float lanes[kLanes];
    std::fill(lanes, lanes + kLanes, -kInfinity);
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
    for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    return *std::max_element(lanes, lanes + kLanes);
}

// Calls take(i), i ascending, for the values above `threshold`, which take may raise. Lanes are compared as
// one, so that a stretch without any costs little.
template <class Take>
void for_each_above(const float* values, size_t count, const float& threshold, Take take) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const float limit = threshold;
        uint32_t above[kLanes];
        for (size_t j = 0; j < kLanes; ++j) above[j] = values[i + j] > limit ? 1u : 0u;
        uint32_t any = 0;
        for (uint32_t lane : above) any |= lane;
        for (size_t j = 0; any != 0 && j < kLanes; ++j) {
            if (values[i + j] > threshold) take(i + j);
        }
    }
    for (; i < count; ++i) {
        if (values[i] > threshold) take(i);
    }
}

void require_finite(const float* values, size_t count) {
    uint32_t odd[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        uint32_t bits[kLanes];
        std::memcpy(bits, values + i, sizeof bits);
        for (size_t j = 0; j < kLanes; ++j) odd[j] |= (bits[j] & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    }
    uint32_t any = 0;
    for (uint32_t lane : odd) any |= lane;
    for (; i < count; ++i) any |= is_finite(values[i]) ? 0u : 1u;
    if (any == 0) return;
    for (i = 0; is_finite(values[i]);) ++i;
    throw std::invalid_argument("logit " + std::to_string(i) + " is " +
                                (std::isnan(values[i]) ? "NaN" : "infinite") +
                                "; the weights or an activation overflowed");
}

void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

void require_ids(const int32_t* ids, size_t count, size_t vocab, const char* what) {
    require(count == 0 || ids != nullptr, "an id list has a size but no data");
    for (size_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= vocab) {
            throw std::invalid_argument(std::string(what) + " holds token " + std::to_string(ids[i]) +
                                        ", the vocabulary has " + std::to_string(vocab));
        }
    }
}

void validate(const float* logits, size_t vocab, const SampleParams& p) {
    require(logits != nullptr && vocab > 0, "there are no logits to sample from");
    require(vocab <= (size_t{1} << 18), "the vocabulary exceeds 262144 tokens");
    require(std::isfinite(p.temperature) && p.temperature >= 0.0f, "temperature must be finite and >= 0");
    require(p.top_k >= 0, "top_k must be >= 0");
    require(p.top_p > 0.0 && p.top_p <= 1.0, "top_p must be in (0, 1]");
    require(p.min_p >= 0.0 && p.min_p <= 1.0, "min_p must be in [0, 1]");
    require(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0.0f,
            "repetition_penalty must be finite and > 0");
    require(std::isfinite(p.presence_penalty), "presence_penalty must be finite");
    require(std::isfinite(p.frequency_penalty), "frequency_penalty must be finite");
    require(p.top_logprobs >= -1, "top_logprobs must be >= -1");
    require_ids(p.seen_ids, p.num_seen, vocab, "seen_ids");
    require_ids(p.output_ids, p.num_output, vocab, "output_ids");
    require_ids(p.bias_ids, p.num_bias, vocab, "bias_ids");
    require(p.num_output == 0 || p.output_counts != nullptr, "output_ids come without output_counts");
    require(p.num_bias == 0 || p.bias_values != nullptr, "bias_ids come without bias_values");
    for (size_t i = 0; i < p.num_bias; ++i)
        require(p.bias_values[i] < kInfinity, "a bias must be below +infinity");
}

// Steps 1 to 3. Returns `logits` itself where nothing changes it.
const float* adjust(const float* logits, size_t vocab, const SampleParams& p, std::vector<float>& copy) {
    const bool repetition = p.num_seen > 0 && p.repetition_penalty != 1.0f;
    const bool counts = p.num_output > 0 && (p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f);
    if (!repetition && !counts && p.num_bias == 0) return logits;
    copy.assign(logits, logits + vocab);
    const auto put = [&copy](int32_t id, float value) {
        require(is_finite(value), "a penalty or bias makes a logit overflow");
        copy[static_cast<size_t>(id)] = value;
    };
    for (size_t i = 0; repetition && i < p.num_seen; ++i) {
        const float l = copy[static_cast<size_t>(p.seen_ids[i])];
        put(p.seen_ids[i], l > 0.0f ? l / p.repetition_penalty : l * p.repetition_penalty);
    }
    for (size_t i = 0; counts && i < p.num_output; ++i) {
        const float l = copy[static_cast<size_t>(p.output_ids[i])];
        const float count = static_cast<float>(p.output_counts[i]);
        put(p.output_ids[i], l - p.frequency_penalty * count - p.presence_penalty);
    }
    for (size_t i = 0; i < p.num_bias; ++i) {
        float& l = copy[static_cast<size_t>(p.bias_ids[i])];
        if (p.bias_values[i] == -kInfinity) {
            l = -kInfinity;
        } else {
            put(p.bias_ids[i], l + p.bias_values[i]);
        }
    }
    return copy.data();
}

bool ranks_before(const TokenValue& a, const TokenValue& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

bool ranks_before(const TokenWeight& a, const TokenWeight& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

// Leaves the (at most) k highest values above -infinity in `best`, in no particular order. One pass: values
// that cannot be among them are skipped, the others collect until there are twice as many as needed.
void select_top(const float* values, size_t count, size_t k, std::vector<TokenValue>& best) {
    best.clear();
    const auto order = [](const TokenValue& a, const TokenValue& b) { return ranks_before(a, b); };
    const auto keep_k = [&] {
        std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(k - 1), best.end(), order);
        best.resize(k);
    };
    const size_t capacity = 2 * k + 64;
    float threshold = -kInfinity;
    for_each_above(values, count, threshold, [&](size_t i) {
        best.push_back({values[i], static_cast<int32_t>(i)});
        if (best.size() == capacity) {
            keep_k();
            threshold = best[k - 1].value;  // a later token of equal value has a higher id and ranks behind
        }
    });
    if (best.size() > k) keep_k();
}

inline uint64_t weight_of(float ratio) { return static_cast<uint64_t>(static_cast<int64_t>(ratio * kUnit)); }

// Sum of weight_of over up to kBlock ratios. A weight is split into its upper and lower 22 bits, which are
// converted and summed as 32-bit lanes; 64-bit conversions would keep the loop scalar.
uint64_t block_weight(const float* ratios, size_t count) {
    constexpr float kHalf = 4194304.0f;  // 2^22
    uint32_t high[kLanes] = {}, low[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
            const int32_t upper = static_cast<int32_t>(ratios[i + j] * kHalf);
            const float rest = ratios[i + j] - static_cast<float>(upper) * (1.0f / kHalf);  // exact
            high[j] += static_cast<uint32_t>(upper);
            low[j] += static_cast<uint32_t>(static_cast<int32_t>(rest * kUnit));
        }
    }
    uint64_t sum = 0;
    for (size_t j = 0; j < kLanes; ++j) sum += (uint64_t{high[j]} << 22) + low[j];
    for (; i < count; ++i) sum += weight_of(ratios[i]);
    return sum;
}

uint64_t total_weight(const float* ratios, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i += kBlock) sum += block_weight(ratios + i, std::min(kBlock, count - i));
    return sum;
}

uint64_t total_weight(const std::vector<TokenWeight>& tokens) {
    uint64_t sum = 0;
    for (const TokenWeight& t : tokens) sum += t.weight;
    return sum;
}

template <class Keep>
void keep_if(std::vector<TokenWeight>& tokens, Keep keep) {
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(), [&](const TokenWeight& t) { return !keep(t); }),
                 tokens.end());
}

// Steps 4 and 5: `candidates` become the top k with their weights, ids ascending.
void weigh_top_k(const float* values, size_t vocab, float max, const SampleParams& p,
                 SampleScratch& scratch) {
    select_top(values, vocab, static_cast<size_t>(p.top_k), scratch.best);
    std::sort(scratch.best.begin(), scratch.best.end(),
              [](const TokenValue& a, const TokenValue& b) { return a.id < b.id; });
    scratch.candidates.clear();
    for (const TokenValue& t : scratch.best) {
        const uint64_t weight = weight_of(exp_of_nonpositive((t.value - max) / p.temperature));
        if (weight > 0) scratch.candidates.push_back({weight, t.id});
    }
}

// Candidates without top-k, ids ascending: tokens that top-p or min-p is sure to cut are left out.
void weigh_likely(const float* ratios, size_t vocab, uint64_t total, const SampleParams& p,
                  SampleScratch& scratch) {
    // All tokens lighter than this together weigh less than half of what top-p may cut off: none is in the
    // nucleus.
    const double light = 0.5 * (1.0 - p.top_p) * static_cast<double>(total) / static_cast<double>(vocab);
    const float floor = static_cast<float>(std::max(light / static_cast<double>(kUnit), 0.5 * p.min_p));
    scratch.candidates.clear();
    for_each_above(ratios, vocab, floor, [&](size_t i) {
        const uint64_t weight = weight_of(ratios[i]);
        if (weight > 0) scratch.candidates.push_back({weight, static_cast<int32_t>(i)});
    });
}

// Step 6, where the tokens before this cut weigh `total`. Finds the last token of the nucleus by bisection on
// rank, without sorting.
void apply_top_p(double top_p, uint64_t total, SampleScratch& scratch) {
    const double target = top_p * static_cast<double>(total);
    std::vector<TokenWeight>& ranked = scratch.ranked;
    ranked = scratch.candidates;
    const auto order = [](const TokenWeight& a, const TokenWeight& b) { return ranks_before(a, b); };
    auto low = ranked.begin();
    auto high = ranked.end();
    uint64_t before = 0;
    while (high - low > 1) {
        const auto middle = low + (high - low) / 2;
        std::nth_element(low, middle, high, order);
        uint64_t sum = before;
        for (auto it = low; it != middle; ++it) sum += it->weight;
        if (static_cast<double>(sum) >= target) {
            high = middle;
        } else {
            before = sum;
            low = middle;
        }
    }
    const TokenWeight last = *low;
    keep_if(scratch.candidates, [&last](const TokenWeight& t) { return !ranks_before(last, t); });
}

// Step 7. The most likely token survives every cut before this one.
void apply_min_p(double min_p, std::vector<TokenWeight>& tokens) {
    uint64_t most = 0;
    for (const TokenWeight& t : tokens) most = std::max(most, t.weight);
    const double least = min_p * static_cast<double>(most);
    keep_if(tokens, [least](const TokenWeight& t) { return static_cast<double>(t.weight) >= least; });
}

// High 64 bits of a * b.
uint64_t multiply_high(uint64_t a, uint64_t b) {
    const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const uint64_t mid = a1 * b0 + ((a0 * b0) >> 32);
    const uint64_t mid2 = a0 * b1 + (mid & 0xffffffffu);
    return a1 * b1 + (mid >> 32) + (mid2 >> 32);
}

// Step 8 over a list.
int32_t draw(const std::vector<TokenWeight>& tokens, uint64_t bits) {
    uint64_t left = multiply_high(bits, total_weight(tokens));  // uniform in [0, total)
    for (const TokenWeight& t : tokens) {
        if (left < t.weight) return t.id;
        left -= t.weight;
    }
    throw std::invalid_argument("no token is left to draw from");
}

// Step 8 over the whole vocabulary, whose weights sum to `total`.
int32_t draw_from_all(const float* ratios, size_t vocab, uint64_t total, uint64_t bits) {
    uint64_t left = multiply_high(bits, total);
    size_t i = 0;
    for (; i + kBlock < vocab; i += kBlock) {
        const uint64_t weight = block_weight(ratios + i, kBlock);
        if (left < weight) break;
        left -= weight;
    }
    for (; i < vocab; ++i) {
        const uint64_t weight = weight_of(ratios[i]);
        if (left < weight) return static_cast<int32_t>(i);
        left -= weight;
    }
    throw std::invalid_argument("no token is left to draw from");
}

int32_t choose(const float* values, size_t vocab, const SampleParams& p, SampleScratch& scratch) {
    const float max = highest(values, vocab);
    require(max > -kInfinity, "the logit bias bans every token");
    if (p.temperature == 0.0f) return static_cast<int32_t>(std::find(values, values + vocab, max) - values);
    const uint64_t bits = random_bits(p.seed, p.position);
    uint64_t total = 0;
    if (p.top_k > 0 && static_cast<size_t>(p.top_k) < vocab) {
        weigh_top_k(values, vocab, max, p, scratch);
        total = total_weight(scratch.candidates);
    } else {
        scratch.ratios.resize(vocab);
        float* ratios = scratch.ratios.data();
        probability_ratios(values, vocab, max, p.temperature, ratios);
        total = total_weight(ratios, vocab);
        if (p.top_p == 1.0 && p.min_p == 0.0) return draw_from_all(ratios, vocab, total, bits);
        weigh_likely(ratios, vocab, total, p, scratch);
    }
    if (p.top_p < 1.0) apply_top_p(p.top_p, total, scratch);
    if (p.min_p > 0.0) apply_min_p(p.min_p, scratch.candidates);
    return draw(scratch.candidates, bits);
}

void report_logprobs(const float* logits, size_t vocab, size_t top, SampleScratch& scratch,
                     SampleResult& result) {
    const float max = highest(logits, vocab);
    std::vector<float>& ratios = scratch.ratios;
    ratios.assign((vocab + kLanes - 1) / kLanes * kLanes, 0.0f);
    probability_ratios(logits, vocab, max, 1.0f, ratios.data());
    double lanes[kLanes] = {};
    for (size_t i = 0; i < ratios.size(); i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(ratios[i + j]);
    }
    double sum = 0.0;
    for (double lane : lanes) sum += lane;
    const double log_sum = static_cast<double>(max) + exact_log(sum);
    const auto logprob = [&](int32_t id) { return static_cast<double>(logits[id]) - log_sum; };
    result.logprob = logprob(result.token);
    if (top == 0) return;
    select_top(logits, vocab, std::min(top, vocab), scratch.best);
    std::sort(scratch.best.begin(), scratch.best.end(),
              [](const TokenValue& a, const TokenValue& b) { return ranks_before(a, b); });
    for (const TokenValue& t : scratch.best) {
        result.top_ids.push_back(t.id);
        result.top_logprobs.push_back(logprob(t.id));
    }
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t position) {
    uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53u} * c0;
        const uint64_t b = uint64_t{0xCD9E8D57u} * c2;
        c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(b);
        c3 = static_cast<uint32_t>(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return uint64_t{c1} << 32 | c0;
}

SampleResult sample(const float* logits, size_t vocab, const SampleParams& params, SampleScratch& scratch) {
    validate(logits, vocab, params);
    require_finite(logits, vocab);
    SampleResult result;
    result.token = choose(adjust(logits, vocab, params, scratch.adjusted), vocab, params, scratch);
    if (params.top_logprobs >= 0) {
        report_logprobs(logits, vocab, static_cast<size_t>(params.top_logprobs), scratch, result);
    }
    return result;
}

}  // namespace edgeseek

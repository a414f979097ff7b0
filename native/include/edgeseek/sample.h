// Draws one token from one row of logits. Knows nothing of sequences, stop rules or text.
//
// The chain, in this order:
//   1. repetition penalty r on `seen_ids`: l > 0 ? l / r : l * r   (Keskar et al., CTRL, arXiv 1909.05858)
//   2. frequency and presence on `output_ids`: l - frequency * count - presence
//   3. bias: l + bias; a bias of -infinity bans the token
//   4. temperature: (l - max) / temperature; 0 takes the highest l and ends the chain
//   5. top-k: the k highest; 0 or k >= vocabulary keeps all
//   6. top-p: the fewest most likely tokens whose share of what is left reaches p (Holtzman et al., arXiv
//   1904.09751)
//   7. min-p: tokens at least min_p times as likely as the most likely one (arXiv 2407.01082)
//   8. the draw, from a hash of (seed, position) and nothing else
// Equal logits rank by ascending id everywhere.
//
// Reported log-probabilities are natural and of the row as it came in, before step 1.
//
// Weights are integers (2^44 for the most likely token, truncated; less likely than 2^-44 of it counts as 0),
// so that every sum is exact in any order and the drawn token is the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgeseek {

struct SampleParams {
    float temperature = 0.0f;         // >= 0; 0 is greedy
    int32_t top_k = 0;                // >= 0
    double top_p = 1.0;               // (0, 1]
    double min_p = 0.0;               // [0, 1]
    float repetition_penalty = 1.0f;  // > 0; 1 is off
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    const int32_t* seen_ids = nullptr;  // [num_seen], distinct
    size_t num_seen = 0;
    const int32_t* output_ids = nullptr;     // [num_output], distinct
    const int32_t* output_counts = nullptr;  // [num_output]
    size_t num_output = 0;
    const int32_t* bias_ids = nullptr;   // [num_bias], distinct
    const float* bias_values = nullptr;  // [num_bias]
    size_t num_bias = 0;
    uint64_t seed = 0;
    uint64_t position = 0;      // of the token being drawn
    int32_t top_logprobs = -1;  // alternatives to report; -1 skips all log-probabilities
};

struct SampleResult {
    int32_t token = 0;
    double logprob = 0.0;          // 0 if skipped
    std::vector<int32_t> top_ids;  // most likely first
    std::vector<double> top_logprobs;
};

struct TokenValue {
    float value;
    int32_t id;
};

struct TokenWeight {
    uint64_t weight;
    int32_t id;
};

/// Working memory that grows to the vocabulary once and is reused; one per thread.
struct SampleScratch {
    std::vector<float> adjusted;
    std::vector<float> ratios;
    std::vector<TokenValue> best;
    std::vector<TokenWeight> candidates;
    std::vector<TokenWeight> ranked;
};

/// Draws from `logits` [vocab]. Throws std::invalid_argument for a parameter or id out of range, logits that
/// are not finite, or a bias that bans every token.
SampleResult sample(const float* logits, size_t vocab, const SampleParams& params, SampleScratch& scratch);

/// 64 random bits for (seed, position): the first two words of Philox4x32-10 with key = seed and counter =
/// position (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
uint64_t random_bits(uint64_t seed, uint64_t position);

}  // namespace edgeseek

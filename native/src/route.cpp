#include "route.h"

#include <algorithm>

#include "edgeseek/exact_math.h"

namespace edgeseek {
namespace {

void softmax(const float* logits, std::vector<float>& scores) {
    float largest = logits[0], sum = 0.0f;
    for (size_t i = 1; i < scores.size(); ++i) largest = std::max(largest, logits[i]);
    for (size_t i = 0; i < scores.size(); ++i) {
        scores[i] = exact_exp(logits[i] - largest);
        sum += scores[i];
    }
    for (float& score : scores) score /= sum;
}

/// Index of the largest of values[i] with open[i] in [begin, end), the first of equals; end if none is open.
size_t largest_open(const std::vector<float>& values, const std::vector<uint8_t>& open, size_t begin,
                    size_t end) {
    size_t best = end;
    for (size_t i = begin; i < end; ++i) {
        if (open[i] != 0 && (best == end || values[i] > values[best])) best = i;
    }
    return best;
}

/// Closes the experts of all but the best groups.
void choose_groups(const MoeShape& moe, RouteScratch& s) {
    const auto groups = static_cast<size_t>(moe.groups);
    const size_t each = s.choice.size() / groups;
    for (size_t g = 0; g < groups; ++g) {
        const size_t begin = g * each, end = begin + each;
        const size_t best = largest_open(s.choice, s.open, begin, end);
        s.group_score[g] = s.choice[best];
        if (moe.group_score == GroupScore::two_best) {
            s.open[best] = 0;
            s.group_score[g] += s.choice[largest_open(s.choice, s.open, begin, end)];
        }
    }
    std::fill(s.group_open.begin(), s.group_open.end(), uint8_t{1});
    std::fill(s.open.begin(), s.open.end(), uint8_t{0});
    for (int i = 0; i < moe.groups_per_token; ++i) {
        const size_t g = largest_open(s.group_score, s.group_open, 0, groups);
        s.group_open[g] = 0;
        std::fill_n(s.open.begin() + static_cast<std::ptrdiff_t>(g * each), each, uint8_t{1});
    }
}

}  // namespace

void route(const MoeShape& moe, const float* logits, const float* bias, RouteScratch& s, int32_t* ids,
           float* weights) {
    const size_t experts = s.scores.size();
    if (moe.scoring == Scoring::softmax) {
        softmax(logits, s.scores);
    } else {
        for (size_t i = 0; i < experts; ++i) s.scores[i] = 1.0f / (1.0f + exact_exp(-logits[i]));
    }
    for (size_t i = 0; i < experts; ++i) s.choice[i] = bias != nullptr ? s.scores[i] + bias[i] : s.scores[i];
    std::fill(s.open.begin(), s.open.end(), uint8_t{1});
    if (moe.groups > 1) choose_groups(moe, s);
    for (int i = 0; i < moe.experts_per_token; ++i) {
        const size_t best = largest_open(s.choice, s.open, 0, experts);
        s.open[best] = 0;
        ids[i] = static_cast<int32_t>(best);
    }
    std::sort(ids, ids + moe.experts_per_token);
    float sum = 0.0f;
    for (int i = 0; i < moe.experts_per_token; ++i) {
        weights[i] = s.scores[static_cast<size_t>(ids[i])];
        sum += weights[i];
    }
    // The reference implementations keep a sum of nothing from dividing by zero in this way.
    const float divisor = moe.normalized ? sum + 1e-20f : 1.0f;
    for (int i = 0; i < moe.experts_per_token; ++i) weights[i] = weights[i] / divisor * moe.scale;
}

}  // namespace edgeseek

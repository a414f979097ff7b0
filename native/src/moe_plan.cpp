#include "moe_plan.h"

#include <algorithm>

#include "arrays.h"

namespace edgeseek {
namespace {

// With many rows a task computes several pairs of tiles, so that gathering its rows costs little beside it.
constexpr int kFewRows = 16, kPairsOfManyRows = 8;

int divided_up(int n, int by) { return (n + by - 1) / by; }

}  // namespace

MoePlan::MoePlan(const MoeShape& moe, size_t rows)
    : moe_(moe),
      rows_(rows * static_cast<size_t>(moe.experts_per_token)),
      weights_(rows_.size()),
      begin_(static_cast<size_t>(moe.experts) + 1) {
    segments_.reserve(static_cast<size_t>(moe.experts) + 1);
}

void MoePlan::make(int rows, const int32_t* ids, const float* weights) {
    const int each = moe_.experts_per_token, slots = rows * each;
    std::fill(begin_.begin(), begin_.end(), 0);
    for (int i = 0; i < slots; ++i) ++begin_[static_cast<size_t>(ids[i]) + 1];
    for (size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
    segments_.clear();
    if (moe_.shared_intermediate > 0) append(kSharedExperts, 0, rows);
    for (int e = 0; e < moe_.experts; ++e) {
        const auto i = static_cast<size_t>(e);
        if (begin_[i + 1] > begin_[i]) append(e, begin_[i], begin_[i + 1] - begin_[i]);
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = row * each; i < (row + 1) * each; ++i) {
            const auto slot = static_cast<size_t>(begin_[static_cast<size_t>(ids[i])]++);
            rows_[slot] = row;
            weights_[slot] = weights[i];
        }
    }
}

void MoePlan::append(int expert, int first, int count) {
    MoeSegment s{};
    s.expert = expert;
    s.first = first;
    s.count = count;
    s.chunks = divided_up(count, static_cast<int>(kRowChunk));
    s.pairs_per_task = count > kFewRows ? kPairsOfManyRows : 1;
    const int inner = expert == kSharedExperts ? moe_.shared_intermediate : moe_.intermediate;
    const int parts = divided_up(divided_up(inner, kPairChannels), s.pairs_per_task);
    s.first_task = tasks();
    s.end_task = s.first_task + static_cast<int64_t>(parts) * s.chunks;
    segments_.push_back(s);
}

MoeTask MoePlan::task(const MoeSegment& s, int64_t number) const {
    // The chunks of the same weights follow each other.
    const auto index = static_cast<int>(number - s.first_task);
    const int chunk = index % s.chunks, part = index / s.chunks;
    const int inner = s.expert == kSharedExperts ? moe_.shared_intermediate : moe_.intermediate;
    MoeTask t{};
    t.first = s.first + chunk * static_cast<int>(kRowChunk);
    t.count = std::min(static_cast<int>(kRowChunk), s.first + s.count - t.first);
    t.pair = part * s.pairs_per_task;
    t.end_pair = std::min(t.pair + s.pairs_per_task, divided_up(inner, kPairChannels));
    return t;
}

size_t MoePlan::bytes() const {
    return rows_.size() * (sizeof(int32_t) + sizeof(float)) + begin_.size() * sizeof(int32_t) +
           segments_.capacity() * sizeof(MoeSegment);
}

}  // namespace edgeseek

// Who computes what in a layer with experts: the rows of a batch grouped by expert. Every worker makes the
// same plan for itself, which takes less time than waiting for another to make it.
#pragma once

#include <cstdint>
#include <vector>

#include "edgeseek/model.h"

namespace edgeseek {

constexpr int kSharedExperts = -1;
constexpr int kPairChannels = 32;  // channels of two tiles: a group of what the down projection reads

/// The rows that one feed-forward serves: `count` slots from `first` on. A slot is a row with one of its
/// experts; slots are sorted by expert, then by row. The shared experts' slots are the rows themselves.
struct MoeSegment {
    int expert;  // or kSharedExperts
    int first, count;
    int chunks;          // of up to kRowChunk slots
    int pairs_per_task;  // pairs of tiles of gate and up that one task computes
    int64_t first_task, end_task;
};

/// Part of a segment: slots [first, first + count) and pairs of tiles [pair, end_pair).
struct MoeTask {
    int first, count, pair, end_pair;
};

class MoePlan {
  public:
    /// For at most `rows` rows of a batch.
    MoePlan(const MoeShape& moe, size_t rows);

    /// `ids` and `weights` are [rows][experts_per_token]. Allocates nothing.
    void make(int rows, const int32_t* ids, const float* weights);

    /// The shared experts first, then the experts that have rows, ids ascending.
    const std::vector<MoeSegment>& segments() const { return segments_; }
    int64_t tasks() const { return segments_.empty() ? 0 : segments_.back().end_task; }
    MoeTask task(const MoeSegment& segment, int64_t number) const;
    int row(const MoeSegment& segment, int slot) const {
        return segment.expert == kSharedExperts ? slot : rows_[static_cast<size_t>(slot)];
    }
    float weight(const MoeSegment& segment, int slot) const {
        return segment.expert == kSharedExperts ? 1.0f : weights_[static_cast<size_t>(slot)];
    }
    size_t bytes() const;

  private:
    void append(int expert, int first, int count);

    const MoeShape moe_;
    std::vector<int32_t> rows_;   // of each slot
    std::vector<float> weights_;  // of each slot
    std::vector<int32_t> begin_;  // first slot of each expert, and the end
    std::vector<MoeSegment> segments_;
};

}  // namespace edgeseek

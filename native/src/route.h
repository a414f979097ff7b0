// Which experts a token goes to, from the router's outputs. One row at a time, the same bits everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "edgeseek/model.h"

namespace edgeseek {

/// What `route` needs for one row, sized once.
struct RouteScratch {
    explicit RouteScratch(const MoeShape& m)
        : scores(static_cast<size_t>(m.experts)),
          choice(static_cast<size_t>(m.experts)),
          group_score(static_cast<size_t>(m.groups)),
          open(static_cast<size_t>(m.experts)),
          group_open(static_cast<size_t>(m.groups)) {}
    std::vector<float> scores, choice, group_score;
    std::vector<uint8_t> open, group_open;  // may still be chosen
};

/// The experts of one row: ids ascending in `ids` [experts_per_token], their weights beside them. `logits`
/// [experts] are the router's outputs; `bias` [experts] or null is added to the scores for the choice only.
/// Of equal scores the lower id wins; with scores that are not numbers the ids are still valid and distinct.
void route(const MoeShape& moe, const float* logits, const float* bias, RouteScratch& scratch, int32_t* ids,
           float* weights);

}  // namespace edgeseek

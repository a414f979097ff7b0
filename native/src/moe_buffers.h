// Work buffers of layers with experts: allocated once, sized by the largest step.
#pragma once

#include <memory>
#include <vector>

#include "arrays.h"
#include "moe_plan.h"
#include "route.h"

namespace edgeseek {

constexpr int kOwnRows = 4;  // up to so many rows each worker routes for itself, which spares a barrier

/// What one worker needs for itself.
struct MoeScratch {
    MoeScratch(const MoeShape& m, size_t rows, size_t hidden_pad)
        : route(m),
          plan(m, rows),
          ids(kOwnRows * static_cast<size_t>(m.experts_per_token)),
          weights(ids.size()),
          gathered(kRowChunk, hidden_pad) {}

    RouteScratch route;
    MoePlan plan;
    std::vector<int32_t> ids;    // [kOwnRows][experts_per_token]
    std::vector<float> weights;  // the same
    QuantizedRows gathered;      // rows of one expert, side by side
};

struct MoeBuffers {
    MoeBuffers(const MoeShape& m, size_t rows, size_t hidden_pad, int threads)
        : slots(rows * static_cast<size_t>(m.experts_per_token)),
          logits_width(round_up(static_cast<size_t>(m.experts), kTile)),
          inner_pad(round_up(static_cast<size_t>(m.intermediate), kPairChannels)),
          shared_pad(round_up(static_cast<size_t>(m.shared_intermediate), kPairChannels)),
          logits(rows * logits_width),
          ids(slots),
          weights(slots),
          inner(slots * inner_pad),
          shared(rows * shared_pad),
          inner_q(slots, inner_pad),
          shared_q(rows, shared_pad) {
        for (int i = 0; i < threads; ++i) scratch.emplace_back(new MoeScratch(m, rows, hidden_pad));
    }

    size_t bytes() const {
        size_t total = logits.bytes() + ids.bytes() + weights.bytes() + inner.bytes() + shared.bytes() +
                       inner_q.bytes() + shared_q.bytes();
        for (const auto& s : scratch) total += s->plan.bytes() + s->gathered.bytes();
        return total;
    }

    size_t slots, logits_width, inner_pad, shared_pad;
    Array<float> logits;   // [rows][logits_width] the router's outputs
    Array<int32_t> ids;    // [rows][experts_per_token] ascending
    Array<float> weights;  // [rows][experts_per_token]
    Array<float> inner;    // [slots][inner_pad] silu(gate) * up
    Array<float> shared;   // [rows][shared_pad] the same of the shared experts
    QuantizedRows inner_q, shared_q;
    std::vector<std::unique_ptr<MoeScratch>> scratch;
};

}  // namespace edgeseek

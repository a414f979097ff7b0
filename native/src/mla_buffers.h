// Work buffers of latent attention: allocated once, sized by the largest step.
#pragma once

#include "arrays.h"
#include "edgeseek/model.h"

namespace edgeseek {

constexpr int kLatentUnitRows = 32;  // query rows (tokens x heads) of one unit of latent attention, at most
constexpr int kLatentUnitHeads = 16;

struct MlaBuffers {
    MlaBuffers(const ModelShape& s, size_t rows)
        : width(static_cast<size_t>(s.latent.width())),
          head_pad(round_up(
              static_cast<size_t>(s.latent.rank > s.latent.plain ? s.latent.rank : s.latent.plain), 32)),
          absorbed(rows * static_cast<size_t>(s.heads) * width),
          heads_q(rows * static_cast<size_t>(s.heads), head_pad) {}

    /// Query tokens of one unit.
    static int tokens_per_unit(const ModelShape& s) {
        return kLatentUnitRows / (s.heads < kLatentUnitHeads ? s.heads : kLatentUnitHeads);
    }

    size_t bytes() const { return absorbed.bytes() + heads_q.bytes(); }

    size_t width, head_pad;
    Array<float> absorbed;  // [rows][heads][width] queries in the latent space, then sums of latents
    QuantizedRows heads_q;  // [rows][heads] what k_b reads, then what v_b reads
};

}  // namespace edgeseek

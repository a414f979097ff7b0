// Work buffers of a Runner: allocated once, sized by the largest step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arrays.h"
#include "edgeseek/runner.h"
#include "mla_buffers.h"
#include "moe_buffers.h"

namespace edgeseek {

constexpr int kAttentionRows = 48;  // query rows (tokens x heads of a KV head) of one attention unit, about
constexpr size_t kPartFloats = 128 << 10;  // of a worker, for results of ranges that are not merged yet

/// What one worker needs for itself.
struct Scratch {
    Scratch(const ModelShape& s, int tokens_per_unit, size_t row_width, int blocks)
        : unpacked(kScratchBytes),
          tile_a(kRowChunk * kTile),
          tile_b(kRowChunk * kTile),
          attention(s.latent.exists()
                        ? latent_scratch_floats(kLatentUnitRows, s.latent.width(), s.latent.rank)
                        : attention_scratch_floats(tokens_per_unit, s.heads / s.kv_heads, s.head_dim)),
          parts(s.latent.exists() ? 0 : kPartFloats),
          row(row_width),
          quantized(1, row_width),
          k_planes(static_cast<size_t>(blocks)),
          v_planes(static_cast<size_t>(blocks)) {}

    Array<uint8_t> unpacked;
    Array<float> tile_a, tile_b;  // [kRowChunk][16]
    Array<float> attention;
    Array<float> parts;                         // of whichever worker's pieces
    Array<float> row;                           // one normed row (single-token steps)
    QuantizedRows quantized;                    // its quantized form
    Array<const uint16_t*> k_planes, v_planes;  // per block of a sequence

    size_t bytes() const {
        return unpacked.bytes() + tile_a.bytes() + tile_b.bytes() + attention.bytes() + parts.bytes() +
               row.bytes() + quantized.bytes() + k_planes.bytes() + v_planes.bytes();
    }
};

struct Runner::Buffers {
    Buffers(const ModelShape& s, int max_tokens, int threads, int blocks)
        : rows(static_cast<size_t>(max_tokens)),
          hidden_pad(round_up(static_cast<size_t>(std::max(s.hidden, s.latent.query_rank)), 32)),
          attn_pad(round_up(s.attn_width(), 32)),
          mlp_pad(round_up(static_cast<size_t>(s.intermediate), 32)),
          qkv_width(s.q_width() + (s.latent.exists()
                                       ? static_cast<size_t>(s.latent.width() + s.latent.query_rank)
                                       : 2 * s.kv_width())),
          tokens_per_unit(s.latent.exists() ? MlaBuffers::tokens_per_unit(s)
                                            : std::max(1, kAttentionRows * s.kv_heads / s.heads)),
          x(rows * static_cast<size_t>(s.hidden)),
          normed(rows * hidden_pad),
          qkv(rows * qkv_width),
          attn(rows * attn_pad),
          mlp(rows * mlp_pad),
          cosine(rows * static_cast<size_t>(s.rotary_dim() / 2)),
          sine(rows * static_cast<size_t>(s.rotary_dim() / 2)),
          hidden_q(rows, hidden_pad > attn_pad ? hidden_pad : attn_pad),
          mlp_q(rows, mlp_pad),
          counters(8 + static_cast<size_t>(s.layers) * 16) {
        // A latent row with its rotated part stands in a worker's row as well.
        const size_t latent = round_up(static_cast<size_t>(s.latent.width() + s.latent.plain), 32);
        size_t widest = hidden_pad > attn_pad ? hidden_pad : attn_pad;
        widest = std::max({widest, mlp_pad, latent});
        for (int i = 0; i < threads; ++i)
            scratch.emplace_back(new Scratch(s, tokens_per_unit, widest, blocks));
        if (s.moe.experts > 0) moe = std::make_unique<MoeBuffers>(s.moe, rows, hidden_pad, threads);
        if (s.latent.exists()) mla = std::make_unique<MlaBuffers>(s, rows);
    }

    size_t bytes() const {
        size_t total = x.bytes() + normed.bytes() + qkv.bytes() + attn.bytes() + mlp.bytes() +
                       cosine.bytes() + sine.bytes() + hidden_q.bytes() + mlp_q.bytes();
        for (const auto& s : scratch) total += s->bytes();
        if (moe) total += moe->bytes();
        if (mla) total += mla->bytes();
        return total;
    }

    size_t rows, hidden_pad, attn_pad, mlp_pad, qkv_width;
    int tokens_per_unit;  // query tokens of one attention unit
    Array<float> x;       // [rows][hidden] residual stream
    Array<float> normed;  // [rows][hidden_pad]
    Array<float> qkv;     // [rows][q_width | kv_width | kv_width]; latent: [q_width | width | query_rank]
    Array<float> attn;    // [rows][attn_pad] attention output
    Array<float> mlp;     // [rows][mlp_pad] silu(gate) * up
    Array<float> cosine, sine;  // [rows][rotary_dim / 2]
    QuantizedRows hidden_q;     // of normed or attn
    QuantizedRows mlp_q;
    std::vector<TaskCounter> counters;
    std::vector<std::unique_ptr<Scratch>> scratch;
    std::unique_ptr<MoeBuffers> moe;  // where there are experts
    std::unique_ptr<MlaBuffers> mla;  // with latent attention
};

}  // namespace edgeseek

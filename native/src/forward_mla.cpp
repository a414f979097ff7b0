// Multi-head latent attention of a pass (DeepSeek-V2, arXiv 2405.04434, section 2.1). Every row, of a prompt
// or generated, takes the absorbed form: a head's query goes through its part of k_b into the latent space,
// attends there to the cache that all heads share, and its sum of latents comes back through v_b.
#include <algorithm>
#include <cstring>

#include "forward.h"
#include "forward_product.h"

namespace edgeseek {

void Runner::Pass::latent_attention(Worker& worker, int index, const Activations& a) {
    const Layer& layer = model_.layers()[static_cast<size_t>(index)];
    const LatentShape& latent = shape_.latent;
    const auto heads = static_cast<size_t>(shape_.heads), head_dim = static_cast<size_t>(shape_.head_dim);
    const size_t width = b_.mla->width;
    latent_projections(worker, layer, a);
    TaskCounter& rows = next_counter(worker);
    for (int64_t i; (i = rows.claim(1)) < total_;) store_latent(worker, index, static_cast<int>(i));
    worker.barrier();
    multiply_heads(worker, {layer.k_b.weight, b_.qkv.get(), b_.qkv_width, head_dim, b_.mla->absorbed.get(),
                            heads * width, width});
    attend_latent(worker, index);
    multiply_heads(worker, {layer.v_b.weight, b_.mla->absorbed.get(), heads * width, width, b_.attn.get(),
                            b_.attn_pad, static_cast<size_t>(latent.value)});
}

void Runner::Pass::latent_projections(Worker& worker, const Layer& layer, const Activations& a) {
    const size_t kv = shape_.q_width(), query = kv + b_.mla->width;  // places in a row of qkv
    const auto rank = static_cast<size_t>(shape_.latent.query_rank);
    const Linear& first = layer.first();
    const Product down{{&first, &layer.kv_a}, nullptr, rank > 0 ? &layer.q : nullptr};
    const size_t offsets[] = {rank > 0 ? query : 0, kv};
    product(worker, down, a, total_, [&](size_t which, size_t tile, size_t row, size_t rows, float* out) {
        const Linear& linear = *down.linears[which];
        add_bias(linear, tile, rows, out);
        copy_tile(linear, tile, rows, out, b_.qkv.row(row, b_.qkv_width) + offsets[which], b_.qkv_width);
    });
    if (rank == 0) return;
    const Activations normed = prepare(worker, b_.qkv.get() + query, rank, b_.qkv_width, layer.query_norm,
                                       b_.hidden_q, total_, nullptr, shape_.latent.rms_eps);
    const Product up{{&layer.q}, nullptr, nullptr};
    product(worker, up, normed, total_, [&](size_t, size_t tile, size_t row, size_t rows, float* out) {
        add_bias(layer.q, tile, rows, out);
        copy_tile(layer.q, tile, rows, out, b_.qkv.row(row, b_.qkv_width), b_.qkv_width);
    });
}

void Runner::Pass::store_latent(Worker& worker, int layer, int row) {
    const LatentShape& latent = shape_.latent;
    const auto r = static_cast<size_t>(row), rank = static_cast<size_t>(latent.rank);
    const auto rotated = static_cast<size_t>(latent.rotated), plain = static_cast<size_t>(latent.plain);
    const size_t width = b_.mla->width;
    const float* cosine = b_.cosine.get() + r * (rotated / 2);
    const float* sine = b_.sine.get() + r * (rotated / 2);
    float* entry = b_.scratch[static_cast<size_t>(worker.id())]->row.get();
    float* kv = b_.qkv.row(r, b_.qkv_width) + shape_.q_width();
    const float* norm = model_.layers()[static_cast<size_t>(layer)].kv_norm;
    kernels_.rms_norm(kv, norm, rank, latent.rms_eps, entry);
    std::memcpy(entry + rank, kv + rank, rotated * sizeof(float));
    kernels_.rope(entry + rank, 1, latent.rotated, cosine, sine);
    const BatchSlice& slice = batch_.slices[static_cast<size_t>(row_slice_[r])];
    const int position = row_position_[r];
    uint16_t* plane = runner_.pool_.latent(slice.blocks[position / kBlockTokens], layer);
    kernels_.to_halves(entry, width, plane + static_cast<size_t>(position % kBlockTokens) * width);

    for (int h = 0; h < shape_.heads; ++h) {
        const float* q = b_.qkv.row(r, b_.qkv_width) + static_cast<size_t>(h * shape_.head_dim);
        float* absorbed =
            b_.mla->absorbed.row(r * static_cast<size_t>(shape_.heads) + static_cast<size_t>(h), width);
        std::memcpy(absorbed + rank, q + plain, rotated * sizeof(float));
        kernels_.rope(absorbed + rank, 1, latent.rotated, cosine, sine);
        quantize_head(worker, q, plain, row, h);
    }
}

void Runner::Pass::quantize_head(Worker& worker, const float* x, size_t n, int row, int head) {
    const size_t padded = round_up(n, 32);
    if (padded != n) {
        float* copy = b_.scratch[static_cast<size_t>(worker.id())]->row.get();
        std::memcpy(copy, x, n * sizeof(float));
        std::fill(copy + n, copy + padded, 0.0f);
        x = copy;
    }
    kernels_.quantize(x, padded, b_.mla->heads_q.row(static_cast<size_t>(row * shape_.heads + head)));
}

void Runner::Pass::multiply_heads(Worker& worker, const HeadProduct& work) {
    TaskCounter& counter = next_counter(worker);
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    const auto rows = static_cast<size_t>(total_), heads = static_cast<size_t>(shape_.heads);
    const size_t tiles = work.matrix.tiles(), head_tiles = tiles / heads;
    const auto chunks = static_cast<int64_t>((rows + kRowChunk - 1) / kRowChunk);
    const int64_t tasks = static_cast<int64_t>(tiles) * chunks, claim = tiles_per_claim(work.matrix, total_);
    const GemmTile gemm = kernels_.gemm[static_cast<int>(work.matrix.scheme)];
    for (int64_t begin; (begin = counter.claim(claim)) < tasks;) {
        for (int64_t task = begin; task < std::min(begin + claim, tasks); ++task) {
            const size_t tile = static_cast<size_t>(task) % tiles, head = tile / head_tiles;
            const size_t first = static_cast<size_t>(task) / tiles * kRowChunk;
            const size_t some = std::min(kRowChunk, rows - first);
            Activations a = b_.mla->heads_q.view(nullptr, 0).from_row(first * heads + head);
            a.ldq *= heads;
            a.ldg *= heads;
            a.x = work.x + first * work.row_stride + head * work.head_stride;
            a.ldx = work.row_stride;
            float* out = work.out + first * work.out_row_stride + head * work.out_head_stride;
            const uint8_t* next = tile + 1 < tiles ? work.matrix.tile(tile + 1) : nullptr;
            gemm(work.matrix.tile(tile), work.matrix.padded_columns(), a, some,
                 out + tile % head_tiles * kTile, work.out_row_stride, own.unpacked.get(), next);
        }
    }
    worker.barrier();
}

void Runner::Pass::attend_latent(Worker& worker, int layer) {
    const auto tasks = static_cast<int64_t>(tasks_.size());
    // Heads that share a pass over the cache: as many as leave every worker something to do.
    int share = std::min(shape_.heads, kLatentUnitHeads);
    while (share > 4 && tasks * ((shape_.heads + share - 1) / share) < worker.count()) share /= 2;
    const int64_t groups = (shape_.heads + share - 1) / share;
    TaskCounter& units = next_counter(worker);
    for (int64_t i; (i = units.claim(1)) < tasks * groups;) {
        const int first = static_cast<int>(i % groups) * share;
        run_latent_unit(worker, layer, tasks_[static_cast<size_t>(i / groups)], first,
                        std::min(share, shape_.heads - first));
    }
    worker.barrier();
}

void Runner::Pass::run_latent_unit(Worker& worker, int layer, const AttentionTask& task, int first_head,
                                   int heads) {
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    const BatchSlice& slice = batch_.slices[static_cast<size_t>(task.slice)];
    const int last = task.position + task.tokens - 1;
    for (int i = 0; i <= last / kBlockTokens; ++i) {
        own.k_planes.get()[i] = runner_.pool_.latent(slice.blocks[i], layer);
    }
    const auto all_heads = static_cast<size_t>(shape_.heads);
    LatentUnit unit{};
    unit.head_stride = b_.mla->width;
    unit.token_stride = all_heads * unit.head_stride;
    float* q = b_.mla->absorbed.get() + static_cast<size_t>(task.row) * unit.token_stride +
               static_cast<size_t>(first_head) * unit.head_stride;
    unit.q = q;
    unit.out = q;
    unit.tokens = task.tokens;
    unit.first_position = task.position;
    unit.heads = heads;
    unit.width = shape_.latent.width();
    unit.latent = shape_.latent.rank;
    unit.scale = shape_.latent.scale;
    unit.blocks = own.k_planes.get();
    unit.scratch = own.attention.get();
    kernels_.attention_mla(unit);
    for (int t = 0; t < task.tokens; ++t) {
        for (int h = 0; h < heads; ++h) {
            quantize_head(
                worker,
                q + static_cast<size_t>(t) * unit.token_stride + static_cast<size_t>(h) * unit.head_stride,
                static_cast<size_t>(unit.latent), task.row + t, first_head + h);
        }
    }
}

}  // namespace edgeseek

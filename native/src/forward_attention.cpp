// The attention of a forward pass: which worker does what, and where keys and values lie.
#include <algorithm>
#include <functional>
#include <queue>

#include "forward.h"

namespace edgeseek {
namespace {

// Where there are this many units for each thread, whole units share the work well enough.
constexpr int64_t kUnitsPerThread = 4;
// What splitting costs, as positions of one unit: a barrier, and the merging.
constexpr int64_t kSplitCost = 64;

/// When the last of `threads` is done with tasks of these costs, each taken by whoever is free first.
int64_t finish(const std::vector<int64_t>& costs, int threads) {
    std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> busy_until;
    for (int i = 0; i < threads; ++i) busy_until.push(0);
    int64_t last = 0;
    for (const int64_t cost : costs) {
        const int64_t end = busy_until.top() + cost;
        busy_until.pop();
        busy_until.push(end);
        last = std::max(last, end);
    }
    return last;
}

}  // namespace

AttentionUnit Runner::Pass::unit_of(const AttentionTask& task, int kv_head, int window) const {
    AttentionUnit unit{};
    unit.heads = shape_.heads / shape_.kv_heads;
    unit.head_dim = shape_.head_dim;
    const auto row = static_cast<size_t>(task.row);
    const size_t offset = static_cast<size_t>(kv_head) * static_cast<size_t>(unit.heads * unit.head_dim);
    unit.q = b_.qkv.row(row, b_.qkv_width) + offset;
    unit.q_token_stride = b_.qkv_width;
    unit.out = b_.attn.row(row, b_.attn_pad) + offset;
    unit.out_token_stride = b_.attn_pad;
    unit.tokens = task.tokens;
    unit.first_position = task.position;
    unit.window = window;
    unit.scale = 1.0f / __builtin_sqrtf(static_cast<float>(shape_.head_dim));
    return unit;
}

void Runner::Pass::plan_attention() {
    const int threads = runner_.threads_.size(), kv_heads = shape_.kv_heads;
    const auto units = static_cast<int64_t>(tasks_.size()) * kv_heads;
    if (threads == 1 || units >= kUnitsPerThread * threads) return;
    // Ranges that only narrower windows leave out are skipped layer by layer.
    int widest = 0;
    for (const Layer& layer : model_.layers()) {
        if (layer.window == 0) {
            widest = 0;
            break;
        }
        widest = std::max(widest, layer.window);
    }
    splits_ = std::vector<SplitUnit>(static_cast<size_t>(units));
    std::vector<int64_t> whole, split;
    size_t worker = 0, used = 0;
    bool room = true;
    for (size_t u = 0; u < splits_.size(); ++u) {
        const AttentionTask& task = tasks_[u / static_cast<size_t>(kv_heads)];
        const AttentionUnit unit = unit_of(task, 0, widest);
        const int rows = unit.tokens * unit.heads, first = first_range(unit),
                  end = task.position + task.tokens;
        const size_t floats = attention_part_floats(rows, shape_.head_dim);
        splits_[u].first_piece = pieces_.size();
        splits_[u].first_range = first;
        whole.push_back(static_cast<int64_t>(rows) * (end - first * kAttentionRange));
        for (int range = first; range <= last_range(unit); ++range) {
            if (used + floats > kPartFloats) {
                ++worker;
                used = 0;
            }
            room = room && worker < b_.scratch.size() && floats <= kPartFloats;
            parts_.push_back(room ? b_.scratch[worker]->parts.get() + used : nullptr);
            used += floats;
            pieces_.push_back({u, range});
            const int positions = std::min(kAttentionRange, end - range * kAttentionRange);
            split.push_back(static_cast<int64_t>(rows) * positions);
        }
        splits_[u].pieces = static_cast<int64_t>(pieces_.size() - splits_[u].first_piece);
    }
    const int64_t overhead = kSplitCost * tasks_[0].tokens * (shape_.heads / kv_heads);
    if (!room || finish(split, threads) + overhead >= finish(whole, threads)) pieces_.clear();
}

void Runner::Pass::rotate_and_store(int layer, int row, int kv_head) {
    const auto r = static_cast<size_t>(row);
    const int group = shape_.heads / shape_.kv_heads, dim = shape_.head_dim;
    const auto head = static_cast<size_t>(kv_head), width = static_cast<size_t>(dim);
    const float* cosine = b_.cosine.get() + r * (width / 2);
    const float* sine = b_.sine.get() + r * (width / 2);
    float* q = b_.qkv.row(r, b_.qkv_width) + head * static_cast<size_t>(group) * width;
    float* k = b_.qkv.row(r, b_.qkv_width) + shape_.q_width() + head * width;
    const float* v = k + shape_.kv_width();
    if (const Layer& own = model_.layers()[static_cast<size_t>(layer)]; own.q_norm != nullptr) {
        for (int h = 0; h < group; ++h) {
            float* one = q + static_cast<size_t>(h) * width;
            kernels_.rms_norm(one, own.q_norm, width, shape_.rms_eps, one);
        }
        kernels_.rms_norm(k, own.k_norm, width, shape_.rms_eps, k);
    }
    kernels_.rope(q, group, dim, cosine, sine);
    kernels_.rope(k, 1, dim, cosine, sine);
    const BatchSlice& slice = batch_.slices[static_cast<size_t>(row_slice_[r])];
    const int position = row_position_[r], block = slice.blocks[position / kBlockTokens];
    const int column = position % kBlockTokens;
    uint16_t* k_plane = runner_.pool_.k(block, layer, kv_head);
    uint16_t* v_plane = runner_.pool_.v(block, layer, kv_head);
    if (runner_.pool_.shape().type == KvType::int8) {
        kernels_.store_kv_int8(k, v, dim, column, k_plane, v_plane);
    } else {
        kernels_.store_kv(k, v, dim, k_plane + column, v_plane + static_cast<size_t>(column) * width);
    }
}

void Runner::Pass::find_planes(Worker& worker, int layer, const AttentionTask& task, int kv_head, int first,
                               int last, AttentionUnit* unit) {
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    const BatchSlice& slice = batch_.slices[static_cast<size_t>(task.slice)];
    for (int i = first / kBlockTokens; i <= last / kBlockTokens; ++i) {
        own.k_planes.get()[i] = runner_.pool_.k(slice.blocks[i], layer, kv_head);
        own.v_planes.get()[i] = runner_.pool_.v(slice.blocks[i], layer, kv_head);
    }
    unit->k = own.k_planes.get();
    unit->v = own.v_planes.get();
    unit->scratch = own.attention.get();
}

void Runner::Pass::run_unit(Worker& worker, int layer, const AttentionTask& task, int kv_head) {
    AttentionUnit unit = unit_of(task, kv_head, window_of(layer));
    const int first = unit.window > 0 ? std::max(0, task.position - unit.window + 1) : 0;
    find_planes(worker, layer, task, kv_head, first, task.position + task.tokens - 1, &unit);
    kernels_.attention[static_cast<int>(runner_.pool_.shape().type)](unit);
}

void Runner::Pass::run_piece(Worker& worker, int layer, size_t index) {
    const AttentionPiece& piece = pieces_[index];
    const auto kv_heads = static_cast<size_t>(shape_.kv_heads);
    const AttentionTask& task = tasks_[piece.unit / kv_heads];
    const int kv_head = static_cast<int>(piece.unit % kv_heads);
    AttentionUnit unit = unit_of(task, kv_head, window_of(layer));
    const int first = first_range(unit), begin = piece.range * kAttentionRange;
    const int last = std::min(begin + kAttentionRange, task.position + task.tokens) - 1;
    find_planes(worker, layer, task, kv_head, begin, last, &unit);
    if (piece.range >= first) {
        kernels_.attention_range[static_cast<int>(runner_.pool_.shape().type)](unit, piece.range,
                                                                               parts_[index]);
    }
    SplitUnit& split = splits_[piece.unit];
    // Whoever finishes a unit's last piece merges them; the count goes on from layer to layer.
    if ((split.finished.fetch_add(1, std::memory_order_acq_rel) + 1) % split.pieces != 0) return;
    kernels_.attention_join(unit, parts_.data() + split.first_piece + (first - split.first_range));
}

void Runner::Pass::attend(Worker& worker, int layer) {
    const auto kv_heads = static_cast<int64_t>(shape_.kv_heads);
    const bool store_first = !single_tokens_ || !pieces_.empty();
    if (store_first) {
        TaskCounter& stores = next_counter(worker);
        for (int64_t i; (i = stores.claim(kv_heads)) < total_ * kv_heads;) {
            for (int h = 0; h < shape_.kv_heads; ++h)
                rotate_and_store(layer, static_cast<int>(i / kv_heads), h);
        }
        worker.barrier();
    }
    TaskCounter& units = next_counter(worker);
    const auto pieces = static_cast<int64_t>(pieces_.size());
    if (pieces > 0) {
        for (int64_t i; (i = units.claim(1)) < pieces;) run_piece(worker, layer, static_cast<size_t>(i));
        worker.barrier();
        return;
    }
    for (int64_t i; (i = units.claim(1)) < static_cast<int64_t>(tasks_.size()) * kv_heads;) {
        const AttentionTask& task = tasks_[static_cast<size_t>(i / kv_heads)];
        const int head = static_cast<int>(i % kv_heads);
        if (single_tokens_) rotate_and_store(layer, task.row, head);
        run_unit(worker, layer, task, head);
    }
    worker.barrier();
}

}  // namespace edgeseek

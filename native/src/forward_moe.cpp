// A layer's experts. Each row's result is its residual plus the shared experts' output plus those of its own
// experts in the order of their ids, whatever else is in the batch. Weights of experts that no row is routed
// to are not touched.
#include <cstring>

#include "forward.h"
#include "forward_product.h"
#include "moe_buffers.h"

namespace edgeseek {
namespace {

/// A feed-forward of the layer: the shared experts or one expert.
struct FeedForward {
    FeedForward(const Layer& layer, int expert)
        : gate(expert == kSharedExperts ? layer.gate : layer.experts[static_cast<size_t>(expert)].gate),
          up(expert == kSharedExperts ? layer.up : layer.experts[static_cast<size_t>(expert)].up),
          down(expert == kSharedExperts ? layer.down : layer.experts[static_cast<size_t>(expert)].down) {}
    const Linear &gate, &up, &down;
};

void copy_row(const Activations& a, size_t groups, const QuantizedRow& to) {
    std::memcpy(to.q, a.q, groups * 32);
    std::memcpy(to.d, a.d, groups * sizeof(float));
    std::memcpy(to.sum, a.sum, groups * sizeof(float));
    std::memcpy(to.sum8, a.sum8, groups * sizeof(float));
    std::memcpy(to.sum16, a.sum16, groups * sizeof(float));
    std::memcpy(to.half32, a.half32, 2 * groups * sizeof(float));
}

QuantizedRow from_group(const QuantizedRow& row, size_t g) {
    return {row.q + 32 * g, row.d + g, row.sum + g, row.sum8 + g, row.sum16 + g, row.half32 + 2 * g};
}

}  // namespace

void Runner::Pass::moe_layer(Worker& worker, int index) {
    const Layer& layer = model_.layers()[static_cast<size_t>(index)];
    const auto hidden = static_cast<size_t>(shape_.hidden);
    MoeBuffers& m = *b_.moe;
    const Activations a = prepare(worker, b_.x.get(), hidden, hidden, layer.mlp_norm, b_.hidden_q, total_);
    tap(worker, index, "mlp_norm", total_, b_.normed.get(), hidden, b_.hidden_pad);
    const Product router{{&layer.router}, nullptr, layer.up.weight.exists() ? &layer.up : nullptr};
    product(worker, router, a, total_, [&](size_t, size_t tile, size_t first, size_t rows, float* out) {
        copy_tile(layer.router, tile, rows, out, m.logits.row(first, m.logits_width), m.logits_width);
    });
    choose_experts(worker, index);
    gate_and_up(worker, layer, a);
    tap_experts(worker, index);
    down(worker, layer, index);
    tap(worker, index, "output", total_, b_.x.get(), hidden, hidden);
}

void Runner::Pass::choose_experts(Worker& worker, int index) {
    const Layer& layer = model_.layers()[static_cast<size_t>(index)];
    MoeBuffers& m = *b_.moe;
    MoeScratch& own = *m.scratch[static_cast<size_t>(worker.id())];
    const auto each = static_cast<size_t>(shape_.moe.experts_per_token);
    const auto choose = [&](int64_t i, int32_t* ids, float* weights) {
        const auto row = static_cast<size_t>(i);
        route(shape_.moe, m.logits.row(row, m.logits_width), layer.router_bias, own.route, ids + row * each,
              weights + row * each);
    };
    if (total_ <= kOwnRows && taps_ == nullptr) {
        for (int64_t i = 0; i < total_; ++i) choose(i, own.ids.data(), own.weights.data());
        own.plan.make(total_, own.ids.data(), own.weights.data());
    } else {
        TaskCounter& counter = next_counter(worker);
        for (int64_t i; (i = counter.claim(1)) < total_;) choose(i, m.ids.get(), m.weights.get());
        worker.barrier();
        own.plan.make(total_, m.ids.get(), m.weights.get());
    }
    if (worker.id() != 0) return;
    for (const MoeSegment& s : own.plan.segments()) {
        if (s.expert == kSharedExperts) continue;
        const FeedForward f(layer, s.expert);
        const auto place = index * static_cast<int64_t>(shape_.moe.experts) + s.expert;
        runner_.expert_steps_[static_cast<size_t>(place)] = runner_.counters_.steps + 1;
        runner_.counters_.experts += 1;
        runner_.counters_.expert_bytes += f.gate.weight.bytes() + f.up.weight.bytes() + f.down.weight.bytes();
    }
}

void Runner::Pass::gate_and_up(Worker& worker, const Layer& layer, const Activations& a) {
    const MoePlan& plan = b_.moe->scratch[static_cast<size_t>(worker.id())]->plan;
    const std::vector<MoeSegment>& segments = plan.segments();
    TaskCounter& counter = next_counter(worker);
    size_t current = 0;
    // As in a product: the first claim is fixed, the following one made early so that its weights are
    // fetched.
    for (int64_t task = worker.id(); task < plan.tasks();) {
        const int64_t following = counter.claim(1) + worker.count();
        while (task >= segments[current].end_task) ++current;
        const uint8_t* next = nullptr;
        if (following < plan.tasks()) {
            size_t after = current;
            while (following >= segments[after].end_task) ++after;
            const MoeTask upcoming = plan.task(segments[after], following);
            const Matrix& up = FeedForward(layer, segments[after].expert).up.weight;
            next = up.tile(2 * static_cast<size_t>(upcoming.pair));
        }
        expert_task(worker, layer, a, segments[current], plan.task(segments[current], task), next);
        task = following;
    }
    worker.barrier();
}

void Runner::Pass::expert_task(Worker& worker, const Layer& layer, const Activations& a,
                               const MoeSegment& segment, const MoeTask& task, const uint8_t* next) {
    MoeBuffers& m = *b_.moe;
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    MoeScratch& mine = *m.scratch[static_cast<size_t>(worker.id())];
    const FeedForward f(layer, segment.expert);
    const Matrix &gate = f.gate.weight, &up = f.up.weight;
    const bool shared = segment.expert == kSharedExperts;
    const auto row_of = [&](size_t i) {
        return static_cast<size_t>(mine.plan.row(segment, task.first + static_cast<int>(i)));
    };
    const auto first = static_cast<size_t>(task.first), count = static_cast<size_t>(task.count);
    const bool adjacent = shared || count == 1;
    Activations rows = a.from_row(row_of(0));
    if (!adjacent) {
        const size_t groups = b_.hidden_pad / 32;
        for (size_t i = 0; i < count; ++i) copy_row(a.from_row(row_of(i)), groups, mine.gathered.row(i));
        rows = mine.gathered.view(nullptr, 0);
    }
    const auto times = [&](const Matrix& w, size_t tile, float* out, const uint8_t* ahead) {
        if (adjacent || is_integer(w.scheme)) return multiply(w, tile, rows, count, out, own, ahead);
        // Float weights read the rows where they are, one at a time: gathering those would take four bytes
        // each.
        for (size_t i = 0; i < count; ++i)
            multiply(w, tile, a.from_row(row_of(i)), 1, out + i * kTile, own, ahead);
    };
    float* inner = shared ? m.shared.row(first, m.shared_pad) : m.inner.row(first, m.inner_pad);
    const size_t pad = shared ? m.shared_pad : m.inner_pad;
    const QuantizedRows& quantized = shared ? m.shared_q : m.inner_q;
    float *out = own.tile_a.get(), *other = own.tile_b.get();
    const size_t end = std::min(2 * static_cast<size_t>(task.end_pair), gate.tiles());
    for (auto tile = 2 * static_cast<size_t>(task.pair); tile < end; ++tile) {
        times(up, tile, other, gate.tile(tile));
        times(gate, tile, out, tile + 1 < end ? up.tile(tile + 1) : next);
        kernels_.swiglu(out, other, count * kTile, out);
        copy_tile(f.gate, tile, count, out, inner, pad);
        if (tile % 2 == 0 && tile + 1 < end) continue;
        const size_t group = tile / 2;
        for (size_t i = 0; i < count; ++i) {
            kernels_.quantize(inner + i * pad + group * kPairChannels, kPairChannels,
                              from_group(quantized.row(first + i), group));
        }
    }
}

void Runner::Pass::down(Worker& worker, const Layer& layer, int index) {
    MoeBuffers& m = *b_.moe;
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    const MoePlan& plan = m.scratch[static_cast<size_t>(worker.id())]->plan;
    const auto hidden = static_cast<size_t>(shape_.hidden);
    const auto tiles = static_cast<int64_t>((hidden + kTile - 1) / kTile);
    const Activations inner = m.inner_q.view(m.inner.get(), m.inner_pad);
    const Activations shared = m.shared_q.view(m.shared.get(), m.shared_pad);
    const auto matrix = [&](const MoeSegment& s) -> const Matrix& {
        return FeedForward(layer, s.expert).down.weight;
    };
    TaskCounter& counter = next_counter(worker);
    // A task is 16 channels of all rows: nobody else adds to these, and the order of the experts is kept.
    for (int64_t task = worker.id(); task < tiles;) {
        const int64_t following = counter.claim(1) + worker.count();
        const auto tile = static_cast<size_t>(task);
        const size_t channel = tile * kTile, some = std::min<size_t>(kTile, hidden - channel);
        for (const MoeSegment& s : plan.segments()) {
            const Matrix& w = matrix(s);
            const bool last = &s == &plan.segments().back();
            const uint8_t* next = nullptr;
            if (!last)
                next = matrix((&s)[1]).tile(tile);
            else if (following < tiles)
                next = matrix(plan.segments()[0]).tile(static_cast<size_t>(following));
            for (int first = s.first; first < s.first + s.count; first += static_cast<int>(kRowChunk)) {
                const int count = std::min(static_cast<int>(kRowChunk), s.first + s.count - first);
                const Activations& all = s.expert == kSharedExperts ? shared : inner;
                multiply(w, tile, all.from_row(static_cast<size_t>(first)), static_cast<size_t>(count),
                         own.tile_a.get(), own, next);
                for (int i = 0; i < count; ++i) {
                    float* x = b_.x.row(static_cast<size_t>(plan.row(s, first + i)), hidden) + channel;
                    const float* out = own.tile_a.get() + i * kTile;
                    const float weight = plan.weight(s, first + i);
                    for (size_t c = 0; c < some; ++c) x[c] += weight * out[c];
                }
            }
        }
        task = following;
    }
    if (index + 1 < shape_.layers) {
        fetch_first(worker, model_.layers()[static_cast<size_t>(index) + 1].q, total_);
    } else {
        fetch_first(worker, model_.head(), total_);
    }
    worker.barrier();
}

void Runner::Pass::tap_experts(Worker& worker, int index) {
    if (taps_ == nullptr) return;
    MoeBuffers& m = *b_.moe;
    const auto rows = static_cast<size_t>(total_), inner = static_cast<size_t>(shape_.moe.intermediate);
    const auto each = static_cast<size_t>(shape_.moe.experts_per_token);
    const auto experts = static_cast<size_t>(shape_.moe.experts);
    if (shape_.moe.shared_intermediate > 0) {
        tap(worker, index, "mlp", total_, m.shared.get(), static_cast<size_t>(shape_.moe.shared_intermediate),
            m.shared_pad);
    }
    if (worker.id() == 0) {
        const std::string prefix = "layers." + std::to_string(index) + ".";
        for (Tap& t : *taps_) {
            if (t.name == prefix + "routing") {
                t.width = experts;
                t.values.assign(rows * experts, 0.0f);
                for (size_t i = 0; i < rows * each; ++i) {
                    const auto expert = static_cast<size_t>(m.ids.get()[i]);
                    t.values[i / each * experts + expert] = m.weights.get()[i];
                }
            } else if (t.name == prefix + "experts") {
                t.width = each * inner;
                t.values.resize(rows * t.width);
                std::vector<size_t> filled(rows, 0);
                const MoePlan& plan = m.scratch[0]->plan;
                for (const MoeSegment& s : plan.segments()) {
                    for (int slot = s.first; s.expert != kSharedExperts && slot < s.first + s.count; ++slot) {
                        const auto row = static_cast<size_t>(plan.row(s, slot));
                        std::memcpy(t.values.data() + row * t.width + filled[row]++ * inner,
                                    m.inner.row(static_cast<size_t>(slot), m.inner_pad),
                                    inner * sizeof(float));
                    }
                }
            }
        }
    }
    worker.barrier();
}

}  // namespace edgeseek

#include "forward.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "edgeseek/exact_math.h"
#include "forward_product.h"

namespace edgeseek {
Runner::Pass::Pass(Runner& runner, const Batch& batch, float* logits, std::vector<Tap>* taps)
    : runner_(runner),
      batch_(batch),
      logits_(logits),
      taps_(taps != nullptr && !taps->empty() ? taps : nullptr),
      model_(runner.model_),
      shape_(runner.model_.shape()),
      kernels_(runner.kernels_),
      b_(*runner.buffers_),
      total_(batch.total),
      phase_(static_cast<size_t>(runner.threads_.size()) * 16, 0) {
    row_slice_.reserve(static_cast<size_t>(total_));
    row_position_.reserve(static_cast<size_t>(total_));
    int row = 0;
    for (size_t s = 0; s < batch.slices.size(); ++s) {
        const BatchSlice& slice = batch.slices[s];
        if (slice.tokens != 1) single_tokens_ = false;
        for (int t = 0; t < slice.tokens; t += b_.tokens_per_unit) {
            const int count = std::min(b_.tokens_per_unit, slice.tokens - t);
            tasks_.push_back({static_cast<int>(s), row + t, count, slice.past + t});
        }
        for (int t = 0; t < slice.tokens; ++t) {
            row_slice_.push_back(static_cast<int>(s));
            row_position_.push_back(slice.past + t);
        }
        row += slice.tokens;
    }
    // Longest first, so that the last tasks to finish are short ones.
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const AttentionTask& a, const AttentionTask& c) {
        return static_cast<int64_t>(a.tokens) * (a.position + a.tokens) >
               static_cast<int64_t>(c.tokens) * (c.position + c.tokens);
    });
    if (!shape_.latent.exists()) plan_attention();
    for (TaskCounter& c : b_.counters) c.next.store(0, std::memory_order_relaxed);
}

TaskCounter& Runner::Pass::next_counter(Worker& worker) {
    int& phase = phase_[static_cast<size_t>(worker.id()) * 16];
    return b_.counters[static_cast<size_t>(phase++)];
}

void Runner::Pass::run(Worker& worker) {
    embed(worker);
    for (int i = 0; i < shape_.layers; ++i) {
        attention_layer(worker, i);
        if (shape_.moe.in_layer(i)) {
            moe_layer(worker, i);
        } else {
            mlp_layer(worker, i);
        }
    }
    head(worker);
}

void Runner::Pass::embed(Worker& worker) {
    TaskCounter& counter = next_counter(worker);
    const auto hidden = static_cast<size_t>(shape_.hidden),
               half = static_cast<size_t>(shape_.rotary_dim() / 2);
    for (int64_t i; (i = counter.claim(1)) < total_;) {
        const auto row = static_cast<size_t>(i);
        dequantize_row(model_.embedding(), static_cast<size_t>(batch_.tokens[i]), b_.x.row(row, hidden));
        const auto position = static_cast<float>(row_position_[row]);
        for (size_t j = 0; j < half; ++j) {
            double sine, cosine;
            // The angle is rounded to binary32 as the reference implementations do.
            const float angle = position * shape_.inverse_frequencies[j];
            exact_sincos(static_cast<double>(angle), &sine, &cosine);
            b_.cosine.get()[row * half + j] = static_cast<float>(cosine) * shape_.rotary_scale;
            b_.sine.get()[row * half + j] = static_cast<float>(sine) * shape_.rotary_scale;
        }
    }
    worker.barrier();
    tap(worker, -1, "embed", total_, b_.x.get(), hidden, hidden);
}

Activations Runner::Pass::prepare(Worker& worker, const float* x, size_t width, size_t ldx,
                                  const float* weight, QuantizedRows& shared, int rows, const int32_t* pick,
                                  float eps) {
    const size_t padded = round_up(width, 32);
    const auto one = [&](const float* source, float* normed, const QuantizedRow& quantized) {
        if (weight != nullptr) {
            kernels_.rms_norm(source, weight, width, eps < 0 ? shape_.rms_eps : eps, normed);
            source = normed;
        }
        kernels_.quantize(source, padded, quantized);
    };
    if (rows == 1 && taps_ == nullptr) {
        Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
        for (size_t i = width; i < padded; ++i) own.row.get()[i] = 0.0f;
        const float* source = pick != nullptr ? x + static_cast<size_t>(pick[0]) * ldx : x;
        one(source, own.row.get(), own.quantized.row(0));
        return own.quantized.view(weight != nullptr ? own.row.get() : source, padded);
    }
    TaskCounter& counter = next_counter(worker);
    for (int64_t i; (i = counter.claim(1)) < rows;) {
        const auto row = static_cast<size_t>(i);
        const size_t source = pick != nullptr ? static_cast<size_t>(pick[row]) : row;
        float* normed = b_.normed.row(row, b_.hidden_pad);
        if (weight != nullptr) std::fill(normed + width, normed + padded, 0.0f);
        one(x + source * ldx, normed, shared.row(row));
    }
    worker.barrier();
    return weight != nullptr ? shared.view(b_.normed.get(), b_.hidden_pad) : shared.view(x, ldx);
}

void Runner::Pass::multiply(const Matrix& w, size_t tile, const Activations& a, size_t rows, float* out,
                            Scratch& own, const uint8_t* next) const {
    kernels_.gemm[static_cast<int>(w.scheme)](w.tile(tile), w.padded_columns(), a, rows, out, kTile,
                                              own.unpacked.get(), next);
}

void Runner::Pass::fetch_first(const Worker& worker, const Linear& linear, int rows) const {
    const Matrix& w = linear.weight;
    const size_t begin = static_cast<size_t>(worker.id() * tiles_per_claim(w, rows)) * w.tile_bytes();
    const size_t end = std::min(begin + kFetchBytes, w.bytes());
    for (size_t i = begin; i < end; i += 64) __builtin_prefetch(w.data + i, 0, 2);
}

void Runner::Pass::attention_layer(Worker& worker, int index) {
    const Layer& layer = model_.layers()[static_cast<size_t>(index)];
    const auto hidden = static_cast<size_t>(shape_.hidden);
    Activations a = prepare(worker, b_.x.get(), hidden, hidden, layer.attn_norm, b_.hidden_q, total_);
    tap(worker, index, "attn_norm", total_, b_.normed.get(), hidden, b_.hidden_pad);
    if (shape_.latent.exists()) {
        latent_attention(worker, index, a);
    } else {
        const Product qkv{{&layer.q, &layer.k, &layer.v}, nullptr, &layer.o};
        const size_t offsets[] = {0, shape_.q_width(), shape_.q_width() + shape_.kv_width()};
        product(worker, qkv, a, total_,
                [&](size_t which, size_t tile, size_t first, size_t rows, float* out) {
                    const Linear& linear = *qkv.linears[which];
                    add_bias(linear, tile, rows, out);
                    copy_tile(linear, tile, rows, out, b_.qkv.row(first, b_.qkv_width) + offsets[which],
                              b_.qkv_width);
                });
        attend(worker, index);
    }
    tap(worker, index, "attn", total_, b_.attn.get(), shape_.attn_width(), b_.attn_pad);
    a = prepare(worker, b_.attn.get(), shape_.attn_width(), b_.attn_pad, nullptr, b_.hidden_q, total_);
    const Product o{{&layer.o}, nullptr, layer.router.weight.exists() ? &layer.router : &layer.up};
    product(worker, o, a, total_, [&](size_t, size_t tile, size_t first, size_t rows, float* out) {
        add_bias(layer.o, tile, rows, out);
        add_tile(layer.o, tile, rows, out, b_.x.row(first, hidden), hidden);
    });
}

void Runner::Pass::mlp_layer(Worker& worker, int index) {
    const Layer& layer = model_.layers()[static_cast<size_t>(index)];
    const auto hidden = static_cast<size_t>(shape_.hidden);
    Activations a = prepare(worker, b_.x.get(), hidden, hidden, layer.mlp_norm, b_.hidden_q, total_);
    tap(worker, index, "mlp_norm", total_, b_.normed.get(), hidden, b_.hidden_pad);
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    const Product gate{{&layer.gate}, &layer.up, &layer.down};
    product(worker, gate, a, total_, [&](size_t, size_t tile, size_t first, size_t rows, float* out) {
        add_bias(layer.gate, tile, rows, out);
        add_bias(layer.up, tile, rows, own.tile_b.get());
        kernels_.swiglu(out, own.tile_b.get(), rows * kTile, out);
        copy_tile(layer.gate, tile, rows, out, b_.mlp.row(first, b_.mlp_pad), b_.mlp_pad);
    });
    tap(worker, index, "mlp", total_, b_.mlp.get(), static_cast<size_t>(shape_.intermediate), b_.mlp_pad);
    a = prepare(worker, b_.mlp.get(), static_cast<size_t>(shape_.intermediate), b_.mlp_pad, nullptr, b_.mlp_q,
                total_);
    const bool last = index + 1 == shape_.layers;
    const Product down{{&layer.down},
                       nullptr,
                       last ? &model_.head() : &model_.layers()[static_cast<size_t>(index) + 1].first()};
    product(worker, down, a, total_, [&](size_t, size_t tile, size_t first, size_t rows, float* out) {
        add_bias(layer.down, tile, rows, out);
        add_tile(layer.down, tile, rows, out, b_.x.row(first, hidden), hidden);
    });
    tap(worker, index, "output", total_, b_.x.get(), hidden, hidden);
}

void Runner::Pass::head(Worker& worker) {
    const auto hidden = static_cast<size_t>(shape_.hidden);
    const int rows = batch_.logit_count;
    if (rows == 0) return;
    const Activations a = prepare(worker, b_.x.get(), hidden, hidden, model_.final_norm(), b_.hidden_q, rows,
                                  batch_.logit_rows);
    tap(worker, -1, "final_norm", rows, b_.normed.get(), hidden, b_.hidden_pad);
    const Product head{{&model_.head()}, nullptr, nullptr};
    const auto vocab = static_cast<size_t>(shape_.vocab);
    product(worker, head, a, rows, [&](size_t, size_t tile, size_t first, size_t some, float* out) {
        add_bias(model_.head(), tile, some, out);
        copy_tile(model_.head(), tile, some, out, logits_ + first * vocab, vocab);
    });
}

void Runner::Pass::tap(Worker& worker, int layer, const char* point, int rows, const float* values,
                       size_t width, size_t ld) {
    if (taps_ == nullptr) return;
    if (worker.id() == 0) {
        const std::string name = layer < 0 ? point : "layers." + std::to_string(layer) + "." + point;
        for (Tap& t : *taps_) {
            if (t.name != name) continue;
            t.width = width;
            t.values.resize(static_cast<size_t>(rows) * width);
            for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
                std::memcpy(t.values.data() + r * width, values + r * ld, width * sizeof(float));
            }
        }
    }
    worker.barrier();
}

std::vector<std::string> Runner::Pass::tap_names(const ModelShape& shape) {
    std::vector<std::string> names{"embed"};
    for (int i = 0; i < shape.layers; ++i) {
        const std::string prefix = "layers." + std::to_string(i) + ".";
        const bool experts = shape.moe.in_layer(i);
        for (const char* point : {"attn_norm", "attn", "mlp_norm"}) names.push_back(prefix + point);
        if (!experts || shape.moe.shared_intermediate > 0) names.push_back(prefix + "mlp");
        if (experts) names.insert(names.end(), {prefix + "routing", prefix + "experts"});
        names.push_back(prefix + "output");
    }
    names.push_back("final_norm");
    return names;
}

void Runner::Pass::check_taps() const {
    if (taps_ == nullptr) return;
    const std::vector<std::string> known = tap_names(shape_);
    for (const Tap& t : *taps_) {
        if (std::find(known.begin(), known.end(), t.name) == known.end()) {
            throw std::invalid_argument(
                "unknown tap '" + t.name + "'; taps are embed, layers.N.{attn_norm, attn, " +
                "mlp_norm, mlp, output}, layers.N.{routing, experts} where there are " +
                "experts, and final_norm");
        }
    }
}

}  // namespace edgeseek

// The program of one forward pass, run by every worker together: phases separated by barriers.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "buffers.h"
#include "edgeseek/runner.h"
#include "moe_plan.h"

namespace edgeseek {

/// Tokens of one sequence that one attention task handles: rows [row, row + tokens) of the batch.
struct AttentionTask {
    int slice, row, tokens, position;
};

/// One range of positions of one unit (task x KV head), where a unit is split among workers.
struct AttentionPiece {
    size_t unit;
    int range;
};

/// A unit's pieces: pieces [first_piece, first_piece + pieces) of the pass, the first of them `first_range`.
struct SplitUnit {
    size_t first_piece = 0;
    int first_range = 0;
    int64_t pieces = 0;
    alignas(64) std::atomic<int64_t> finished{0};
};

struct Runner::Pass {
    Pass(Runner& runner, const Batch& batch, float* logits, std::vector<Tap>* taps);

    void run(Worker& worker);
    void check_taps() const;
    static std::vector<std::string> tap_names(const ModelShape& shape);

  private:
    void embed(Worker& worker);
    void attention_layer(Worker& worker, int index);
    void mlp_layer(Worker& worker, int index);
    void moe_layer(Worker& worker, int index);
    /// Routes every row and plans the layer, the same for every worker.
    void choose_experts(Worker& worker, int index);
    /// silu(gate) * up of every row with each of its experts, quantized for `down`.
    void gate_and_up(Worker& worker, const Layer& layer, const Activations& a);
    void expert_task(Worker& worker, const Layer& layer, const Activations& a, const MoeSegment& segment,
                     const MoeTask& task, const uint8_t* next);
    /// Adds the experts' outputs to the residual stream.
    void down(Worker& worker, const Layer& layer, int index);
    void tap_experts(Worker& worker, int index);
    void head(Worker& worker);

    /// Norms (if `weight`) and quantizes rows 0..rows-1 of `x`, or rows pick[0..rows-1]; `eps` is the model's
    /// unless given. A single row is done
    /// by each worker for itself, which is cheaper than a barrier.
    Activations prepare(Worker& worker, const float* x, size_t width, size_t ldx, const float* weight,
                        QuantizedRows& shared, int rows, const int32_t* pick = nullptr, float eps = -1.0f);
    /// One pass over all tiles of up to three matrices that read the same activations.
    struct Product {
        std::array<const Linear*, 3> linears{};
        /// Same shape as the only one of `linears`; its tiles are computed along, into tile_b of the scratch.
        const Linear* companion = nullptr;
        /// First matrix of the next product: its beginning is fetched before the barrier.
        const Linear* upcoming = nullptr;
    };
    /// epilogue(index of linear, tile, first row, rows, out [rows][16]) takes each tile's result.
    template <class Epilogue>
    void product(Worker& worker, const Product& work, const Activations& a, int rows,
                 const Epilogue& epilogue);
    void multiply(const Matrix& w, size_t tile, const Activations& a, size_t rows, float* out, Scratch& own,
                  const uint8_t* next) const;
    /// Brings the weights that this worker takes first in a product of `linear` near.
    void fetch_first(const Worker& worker, const Linear& linear, int rows) const;
    /// Fills pieces_ where whole units would leave threads without work.
    void plan_attention();
    void attend(Worker& worker, int layer);
    void rotate_and_store(int layer, int row, int kv_head);
    void run_unit(Worker& worker, int layer, const AttentionTask& task, int kv_head);
    void run_piece(Worker& worker, int layer, size_t index);
    int window_of(int layer) const { return model_.layers()[static_cast<size_t>(layer)].window; }
    AttentionUnit unit_of(const AttentionTask& task, int kv_head, int window) const;
    /// Points the unit at this worker's scratch and at the planes that hold positions [first, last].
    void find_planes(Worker& worker, int layer, const AttentionTask& task, int kv_head, int first, int last,
                     AttentionUnit* unit);
    /// Attention over the latent cache; `a` is the normed hidden state.
    void latent_attention(Worker& worker, int index, const Activations& a);
    /// Queries and latent vectors of all rows, before any rotation.
    void latent_projections(Worker& worker, const Layer& layer, const Activations& a);
    /// Stores a row's latent vector and rotated key; rotates its queries and quantizes their other part.
    void store_latent(Worker& worker, int layer, int row);
    void attend_latent(Worker& worker, int layer);
    void run_latent_unit(Worker& worker, int layer, const AttentionTask& task, int first_head, int heads);
    /// A matrix whose rows are those of all heads in turn, each times its own head's part of an activation.
    struct HeadProduct {
        const Matrix& matrix;
        const float* x;  // [rows][heads] what heads_q holds, unquantized
        size_t row_stride, head_stride;
        float* out;
        size_t out_row_stride, out_head_stride;
    };
    void multiply_heads(Worker& worker, const HeadProduct& work);
    /// Quantizes one head's n values of a row; what pads them is zero.
    void quantize_head(Worker& worker, const float* x, size_t n, int row, int head);
    TaskCounter& next_counter(Worker& worker);
    /// Copies rows out if a tap of that name is asked for; `layer` is -1 outside the layers.
    void tap(Worker& worker, int layer, const char* point, int rows, const float* values, size_t width,
             size_t ld);

    Runner& runner_;
    const Batch& batch_;
    float* logits_;
    std::vector<Tap>* taps_;
    const Model& model_;
    const ModelShape& shape_;
    const Kernels& kernels_;
    Buffers& b_;
    const int total_;
    bool single_tokens_ = true;  // every slice has exactly one token
    std::vector<AttentionTask> tasks_;
    std::vector<AttentionPiece> pieces_;  // empty: units are taken whole
    std::vector<SplitUnit> splits_;       // of each unit
    std::vector<float*> parts_;           // where each piece's result goes
    std::vector<int> row_slice_, row_position_;
    std::vector<int> phase_;  // per worker: phases begun so far
};

}  // namespace edgeseek

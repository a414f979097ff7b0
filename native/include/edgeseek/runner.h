// One forward pass over a mixed batch: prefill chunks and decodes of many sequences in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "edgeseek/kv_pool.h"
#include "edgeseek/model.h"
#include "edgeseek/thread_pool.h"

namespace edgeseek {

struct Kernels;

/// The part of one sequence that a step processes: `tokens` rows at positions past, past + 1, ...
struct BatchSlice {
    int tokens = 0;
    int past = 0;
    const int32_t* blocks = nullptr;  // block table; entry i holds positions [32 i, 32 i + 32)
    int block_count = 0;
};

struct Batch {
    const int32_t* tokens = nullptr;  // [total], slices one after another
    int total = 0;
    std::vector<BatchSlice> slices;
    const int32_t* logit_rows = nullptr;  // rows of [0, total) whose logits are wanted
    int logit_count = 0;
};

/// A named activation to copy out: [total][width] floats.
struct Tap {
    std::string name;
    std::vector<float> values;
    size_t width = 0;
};

struct Counters {
    uint64_t steps = 0;
    uint64_t tokens = 0;
    uint64_t logit_rows = 0;
    uint64_t forward_ns = 0;
    uint64_t experts = 0;       // expert feed-forwards run: of each layer and step, the experts with any row
    uint64_t expert_bytes = 0;  // of their weights
};

/// Owns the work buffers of a model on a pool of threads; not thread-safe.
class Runner {
  public:
    /// `max_tokens` is the largest batch of one step. All buffers are allocated here.
    Runner(const Model& model, KvPool& pool, ThreadPool& threads, const Kernels& kernels, int max_tokens);
    ~Runner();

    /// Runs the batch, writing keys and values into their blocks and logits to
    /// `logits` [logit_count][vocab]. Throws std::invalid_argument on a token, position, table or row that
    /// is out of range, before anything is written.
    void forward(const Batch& batch, float* logits, std::vector<Tap>* taps = nullptr);

    int max_tokens() const { return max_tokens_; }
    size_t buffer_bytes() const;
    const Counters& counters() const { return counters_; }
    /// [layer][expert]: the number of the last step, from 1 on, that ran the expert; 0 for none. Empty for a
    /// model without experts.
    const std::vector<uint64_t>& expert_steps() const { return expert_steps_; }
    /// The names that forward accepts as taps.
    std::vector<std::string> tap_names() const;

  private:
    struct Buffers;
    struct Pass;
    void validate(const Batch& batch) const;

    const Model& model_;
    KvPool& pool_;
    ThreadPool& threads_;
    const Kernels& kernels_;
    const int max_tokens_;
    std::unique_ptr<Buffers> buffers_;
    Counters counters_;
    std::vector<uint64_t> expert_steps_;
};

}  // namespace edgeseek

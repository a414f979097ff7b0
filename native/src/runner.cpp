#include "edgeseek/runner.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "buffers.h"
#include "edgeseek/exact_math.h"
#include "forward.h"

namespace edgeseek {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

}  // namespace

Runner::Runner(const Model& model, KvPool& pool, ThreadPool& threads, const Kernels& kernels, int max_tokens)
    : model_(model), pool_(pool), threads_(threads), kernels_(kernels), max_tokens_(max_tokens) {
    if (max_tokens < 1 || max_tokens > 1 << 16) {
        fail("max_tokens must be 1 to 65536, not " + std::to_string(max_tokens));
    }
    const KvShape have = pool.shape(), want = model.shape().kv(have.type);
    if (have.layers != want.layers || have.kv_heads != want.kv_heads || have.head_dim != want.head_dim ||
        have.latent != want.latent) {
        fail("the KV pool was made for another model");
    }
    buffers_ = std::make_unique<Buffers>(model.shape(), max_tokens, threads.size(), pool.blocks());
    const ModelShape& shape = model.shape();
    if (shape.moe.experts > 0) {
        expert_steps_.resize(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.moe.experts));
    }
}

Runner::~Runner() = default;

size_t Runner::buffer_bytes() const { return buffers_->bytes(); }

void Runner::validate(const Batch& batch) const {
    if (batch.total < 1 || batch.total > max_tokens_) {
        fail("a step takes 1 to " + std::to_string(max_tokens_) + " tokens, not " +
             std::to_string(batch.total));
    }
    int64_t total = 0;
    for (size_t s = 0; s < batch.slices.size(); ++s) {
        const BatchSlice& slice = batch.slices[s];
        const std::string where = "slice " + std::to_string(s);
        if (slice.tokens < 1 || slice.past < 0)
            fail(where + " needs at least one token and a past of 0 or more");
        total += slice.tokens;
        const int64_t end = static_cast<int64_t>(slice.past) + slice.tokens;
        if (end > static_cast<int64_t>(slice.block_count) * kBlockTokens) {
            fail(where + " reaches position " + std::to_string(end) + ", its table of " +
                 std::to_string(slice.block_count) + " blocks holds " +
                 std::to_string(static_cast<int64_t>(slice.block_count) * kBlockTokens));
        }
        if (end > static_cast<int64_t>(pool_.blocks()) * kBlockTokens) {
            fail(where + " reaches position " + std::to_string(end) + ", the pool of " +
                 std::to_string(pool_.blocks()) + " blocks holds " +
                 std::to_string(static_cast<int64_t>(pool_.blocks()) * kBlockTokens));
        }
        for (int i = 0; i < slice.block_count; ++i) {
            if (slice.blocks[i] < 0 || slice.blocks[i] >= pool_.blocks()) {
                fail(where + " names block " + std::to_string(slice.blocks[i]) + " of a pool of " +
                     std::to_string(pool_.blocks()));
            }
        }
    }
    if (total != batch.total) {
        fail("the slices hold " + std::to_string(total) + " tokens, the batch " +
             std::to_string(batch.total));
    }
    for (int i = 0; i < batch.total; ++i) {
        if (batch.tokens[i] < 0 || batch.tokens[i] >= model_.shape().vocab) {
            fail("token id " + std::to_string(batch.tokens[i]) + " is outside the vocabulary of " +
                 std::to_string(model_.shape().vocab));
        }
    }
    if (batch.logit_count < 0 || batch.logit_count > batch.total) {
        fail("logits are wanted for " + std::to_string(batch.logit_count) + " rows of " +
             std::to_string(batch.total));
    }
    for (int i = 0; i < batch.logit_count; ++i) {
        if (batch.logit_rows[i] < 0 || batch.logit_rows[i] >= batch.total) {
            fail("logit row " + std::to_string(batch.logit_rows[i]) + " is outside the batch of " +
                 std::to_string(batch.total));
        }
    }
}

std::vector<std::string> Runner::tap_names() const { return Pass::tap_names(model_.shape()); }

void Runner::forward(const Batch& batch, float* logits, std::vector<Tap>* taps) {
    validate(batch);
    const auto begin = std::chrono::steady_clock::now();
    Pass pass(*this, batch, logits, taps);
    pass.check_taps();
    threads_.run([&pass](Worker& worker) { pass.run(worker); });
    const auto end = std::chrono::steady_clock::now();
    counters_.steps += 1;
    counters_.tokens += static_cast<uint64_t>(batch.total);
    counters_.logit_rows += static_cast<uint64_t>(batch.logit_count);
    counters_.forward_ns +=
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

}  // namespace edgeseek

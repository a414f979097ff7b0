// A small random model with a scheme of every kind, and ways to run sequences through it.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "edgeseek/runner.h"
#include "gemm_testing.h"

namespace model_testing {

using namespace edgeseek;
using kernel_testing::Random;

/// 64-byte aligned bytes.
struct Bytes {
    explicit Bytes(size_t size)
        : data(static_cast<uint8_t*>(std::aligned_alloc(64, (size + 127) / 64 * 64))) {}
    ~Bytes() { std::free(data); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    uint8_t* data;
};

/// Owns the tensors of a model.
class TinyModel {
  public:
    /// `window` applies to the second layer only.
    explicit TinyModel(int window = 0) {
        Random random(7);
        shape.layers = 3;
        shape.hidden = 256;
        shape.intermediate = 512;
        shape.heads = 6;
        shape.kv_heads = 2;
        shape.head_dim = 48;
        shape.vocab = 99;
        shape.rms_eps = 1e-5f;
        for (int i = 0; i < shape.head_dim / 2; ++i) {
            shape.inverse_frequencies.push_back(1.0f / static_cast<float>(1 << (i / 2)));
        }
        shape.windows = {0, window, 0};
        matrix(random, "embed", 99, 256, "q4k");
        matrix(random, "head", 99, 256, "q6k");
        vector(random, "final_norm.weight", 256);
        const char* const schemes[3][7] = {{"q4k", "q5k", "q6k", "q4", "q8", "q4z", "q5k"},
                                           {"f16", "q5", "q5z", "f32", "q4k", "q6k", "q8"},
                                           {"q8", "q8", "f16", "q5", "q5z", "q4", "q4k"}};
        for (int i = 0; i < shape.layers; ++i) {
            const std::string p = "layers." + std::to_string(i) + ".";
            const char* const* scheme = schemes[i];
            vector(random, p + "attn_norm.weight", 256);
            vector(random, p + "mlp_norm.weight", 256);
            matrix(random, p + "attn.q", 288, 256, scheme[0]);
            matrix(random, p + "attn.k", 96, 256, scheme[1]);
            matrix(random, p + "attn.v", 96, 256, scheme[2]);
            matrix(random, p + "attn.o", 256, 288, scheme[3]);
            matrix(random, p + "mlp.gate", 512, 256, scheme[4]);
            matrix(random, p + "mlp.up", 512, 256, scheme[5]);
            matrix(random, p + "mlp.down", 256, 512, scheme[6]);
            vector(random, p + "attn.q.bias", 288);
            vector(random, p + "mlp.down.bias", 256);
        }
    }

    /// Norms over each query and key head, in all layers.
    void add_head_norms() {
        Random random(8);
        for (int i = 0; i < shape.layers; ++i) {
            const std::string p = "layers." + std::to_string(i) + ".attn.";
            vector(random, p + "q_norm.weight", static_cast<size_t>(shape.head_dim));
            vector(random, p + "k_norm.weight", static_cast<size_t>(shape.head_dim));
        }
    }

    std::unique_ptr<Model> build() const { return std::make_unique<Model>(shape, tensors); }

    NamedTensor& tensor(const std::string& name) {
        for (NamedTensor& t : tensors) {
            if (t.name == name) return t;
        }
        throw std::runtime_error("no tensor " + name);
    }

    ModelShape shape;
    std::vector<NamedTensor> tensors;

    void matrix(Random& random, const std::string& name, size_t rows, size_t columns,
                const char* scheme_name) {
        const Scheme scheme = scheme_from_name(scheme_name);
        const size_t tiles = (rows + 15) / 16, block = static_cast<size_t>(info(scheme).block);
        // What stands in padding columns must not matter, so they are random too.
        const size_t padded = (columns + block - 1) / block * block;
        Bytes* bytes = nullptr;
        size_t size = 0;
        for (size_t t = 0; t < tiles; ++t) {
            kernel_testing::Tile tile = kernel_testing::random_tile(random, scheme, padded);
            if (bytes == nullptr) {
                size = tiles * tile.bytes.size();
                bytes = &storage_.emplace_back(size);
            }
            std::memcpy(bytes->data + t * tile.bytes.size(), tile.bytes.data(), tile.bytes.size());
        }
        tensors.push_back({name + ".weight", scheme_name, "tiles", rows, columns, bytes->data, size});
    }

    void vector(Random& random, const std::string& name, size_t length) {
        Bytes& bytes = storage_.emplace_back(length * sizeof(float));
        for (size_t i = 0; i < length; ++i) {
            const float value = random.uniform(0.5f, 1.5f);
            std::memcpy(bytes.data + i * sizeof(float), &value, sizeof(float));
        }
        tensors.push_back({name, "f32", "flat", length, 1, bytes.data, length * sizeof(float)});
    }

  private:
    std::list<Bytes> storage_;
};

/// FNV-1a, 64 bits, over the floats' bytes.
inline uint64_t digest(const std::vector<float>& values) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const float v : values) {
        uint32_t bits;
        std::memcpy(&bits, &v, 4);
        for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 0xff)) * 0x100000001b3ULL;
    }
    return hash;
}

/// One sequence's tokens and the blocks it may use.
struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<int32_t> blocks;
    std::vector<float> logits;  // [tokens][vocab], filled by run
};

inline Sequence random_sequence(Random& random, size_t length, std::vector<int32_t> blocks, int vocab) {
    Sequence s;
    for (size_t i = 0; i < length; ++i)
        s.tokens.push_back(static_cast<int32_t>(random.below(static_cast<size_t>(vocab))));
    s.blocks = std::move(blocks);
    return s;
}

/// Feeds all sequences together, `chunk` tokens of each per step, and collects every token's logits. Tokens
/// before `from` have been fed already.
inline void run(Runner& runner, const ModelShape& shape, std::vector<Sequence>& sequences, size_t chunk,
                size_t from = 0) {
    const auto vocab = static_cast<size_t>(shape.vocab);
    size_t longest = 0;
    for (Sequence& s : sequences) {
        s.logits.assign(s.tokens.size() * vocab, 0.0f);
        longest = s.tokens.size() > longest ? s.tokens.size() : longest;
    }
    for (size_t past = from; past < longest; past += chunk) {
        Batch batch;
        std::vector<int32_t> tokens, rows;
        std::vector<size_t> which;
        for (size_t i = 0; i < sequences.size(); ++i) {
            const Sequence& s = sequences[i];
            if (past >= s.tokens.size()) continue;
            const size_t count = s.tokens.size() - past < chunk ? s.tokens.size() - past : chunk;
            tokens.insert(tokens.end(), s.tokens.begin() + static_cast<long>(past),
                          s.tokens.begin() + static_cast<long>(past + count));
            batch.slices.push_back({static_cast<int>(count), static_cast<int>(past), s.blocks.data(),
                                    static_cast<int>(s.blocks.size())});
            which.push_back(i);
        }
        for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<int32_t>(i));
        batch.tokens = tokens.data();
        batch.total = static_cast<int>(tokens.size());
        batch.logit_rows = rows.data();
        batch.logit_count = batch.total;
        std::vector<float> logits(tokens.size() * vocab);
        runner.forward(batch, logits.data());
        size_t row = 0;
        for (size_t i = 0; i < which.size(); ++i) {
            const auto count = static_cast<size_t>(batch.slices[i].tokens);
            std::memcpy(sequences[which[i]].logits.data() + past * vocab, logits.data() + row * vocab,
                        count * vocab * sizeof(float));
            row += count;
        }
    }
}

}  // namespace model_testing

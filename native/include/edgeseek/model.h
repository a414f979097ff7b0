// A decoder-only transformer made of packed matrices that someone else keeps mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "edgeseek/kv_pool.h"
#include "edgeseek/matrix.h"

namespace edgeseek {

enum class Scoring : uint8_t { softmax, sigmoid };
enum class GroupScore : uint8_t { best, two_best };  // of a group's experts

/// Experts in place of the feed-forward of some layers; see architectures/spec.py for the routing's terms.
struct MoeShape {
    int experts = 0;  // 0: no layer has any
    int experts_per_token = 0;
    int intermediate = 0;         // of one expert
    int shared_intermediate = 0;  // of the shared experts as one, 0: none
    int first_layer = 0;          // earlier layers have a plain feed-forward,
    int layer_step = 1;           // and so have those whose number this does not divide
    Scoring scoring = Scoring::softmax;
    bool corrected = false;  // a bias on the scores decides which experts are chosen
    int groups = 1;
    int groups_per_token = 1;
    GroupScore group_score = GroupScore::best;
    bool normalized = false;  // weights of a token's experts are divided by their sum
    float scale = 1.0f;       // of the weights

    bool in_layer(int layer) const { return experts > 0 && layer >= first_layer && layer % layer_step == 0; }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all heads
/// come from one latent vector of a token, beside one rotated key that all heads share.
struct LatentShape {
    int rank = 0;          // of the latent vector of keys and values; 0: no latent attention
    int query_rank = 0;    // of the queries' own, 0: queries come straight from the hidden state
    int plain = 0;         // dimensions of a query or key that are not rotated
    int rotated = 0;       // those that are; plain + rotated = head_dim
    int value = 0;         // dimensions of a head's output
    float scale = 0.0f;    // of scores
    float rms_eps = 0.0f;  // of the norms of the latent vectors

    bool exists() const { return rank > 0; }
    int width() const { return rank + rotated; }  // of a token in the cache
};

struct ModelShape {
    int layers = 0;
    int hidden = 0;
    int intermediate = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int vocab = 0;
    float rms_eps = 0.0f;
    bool tied_embeddings = false;
    std::vector<float> inverse_frequencies;  // rotary_dim() / 2, scaling applied
    float rotary_scale = 1.0f;               // what cosines and sines are multiplied with
    std::vector<int> windows;                // per layer, 0: all positions
    MoeShape moe;
    LatentShape latent;

    size_t q_width() const { return static_cast<size_t>(heads) * static_cast<size_t>(head_dim); }
    size_t kv_width() const { return static_cast<size_t>(kv_heads) * static_cast<size_t>(head_dim); }
    /// Floats of a token's attention output, the input of `o`.
    size_t attn_width() const {
        return latent.exists() ? static_cast<size_t>(heads) * static_cast<size_t>(latent.value) : q_width();
    }
    int rotary_dim() const { return latent.exists() ? latent.rotated : head_dim; }
    KvShape kv(KvType type) const {
        if (latent.exists()) return {layers, 1, latent.width(), type, true};
        return {layers, kv_heads, head_dim, type};
    }
};

struct Linear {
    Matrix weight;
    const float* bias = nullptr;  // [rows] or none
};

struct Expert {
    Linear gate, up, down;
};

struct Layer {
    const float* attn_norm = nullptr;  // [hidden]
    const float* mlp_norm = nullptr;   // [hidden]
    const float* q_norm = nullptr;     // [head_dim], of every query head before its rotation, or none
    const float* k_norm = nullptr;     // the same of every key head
    Linear q, k, v, o;
    Linear gate, up, down;  // the feed-forward; with experts: the shared ones, absent where there are none
    Linear router;          // [experts, hidden]; absent in a layer without experts
    const float* router_bias = nullptr;  // [experts], for the choice only
    std::vector<Expert> experts;
    // Latent attention has, in place of k and v:
    Linear query_a;                     // [query_rank, hidden], where q reads its result
    Linear kv_a;                        // [rank + rotated, hidden]
    Linear k_b;                         // [heads x rank, plain]: each head's part of kv_b, transposed
    Linear v_b;                         // [heads x value, rank]
    const float* query_norm = nullptr;  // [query_rank]
    const float* kv_norm = nullptr;     // [rank]
    int window = 0;

    /// What reads the normed hidden state first.
    const Linear& first() const { return query_a.weight.exists() ? query_a : q; }
};

/// A named tensor as the package stores it; `bytes` is what may be read.
struct NamedTensor {
    std::string name;
    std::string scheme;
    std::string layout;  // "tiles", "rows" or "flat"
    size_t rows = 0;
    size_t columns = 0;  // 1 for vectors
    const uint8_t* data = nullptr;
    size_t bytes = 0;
};

class TensorTable;

class Model {
  public:
    /// Checks every size, scheme and alignment. Throws std::invalid_argument that names the tensor.
    Model(ModelShape shape, const std::vector<NamedTensor>& tensors);

    const ModelShape& shape() const { return shape_; }
    const std::vector<Layer>& layers() const { return layers_; }
    const Matrix& embedding() const { return embedding_; }
    const Linear& head() const { return head_; }
    const float* final_norm() const { return final_norm_; }
    /// Bytes of weights read for one token, the head included, one embedding row and, where there are
    /// experts, as many as a token is routed to.
    size_t bytes_per_token() const;
    /// Maps the pages of all matrices that every token reads (experts are not among them), so that the first
    /// step takes no page faults; reads them from disk in order where they are not cached. Failures are
    /// ignored: it is only about time.
    void populate() const;
    /// Keeps all those pages in memory until they are unmapped. Returns 0, or errno of the call that failed.
    int lock() const;

  private:
    void add_experts(Layer& layer, const std::string& prefix, const TensorTable& table) const;
    void add_attention(Layer& layer, const std::string& prefix, const TensorTable& table) const;
    template <class F>
    void each_matrix(const F& visit) const;

    ModelShape shape_;
    std::vector<Layer> layers_;
    Matrix embedding_;
    Linear head_;
    const float* final_norm_ = nullptr;
};

}  // namespace edgeseek

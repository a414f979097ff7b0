// The KV cache: one allocation cut into blocks of 32 token positions. It knows block ids and byte layout
// only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgeseek {

constexpr int kBlockTokens = 32;

enum class KvType : uint8_t { f16, int8 };
constexpr int kKvTypeCount = 2;

/// Dimensions of a head that share a scale per token in an int8 cache; the last group may have fewer.
constexpr int kKvGroup = 32;

constexpr int kv_groups(int head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

/// Planes of one block: [layer]{ K [kv_head] heads, V [kv_head] heads }. A head of K holds [head_dim][32
/// tokens], a head of V [32 tokens][head_dim]. f16: binary16. int8: codes, and behind them binary16 scales
/// [group][32 tokens]; a value is code x scale of its token and group.
struct KvShape {
    int layers = 0;
    int kv_heads = 0;
    int head_dim = 0;
    KvType type = KvType::f16;
    /// One plane for each layer, [32 tokens][head_dim] binary16 that all heads read; kv_heads is 1.
    bool latent = false;

    size_t planes() const { return latent ? 1 : 2; }
    /// Bytes of one head of K or V in a block, or of a latent plane; a multiple of 64.
    size_t head_bytes() const {
        const auto dim = static_cast<size_t>(head_dim), groups = static_cast<size_t>(kv_groups(head_dim));
        return kBlockTokens * (type == KvType::f16 ? 2 * dim : dim + 2 * groups);
    }
    size_t block_bytes() const {
        return static_cast<size_t>(layers) * planes() * static_cast<size_t>(kv_heads) * head_bytes();
    }
};

class KvPool {
  public:
    /// Allocates exactly blocks * shape.block_bytes() bytes, page aligned.
    /// Throws std::invalid_argument on sizes < 1, std::bad_alloc when the system refuses.
    KvPool(const KvShape& shape, int blocks);
    ~KvPool();
    KvPool(const KvPool&) = delete;
    KvPool& operator=(const KvPool&) = delete;

    const KvShape& shape() const { return shape_; }
    int blocks() const { return blocks_; }
    size_t bytes() const { return static_cast<size_t>(blocks_) * shape_.block_bytes(); }

    /// Gives the pages that lie wholly inside the named blocks back to the system; they read as zeros until
    /// they are written again. Neighbours in any order count as one stretch. Returns the bytes that were in
    /// memory. Throws std::invalid_argument for a block that there is not, before anything is given back.
    size_t release(const int32_t* blocks, size_t count);

    /// The head's plane in 16-bit units, whatever the type.
    uint16_t* k(int block, int layer, int head) const { return plane(block, layer, 0, head); }
    uint16_t* v(int block, int layer, int head) const { return plane(block, layer, 1, head); }
    /// The plane of a latent cache.
    uint16_t* latent(int block, int layer) const { return plane(block, layer, 0, 0); }

  private:
    uint16_t* plane(int block, int layer, size_t which, int head) const {
        const size_t plane =
            (static_cast<size_t>(layer) * shape_.planes() + which) * static_cast<size_t>(shape_.kv_heads);
        const size_t bytes = static_cast<size_t>(block) * shape_.block_bytes() +
                             (plane + static_cast<size_t>(head)) * shape_.head_bytes();
        return data_ + bytes / sizeof(uint16_t);
    }

    KvShape shape_;
    int blocks_;
    uint16_t* data_ = nullptr;
};

}  // namespace edgeseek

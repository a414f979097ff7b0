// The KV cache: one allocation cut into blocks of 32 token positions. It knows block ids and byte layout
// only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgeseek {

constexpr int kBlockTokens = 32;

/// Planes of one block: [layer]{ K [kv_head][head_dim][32], V [kv_head][32][head_dim] }, binary16.
struct KvShape {
    int layers = 0;
    int kv_heads = 0;
    int head_dim = 0;

    size_t plane_halves() const { return static_cast<size_t>(kv_heads) * static_cast<size_t>(head_dim) * 32; }
    size_t block_bytes() const { return static_cast<size_t>(layers) * 2 * plane_halves() * sizeof(uint16_t); }
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

    uint16_t* k(int block, int layer, int head) const { return plane(block, layer, 0, head); }
    uint16_t* v(int block, int layer, int head) const { return plane(block, layer, 1, head); }

  private:
    uint16_t* plane(int block, int layer, size_t which, int head) const {
        uint16_t* base = data_ + static_cast<size_t>(block) * shape_.block_bytes() / sizeof(uint16_t);
        const size_t head_halves = static_cast<size_t>(shape_.head_dim) * 32;
        return base + (static_cast<size_t>(layer) * 2 + which) * shape_.plane_halves() +
               static_cast<size_t>(head) * head_halves;
    }

    KvShape shape_;
    int blocks_;
    uint16_t* data_ = nullptr;
};

}  // namespace edgeseek

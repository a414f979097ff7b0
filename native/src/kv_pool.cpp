#include "edgeseek/kv_pool.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>
#include <string>

namespace edgeseek {

KvPool::KvPool(const KvShape& shape, int blocks) : shape_(shape), blocks_(blocks) {
    if (shape.layers < 1 || shape.kv_heads < 1 || shape.head_dim < 1 || blocks < 1) {
        throw std::invalid_argument(
            "a KV pool needs layers, kv_heads, head_dim and blocks of at least 1, not " +
            std::to_string(shape.layers) + ", " + std::to_string(shape.kv_heads) + ", " +
            std::to_string(shape.head_dim) + ", " + std::to_string(blocks));
    }
    if (shape.latent && (shape.kv_heads != 1 || shape.type != KvType::f16)) {
        throw std::invalid_argument("a latent KV pool is f16 and has one plane for all heads");
    }
    // Untouched pages cost nothing until a sequence reaches them.
    void* memory =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    // A hint: long contexts read blocks from all over the pool, and 4 KiB pages would miss the TLB. A system
    // without huge pages goes on with small ones.
    madvise(memory, bytes(), MADV_HUGEPAGE);
    data_ = static_cast<uint16_t*>(memory);
}

KvPool::~KvPool() { munmap(data_, bytes()); }

}  // namespace edgeseek

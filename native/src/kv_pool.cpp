#include "edgeseek/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgeseek {

namespace {

size_t resident_pages(uint8_t* start, size_t pages, size_t page) {
    std::vector<unsigned char> states(pages);
    if (mincore(start, pages * page, states.data()) != 0) return 0;
    return static_cast<size_t>(
        std::count_if(states.begin(), states.end(), [](unsigned char state) { return (state & 1) != 0; }));
}

}  // namespace

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

size_t KvPool::release(const int32_t* blocks, size_t count) {
    std::vector<int32_t> sorted(blocks, blocks + count);
    std::sort(sorted.begin(), sorted.end());
    if (count != 0 && (sorted.front() < 0 || sorted.back() >= blocks_)) {
        throw std::invalid_argument("a block from " + std::to_string(sorted.front()) + " to " +
                                    std::to_string(sorted.back()) + " was to be released of a pool of " +
                                    std::to_string(blocks_));
    }
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t each = shape_.block_bytes();
    auto* bytes_of_pool = reinterpret_cast<uint8_t*>(data_);
    size_t released = 0;
    for (size_t first = 0; first < count;) {
        size_t last = first;
        while (last + 1 < count && sorted[last + 1] <= sorted[last] + 1) ++last;
        const size_t begin = static_cast<size_t>(sorted[first]) * each;
        const size_t end = (static_cast<size_t>(sorted[last]) + 1) * each;
        const size_t start = (begin + page - 1) / page * page;
        // What the mapping has behind the last block is nobody's.
        const size_t stop = end == bytes() ? (end + page - 1) / page * page : end / page * page;
        if (stop > start) {
            const size_t resident = resident_pages(bytes_of_pool + start, (stop - start) / page, page);
            if (madvise(bytes_of_pool + start, stop - start, MADV_DONTNEED) == 0) released += resident * page;
        }
        first = last + 1;
    }
    return released;
}

KvPool::~KvPool() { munmap(data_, bytes()); }

}  // namespace edgeseek

// Blocks that are given back read as zeros, their neighbours keep every byte, and bad ids change nothing.
#include "edgeseek/kv_pool.h"

#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "check.h"

using edgeseek::KvPool;
using edgeseek::KvShape;
using edgeseek::KvType;

namespace {

/// 10 layers x 2 planes x 3 heads x 32 tokens x 7 dimensions x 2 bytes: no multiple of a page.
constexpr KvShape kShape{10, 3, 7, KvType::f16, false};

uint8_t* start_of(KvPool& pool, int block) { return reinterpret_cast<uint8_t*>(pool.k(block, 0, 0)); }

void fill(KvPool& pool) {
    for (int block = 0; block < pool.blocks(); ++block) {
        std::memset(start_of(pool, block), block + 1, pool.shape().block_bytes());
    }
}

bool holds(KvPool& pool, int block) {
    const uint8_t* bytes = start_of(pool, block);
    for (size_t i = 0; i < pool.shape().block_bytes(); ++i) {
        if (bytes[i] != block + 1) return false;
    }
    return true;
}

}  // namespace

TEST(neighbours_of_released_blocks_keep_every_byte) {
    KvPool pool(kShape, 9);
    fill(pool);
    const std::vector<int32_t> blocks{7, 2, 3, 8};
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t given = pool.release(blocks.data(), blocks.size());
    // Two stretches of two blocks; the last one reaches the end of the mapping.
    CHECK(given % page == 0);
    CHECK(given >= 4 * kShape.block_bytes() - 4 * page);
    CHECK(given <= 4 * kShape.block_bytes() + page);
    // Before anything is read, which would bring zero pages in.
    CHECK(pool.release(blocks.data(), blocks.size()) == 0);
    for (const int block : {0, 1, 4, 5, 6}) CHECK(holds(pool, block));
    CHECK(start_of(pool, 2)[kShape.block_bytes()] == 0);
    CHECK(start_of(pool, 8)[kShape.block_bytes() - 1] == 0);
    fill(pool);
    for (int block = 0; block < pool.blocks(); ++block) CHECK(holds(pool, block));
}

TEST(a_block_that_there_is_not_releases_nothing) {
    KvPool pool(kShape, 4);
    fill(pool);
    for (const int32_t bad : {-1, 4}) {
        const std::vector<int32_t> blocks{1, 2, bad};
        CHECK_THROWS(std::invalid_argument, pool.release(blocks.data(), blocks.size()));
    }
    for (int block = 0; block < pool.blocks(); ++block) CHECK(holds(pool, block));
    CHECK(pool.release(nullptr, 0) == 0);
}

int main(int argc, char** argv) { return check::run(argc, argv); }

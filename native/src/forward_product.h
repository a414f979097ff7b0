// Products of packed matrices inside a pass, shared by the files that make up the pass.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "forward.h"

namespace edgeseek {

// A worker takes about this many bytes of weights at a time: enough to stream, little enough to share evenly.
constexpr size_t kClaimBytes = 24 << 10;
// What is fetched of the next phase's weights before a barrier; it arrives while workers wait and norms run.
constexpr size_t kFetchBytes = 16 << 10;

inline int64_t tiles_per_claim(const Matrix& w, int rows) {
    return rows > 16 ? 1 : static_cast<int64_t>(std::max<size_t>(1, kClaimBytes / w.tile_bytes()));
}

/// Adds a tile's bias to all rows of `out` [rows][16].
inline void add_bias(const Linear& linear, size_t tile, size_t rows, float* out) {
    if (linear.bias == nullptr) return;
    const size_t first = tile * kTile, some = std::min<size_t>(kTile, linear.weight.rows - first);
    for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < some; ++i) out[r * kTile + i] += linear.bias[first + i];
    }
}

inline void copy_tile(const Linear& linear, size_t tile, size_t rows, const float* out, float* target,
                      size_t ld) {
    const size_t first = tile * kTile, some = std::min<size_t>(kTile, linear.weight.rows - first);
    for (size_t r = 0; r < rows; ++r)
        std::memcpy(target + r * ld + first, out + r * kTile, some * sizeof(float));
}

inline void add_tile(const Linear& linear, size_t tile, size_t rows, const float* out, float* target,
                     size_t ld) {
    const size_t first = tile * kTile, some = std::min<size_t>(kTile, linear.weight.rows - first);
    for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < some; ++i) target[r * ld + first + i] += out[r * kTile + i];
    }
}

template <class Epilogue>
void Runner::Pass::product(Worker& worker, const Product& work, const Activations& a, int rows,
                           const Epilogue& epilogue) {
    TaskCounter& counter = next_counter(worker);
    Scratch& own = *b_.scratch[static_cast<size_t>(worker.id())];
    int64_t tiles = 0;
    for (const Linear* linear : work.linears) {
        if (linear != nullptr) tiles += static_cast<int64_t>(linear->weight.tiles());
    }
    const auto row_count = static_cast<size_t>(rows);
    const auto chunks = static_cast<int64_t>((row_count + kRowChunk - 1) / kRowChunk);
    const int64_t tasks = tiles * chunks, claim = tiles_per_claim(work.linears[0]->weight, rows);
    // Which of the matrices task number `task` belongs to, and its tile there.
    const auto locate = [&](int64_t task) {
        auto tile = static_cast<size_t>(task % tiles);
        size_t which = 0;
        while (tile >= work.linears[which]->weight.tiles()) tile -= work.linears[which++]->weight.tiles();
        return std::pair{which, tile};
    };
    // A worker's first claim is fixed, so that it could be fetched before the phase began; the one that
    // follows is made early, so that it is fetched while the end of this one is used.
    for (int64_t begin = worker.id() * claim; begin < tasks;) {
        const int64_t end = std::min(begin + claim, tasks);
        const int64_t following = counter.claim(claim) + worker.count() * claim;
        for (int64_t task = begin; task < end; ++task) {
            const auto [which, tile] = locate(task);
            const size_t first = static_cast<size_t>(task / tiles) * kRowChunk;
            const size_t some = std::min(kRowChunk, row_count - first);
            const uint8_t* next = nullptr;
            if (const int64_t later = task + 1 < end ? task + 1 : following; later < tasks) {
                const auto [next_which, next_tile] = locate(later);
                const Linear& upto = work.companion != nullptr ? *work.companion : *work.linears[next_which];
                next = upto.weight.tile(next_tile);
            }
            const Activations chunk = a.from_row(first);
            if (work.companion != nullptr) {
                const Matrix& other = work.companion->weight;
                multiply(other, tile, chunk, some, own.tile_b.get(), own, work.linears[0]->weight.tile(tile));
            }
            multiply(work.linears[which]->weight, tile, chunk, some, own.tile_a.get(), own, next);
            epilogue(which, tile, first, some, own.tile_a.get());
        }
        begin = following;
    }
    if (work.upcoming != nullptr) fetch_first(worker, *work.upcoming, rows);
    worker.barrier();
}

}  // namespace edgeseek

#include "edgeseek/roofline.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "../kernels/table.h"

namespace edgeseek {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Reads every byte of [begin, end) in steps of 64, `offset` bytes behind each boundary.
uint64_t read_all(const char* begin, const char* end, size_t offset) {
    uint64_t lanes[8] = {};
    for (const char* p = begin + offset; p + 64 <= end; p += 64) {
        uint64_t line[8];
        std::memcpy(line, p, 64);
        for (int i = 0; i < 8; ++i) lanes[i] |= line[i];
    }
    uint64_t all = 0;
    for (uint64_t lane : lanes) all |= lane;
    return all;
}

constexpr size_t kMinBytes = size_t{1} << 20, kMaxBytes = size_t{1} << 36;

}  // namespace

SweepMemory::SweepMemory(size_t bytes) : bytes_(bytes) {
    if (bytes < kMinBytes || bytes > kMaxBytes) {
        throw std::invalid_argument("a sweep takes 1 MiB to 64 GiB, not " + std::to_string(bytes) + " bytes");
    }
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(memory);
    madvise(memory, bytes_, MADV_HUGEPAGE);
    std::memset(memory, 1, bytes_);
}

SweepMemory::~SweepMemory() { munmap(data_, bytes_); }

double SweepMemory::sweep(ThreadPool& threads, size_t offset) const {
    if (offset > 63) throw std::invalid_argument("the offset must be 0 to 63");
    std::atomic<uint64_t> sink{0};
    const size_t lines = bytes_ / 64, share = lines / static_cast<size_t>(threads.size());
    const auto begin = Clock::now();
    threads.run([&](Worker& worker) {
        const char* part = data_ + static_cast<size_t>(worker.id()) * share * 64;
        sink.fetch_or(read_all(part, part + share * 64, offset), std::memory_order_relaxed);
    });
    const double seconds = seconds_since(begin);
    if (sink.load() == 0) throw std::runtime_error("the sweep did not read what was written");
    return static_cast<double>(share * 64) * threads.size() / seconds;
}

double int8_peak(ThreadPool& threads, const Kernels& kernels, double seconds) {
    if (!(seconds >= 0.001 && seconds <= 60)) {
        throw std::invalid_argument("the peak is measured for 0.001 to 60 seconds");
    }
    std::atomic<uint64_t> total{0};
    const auto begin = Clock::now();
    threads.run([&](Worker&) {
        alignas(64) float sink[16];
        uint64_t done = 0;
        while (seconds_since(begin) < seconds) done += kernels.int8_chain(4096, sink);
        total.fetch_add(done, std::memory_order_relaxed);
    });
    return static_cast<double>(total.load()) / seconds_since(begin);
}

}  // namespace edgeseek

// What this machine could do at most: the figures that speeds are compared with.
#pragma once

#include <cstddef>

#include "edgeseek/thread_pool.h"

namespace edgeseek {

struct Kernels;

/// Memory that sweeps read: allocated and written once, with huge pages where the system has them.
class SweepMemory {
  public:
    /// Throws std::invalid_argument unless 1 MiB <= bytes <= 64 GiB, std::bad_alloc when the system refuses.
    explicit SweepMemory(size_t bytes);
    ~SweepMemory();
    SweepMemory(const SweepMemory&) = delete;
    SweepMemory& operator=(const SweepMemory&) = delete;

    size_t bytes() const { return bytes_; }
    /// Bytes per second of one read-only sweep by all threads, each over its own part, every load `offset`
    /// bytes (0 to 63) after a 64-byte boundary. Throws std::invalid_argument for another offset.
    double sweep(ThreadPool& threads, size_t offset) const;

  private:
    size_t bytes_;
    char* data_ = nullptr;
};

/// Multiply-accumulates per second of independent chains of int8 dot products on all threads together,
/// measured for about `seconds` (0.001 to 60, else std::invalid_argument).
double int8_peak(ThreadPool& threads, const Kernels& kernels, double seconds);

}  // namespace edgeseek

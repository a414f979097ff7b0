// What the kernel tests share: the tables to test, reproducible random numbers, memory that ends at a
// forbidden page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "edgeseek/isa.h"
#include "table.h"

namespace kernel_testing {

using edgeseek::Kernels;

/// Every table but the scalar one that can run here. EDGESEEK_TEST_EVERY_X86_TABLE is for builds
/// that are emulated and so need not ask the processor.
inline std::vector<const Kernels*> vector_tables() {
    std::vector<const Kernels*> found;
#if defined(EDGESEEK_TEST_EVERY_X86_TABLE)
    found = {edgeseek::avx512_kernels(), edgeseek::avxvnni_kernels()};
#else
    for (const std::string& name : edgeseek::supported_isas()) {
        if (name != "scalar") found.push_back(&edgeseek::kernels_named(name));
    }
#endif
    return found;
}

/// The same, after the scalar table.
inline std::vector<const Kernels*> all_tables() {
    std::vector<const Kernels*> found = vector_tables();
    found.insert(found.begin(), edgeseek::scalar_kernels());
    return found;
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same numbers on every machine.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t bits() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    uint8_t byte() { return static_cast<uint8_t>(bits() >> 56); }
    size_t below(size_t n) { return static_cast<size_t>(bits() % n); }
    /// Uniform in [low, high).
    float uniform(float low, float high) {
        return low + (high - low) * (static_cast<float>(bits() >> 40) * 0x1p-24f);
    }

  private:
    uint64_t state_;
};

/// `count` zeroed elements whose end is followed by a page that may not be touched: a read or write beyond it
/// ends the test. The start is only as aligned as the size makes it.
template <class T>
class Guarded {
  public:
    explicit Guarded(size_t count) : count_(count) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t whole = (count * sizeof(T) + page - 1) / page * page;
        length_ = whole + page;
        void* mapped = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) throw std::runtime_error("mmap failed");
        base_ = static_cast<uint8_t*>(mapped);
        if (mprotect(base_ + whole, page, PROT_NONE) != 0) throw std::runtime_error("mprotect failed");
        data_ = reinterpret_cast<T*>(base_ + whole - count * sizeof(T));
    }
    ~Guarded() {
        if (base_ != nullptr) munmap(base_, length_);
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    Guarded(Guarded&& other) noexcept
        : count_(other.count_), length_(other.length_), base_(other.base_), data_(other.data_) {
        other.base_ = nullptr;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + count_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + count_; }

  private:
    size_t count_, length_;
    uint8_t* base_;
    T* data_;
};

inline Guarded<float> random_floats(Random& random, size_t count, float low = -2.0f, float high = 2.0f) {
    Guarded<float> x(count);
    for (float& v : x) v = random.uniform(low, high);
    return x;
}

inline bool same_bits(const Guarded<float>& a, const Guarded<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace kernel_testing

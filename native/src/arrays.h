// The arrays that work buffers are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "../kernels/table.h"

namespace edgeseek {

constexpr size_t kRowChunk = 128;  // rows of a batch that share one unpacking of a weight tile

inline size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// A zeroed, 64-byte aligned array of fixed size.
template <class T>
class Array {
  public:
    explicit Array(size_t count) : count_(count) {
        const size_t bytes = round_up(count * sizeof(T) + 64, 64);
        data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
        if (!data_) throw std::bad_alloc();
        std::memset(static_cast<void*>(data_.get()), 0, bytes);
    }
    T* get() const { return data_.get(); }
    T* row(size_t i, size_t width) const { return data_.get() + i * width; }
    size_t bytes() const { return count_ * sizeof(T); }

  private:
    struct Free {
        void operator()(T* p) const { std::free(p); }
    };
    size_t count_;
    std::unique_ptr<T, Free> data_;
};

/// Storage of quantized activations for `rows` rows of up to `width` columns (a multiple of 32).
class QuantizedRows {
  public:
    QuantizedRows(size_t rows, size_t width)
        : groups_(width / 32), q_(rows * width), scales_(rows * groups_ * 6) {
        d_ = scales_.get();
        sum_ = d_ + rows * groups_;
        sum8_ = sum_ + rows * groups_;
        sum16_ = sum8_ + rows * groups_;
        half32_ = sum16_ + rows * groups_;
    }
    QuantizedRow row(size_t i) const {
        const size_t g = i * groups_;
        return {q_.get() + g * 32, d_ + g, sum_ + g, sum8_ + g, sum16_ + g, half32_ + 2 * g};
    }
    /// A view for kernels; `x` are the unquantized rows, ldx apart.
    Activations view(const float* x, size_t ldx) const {
        Activations a;
        a.q = q_.get();
        a.d = d_;
        a.sum = sum_;
        a.sum8 = sum8_;
        a.sum16 = sum16_;
        a.half32 = half32_;
        a.x = x;
        a.ldq = groups_ * 32;
        a.ldg = groups_;
        a.ldx = ldx;
        return a;
    }
    size_t bytes() const { return q_.bytes() + scales_.bytes(); }

  private:
    size_t groups_;
    Array<int8_t> q_;
    Array<float> scales_;
    float *d_, *sum_, *sum8_, *sum16_, *half32_;
};

}  // namespace edgeseek

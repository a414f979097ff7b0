// The multiply-accumulates that the matrix kernels could do if nothing but arithmetic took time: independent
// chains of this instruction set's integer dot products on four-bit codes from the first-level cache, widened
// and converted to float once for each group of 32 columns, as the weight formats demand.
// Included inside an anonymous namespace after gemm.h.

constexpr int kPeakRows = kRowBlock < 4 ? kRowBlock : 4;

/// Does `groups` groups of kPeakRows rows x 16 channels x 32 columns; returns the multiply-accumulates.
uint64_t int8_chain(size_t groups, float* sink) {
    alignas(64) uint8_t weights[512];
    alignas(64) int8_t rows[kPeakRows * 32];
    for (int i = 0; i < 512; ++i) weights[i] = static_cast<uint8_t>(i % 16);
    for (int i = 0; i < kPeakRows * 32; ++i) rows[i] = static_cast<int8_t>(i % 13);
    F16 acc[kPeakRows];
    for (int m = 0; m < kPeakRows; ++m) acc[m] = f_zero();
    for (size_t g = 0; g < groups; ++g) {
        Dot<Codes::u4> dot[kPeakRows];
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) {
            const C64 w = c_load(weights + 64 * c);
#pragma GCC unroll 4
            for (int m = 0; m < kPeakRows; ++m) dot[m].step(c, w, rows + 32 * m + 4 * c);
        }
        for (int m = 0; m < kPeakRows; ++m) acc[m] = f_add(acc[m], dot[m].finish());
        // The compiler must not see that every round is the same.
        asm volatile("" : : "r"(weights), "r"(rows) : "memory");
    }
    for (int m = 1; m < kPeakRows; ++m) acc[0] = f_add(acc[0], acc[m]);
    f_store(sink, acc[0]);
    return static_cast<uint64_t>(groups) * kPeakRows * 16 * 32;
}

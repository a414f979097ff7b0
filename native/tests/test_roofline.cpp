// The figures that speeds are compared with: bounds are checked, and what is measured is positive.
#include "../kernels/table.h"
#include "check.h"
#include "edgeseek/isa.h"
#include "edgeseek/roofline.h"

using namespace edgeseek;

TEST(sweep_reads_at_every_offset) {
    ThreadPool threads(2);
    const SweepMemory memory(4 << 20);
    for (size_t offset : {size_t{0}, size_t{1}, size_t{63}}) CHECK(memory.sweep(threads, offset) > 0);
    CHECK_THROWS(std::invalid_argument, memory.sweep(threads, 64));
}

TEST(sweep_memory_has_bounds) {
    CHECK_THROWS(std::invalid_argument, SweepMemory(1000));
    CHECK_THROWS(std::invalid_argument, SweepMemory(size_t{1} << 40));
}

TEST(chain_counts_its_multiply_accumulates_on_every_set) {
    for (const std::string& name : supported_isas()) {
        float sink[16];
        const uint64_t one = kernels_named(name).int8_chain(1, sink);
        CHECK(one % (16 * 32) == 0 && one > 0);
        CHECK(kernels_named(name).int8_chain(10, sink) == 10 * one);
        // Every row must have been computed: rows of i mod 13 times codes of i mod 16, 10 times over.
        const int rows = static_cast<int>(one / (16 * 32));
        for (int channel = 0; channel < 16; ++channel) {
            int expected = 0;
            for (int k = 0; k < 32; ++k) {
                const int code = (64 * (k / 4) + 4 * channel + k % 4) % 16;
                for (int m = 0; m < rows; ++m) expected += code * ((32 * m + k) % 13);
            }
            CHECK_EQ(sink[channel], 10.0f * static_cast<float>(expected));
        }
    }
}

TEST(peak_is_positive_and_its_time_has_bounds) {
    ThreadPool threads(2);
    CHECK(int8_peak(threads, best_kernels(), 0.01) > 0);
    CHECK_THROWS(std::invalid_argument, int8_peak(threads, best_kernels(), 0));
    CHECK_THROWS(std::invalid_argument, int8_peak(threads, best_kernels(), 1e9));
}

int main(int argc, char** argv) { return check::run(argc, argv); }

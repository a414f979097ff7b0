// Products of packed weights: against FORMAT.md in double precision, and bit for bit between instruction
// sets.
#include "check.h"
#include "gemm_testing.h"

using namespace kernel_testing;

namespace {

constexpr size_t kRowCounts[] = {1, 2, 3, 4, 5, 7, 8, 17, 64};
constexpr size_t kMostRows = 64;

std::string label(const Kernels& kernels, const Tile& tile, size_t rows) {
    return std::string(kernels.name) + " " + edgeseek::info(tile.scheme).name + " columns " +
           std::to_string(tile.columns) + " rows " + std::to_string(rows);
}

/// Checks `out` against sums in double, to 1e-5 of the sum of magnitudes.
void check_products(const Tile& tile, const Rows& rows, const std::vector<float>& out,
                    const std::string& what) {
    const TileReader reader(tile);
    std::vector<double> weights(16 * tile.columns);
    for (size_t c = 0; c < 16; ++c) {
        for (size_t k = 0; k < tile.columns; ++k) weights[c * tile.columns + k] = reader.value(c, k);
    }
    size_t wrong = 0;
    for (size_t r = 0; r < rows.rows(); ++r) {
        for (size_t c = 0; c < 16; ++c) {
            double sum = 0, magnitude = 0;
            for (size_t k = 0; k < tile.columns; ++k) {
                const double product = weights[c * tile.columns + k] * rows.value(tile.scheme, r, k);
                sum += product;
                magnitude += std::abs(product);
            }
            const double error = std::abs(static_cast<double>(out[16 * r + c]) - sum);
            if (!(error <= 1e-5 * magnitude + 1e-30)) ++wrong;
        }
    }
    CHECK_EQ(what + ": " + std::to_string(wrong) + " wrong", what + ": 0 wrong");
}

void check_same(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
    const bool same = a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    CHECK_EQ(what + (same ? ": same bits" : ": different bits"), what + ": same bits");
}

}  // namespace

TEST(products_equal_the_format_in_double_precision) {
    Random random(1);
    for (const Scheme scheme : all_schemes()) {
        for (const size_t columns : column_counts(scheme)) {
            const Tile tile = random_tile(random, scheme, columns);
            const Guarded<float> x = random_floats(random, 5 * columns);
            const Rows rows(*edgeseek::scalar_kernels(), x, 5, columns);
            for (const Kernels* kernels : all_tables()) {
                check_products(tile, rows, multiply(*kernels, tile, rows), label(*kernels, tile, 5));
            }
        }
    }
}

TEST(every_instruction_set_gives_the_bits_of_the_scalar_reference) {
    Random random(2);
    for (const Scheme scheme : all_schemes()) {
        for (const size_t columns : column_counts(scheme)) {
            const Tile tile = random_tile(random, scheme, columns);
            const Guarded<float> x = random_floats(random, kMostRows * columns);
            const Rows rows(*edgeseek::scalar_kernels(), x, kMostRows, columns);
            const std::vector<float> expected = multiply(*edgeseek::scalar_kernels(), tile, rows);
            for (const Kernels* kernels : vector_tables()) {
                check_same(multiply(*kernels, tile, rows), expected, label(*kernels, tile, kMostRows));
            }
        }
    }
}

TEST(a_row_does_not_depend_on_how_many_rows_there_are) {
    Random random(3);
    for (const Scheme scheme : all_schemes()) {
        const size_t columns = column_counts(scheme).back();
        const Tile tile = random_tile(random, scheme, columns);
        const Guarded<float> x = random_floats(random, kMostRows * columns);
        const Rows rows(*edgeseek::scalar_kernels(), x, kMostRows, columns);
        for (const Kernels* kernels : all_tables()) {
            std::vector<float> alone;
            for (size_t r = 0; r < kMostRows; ++r) {
                const std::vector<float> one = multiply(*kernels, tile, rows, r, 1);
                alone.insert(alone.end(), one.begin(), one.end());
            }
            for (const size_t count : kRowCounts) {
                const std::vector<float> first(alone.begin(),
                                               alone.begin() + static_cast<std::ptrdiff_t>(16 * count));
                check_same(multiply(*kernels, tile, rows, 0, count), first, label(*kernels, tile, count));
            }
        }
    }
}

TEST(extreme_codes_and_activations_do_not_overflow) {
    for (const Scheme scheme : all_schemes()) {
        if (!edgeseek::is_integer(scheme)) continue;
        const size_t columns = column_counts(scheme).back();
        const Tile tile = extreme_tile(scheme, columns);
        // Rows of all +127, all -127, and alternating, quantized with d = 1.
        constexpr size_t count = 9;
        Guarded<float> x(count * columns);
        for (size_t i = 0; i < x.size(); ++i) {
            const size_t r = i / columns;
            x[i] = r % 3 == 0 || (r % 3 == 2 && i % 2 == 0) ? 127.0f : -127.0f;
        }
        const Rows rows(*edgeseek::scalar_kernels(), x, count, columns);
        for (const Kernels* kernels : all_tables()) {
            const std::vector<float> out = multiply(*kernels, tile, rows);
            check_same(out, multiply(*edgeseek::scalar_kernels(), tile, rows), label(*kernels, tile, count));
            check_products(tile, rows, out, label(*kernels, tile, count));
        }
    }
}

TEST(zero_scales_give_zero) {
    for (const Scheme scheme : all_schemes()) {
        const size_t columns = column_counts(scheme).back();
        const Tile tile = empty_tile(scheme, columns);
        Random random(4);
        const Guarded<float> x = random_floats(random, 3 * columns);
        const Rows rows(*edgeseek::scalar_kernels(), x, 3, columns);
        for (const Kernels* kernels : all_tables()) {
            size_t nonzero = 0;
            for (const float v : multiply(*kernels, tile, rows)) nonzero += v != 0.0f ? 1 : 0;
            CHECK_EQ(nonzero, 0);
        }
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// Element-wise kernels, quantization of activations and the cache's halves: against double precision, and bit
// for bit between instruction sets.
#include <algorithm>

#include "check.h"
#include "edgeseek/exact_math.h"
#include "kernel_testing.h"

using namespace kernel_testing;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kLengths[] = {1, 5, 15, 16, 17, 31, 32, 33, 576, 1000};

/// Any NaN becomes the same one: which of two a machine keeps is its own affair.
template <class T>
std::vector<T> canonical(const Guarded<T>& values) {
    std::vector<T> out(values.begin(), values.end());
    if constexpr (std::is_floating_point_v<T>) {
        for (T& v : out) v = std::isnan(v) ? std::numeric_limits<T>::quiet_NaN() : v;
    }
    return out;
}

template <class T>
void check_same(const Guarded<T>& a, const Guarded<T>& b, const char* name) {
    const std::vector<T> x = canonical(a), y = canonical(b);
    const bool same = std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    CHECK_EQ(std::string(name) + (same ? ": same bits" : ": different bits"),
             std::string(name) + ": same bits");
    if (!same) CHECK_SAME_BITS(x.data(), y.data(), x.size());
}

struct Quantized {
    Guarded<int8_t> q;
    Guarded<float> d, sum, sum8, sum16, half32;
};

Quantized quantize(const Kernels& kernels, const Guarded<float>& x) {
    const size_t n = x.size(), g = n / 32;
    Quantized out{Guarded<int8_t>(n), Guarded<float>(g), Guarded<float>(g),
                  Guarded<float>(g),  Guarded<float>(g), Guarded<float>(2 * g)};
    kernels.quantize(
        x.data(), n,
        {out.q.data(), out.d.data(), out.sum.data(), out.sum8.data(), out.sum16.data(), out.half32.data()});
    return out;
}

void check_same_quantized(const Guarded<float>& x) {
    const Quantized expected = quantize(*edgeseek::scalar_kernels(), x);
    for (const Kernels* kernels : vector_tables()) {
        const Quantized got = quantize(*kernels, x);
        check_same(got.q, expected.q, kernels->name);
        check_same(got.d, expected.d, kernels->name);
        check_same(got.sum, expected.sum, kernels->name);
        check_same(got.sum8, expected.sum8, kernels->name);
        check_same(got.sum16, expected.sum16, kernels->name);
        check_same(got.half32, expected.half32, kernels->name);
    }
}

/// Groups of 32 that stress one thing each.
Guarded<float> awkward_groups() {
    Random random(11);
    const float specials[][2] = {{0.0f, -0.0f},
                                 {1e-40f, -3e-42f},
                                 {1e-30f, 5e-31f},
                                 {1.0001e-30f, 1e-31f},
                                 {3e38f, -3.4028234e38f},
                                 {127.0f, 63.5f},
                                 {2.5f, 0.5f * 2.5f / 127.0f},
                                 {1.0f, -1.0f},
                                 {0.0f, 1e-45f}};
    constexpr size_t count = sizeof(specials) / sizeof(specials[0]);
    Guarded<float> x(32 * (count + 4));
    for (size_t g = 0; g < count; ++g) {
        for (size_t i = 0; i < 32; ++i) x[32 * g + i] = specials[g][random.below(2)];
        x[32 * g + random.below(32)] = specials[g][0];
    }
    // Exactly half way between integers: scale 1 because the largest is 127.
    for (size_t i = 0; i < 32; ++i) x[32 * count + i] = static_cast<float>(i) - 15.5f;
    x[32 * count] = 127.0f;
    for (size_t i = 32 * (count + 1); i < x.size(); ++i) x[i] = random.uniform(-9.0f, 9.0f);
    return x;
}

/// binary16 nearest to x, ties to even, saturated: by scaling to integers in double.
double nearest_half(double x) {
    const double magnitude = std::min(std::abs(x), 65504.0);
    if (magnitude == 0.0) return x;
    const int exponent = std::max(std::ilogb(magnitude), -14);
    const double quantum = std::ldexp(1.0, exponent - 10);
    return std::copysign(std::min(std::nearbyint(magnitude / quantum) * quantum, 65504.0), x);
}

}  // namespace

TEST(quantized_rows_are_within_half_a_step_and_carry_their_sums) {
    Random random(10);
    const Guarded<float> x = random_floats(random, 32 * 64, -3.0f, 3.0f);
    for (const Kernels* kernels : all_tables()) {
        const Quantized out = quantize(*kernels, x);
        for (size_t g = 0; g < x.size() / 32; ++g) {
            float largest = 0.0f;
            int halves[2] = {0, 0};
            for (size_t i = 0; i < 32; ++i) {
                const size_t at = 32 * g + i;
                largest = std::max(largest, std::abs(x[at]));
                halves[i / 16] += out.q[at];
                CHECK(std::abs(out.q[at] * out.d[g] - x[at]) <= 0.5001f * out.d[g]);
            }
            CHECK_EQ(out.d[g], largest / 127.0f);
            const float sum = out.d[g] * static_cast<float>(halves[0] + halves[1]);
            CHECK_EQ(out.sum[g], sum);
            CHECK_EQ(out.sum8[g], 8.0f * sum);
            CHECK_EQ(out.sum16[g], 16.0f * sum);
            CHECK_EQ(out.half32[2 * g], 32.0f * (out.d[g] * static_cast<float>(halves[0])));
            CHECK_EQ(out.half32[2 * g + 1], 32.0f * (out.d[g] * static_cast<float>(halves[1])));
        }
    }
}

TEST(quantization_rounds_ties_to_even) {
    Guarded<float> x(32);
    x[0] = 127.0f;
    x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -1.5f, x[6] = -126.5f;
    const int expected[] = {127, 0, 2, 2, 0, -2, -126};
    for (const Kernels* kernels : all_tables()) {
        const Quantized out = quantize(*kernels, x);
        for (size_t i = 0; i < 7; ++i) CHECK_EQ(out.q[i], expected[i]);
    }
}

TEST(quantization_gives_the_same_bits_everywhere) {
    check_same_quantized(awkward_groups());
    Random random(12);
    Guarded<float> wide(32 * 256);
    for (float& v : wide) {
        v = random.uniform(-1.0f, 1.0f) * std::ldexp(1.0f, static_cast<int>(random.below(200)) - 100);
    }
    check_same_quantized(wide);
}

TEST(zeros_quantize_to_zeros) {
    for (const Kernels* kernels : all_tables()) {
        const Quantized out = quantize(*kernels, Guarded<float>(64));
        for (const int8_t q : out.q) CHECK_EQ(q, 0);
        for (const float v : out.d) CHECK_EQ(v, 0.0f);
        for (const float v : out.sum16) CHECK_EQ(v, 0.0f);
        for (const float v : out.half32) CHECK_EQ(v, 0.0f);
    }
}

TEST(groups_up_to_1e_30_quantize_to_zeros) {
    for (const Kernels* kernels : all_tables()) {
        Guarded<float> x(64);
        x[5] = 1e-30f;
        x[32 + 5] = std::nextafter(1e-30f, 1.0f);
        const Quantized out = quantize(*kernels, x);
        CHECK_EQ(out.q[5], 0);
        CHECK_EQ(out.sum[0], 0.0f);
        CHECK_EQ(out.q[32 + 5], 127);
    }
}

TEST(not_finite_activations_quantize_alike_and_stay_in_range) {
    Random random(13);
    Guarded<float> x = random_floats(random, 32 * 40);
    for (size_t g = 0; g < 32; ++g) x[33 * g] = g % 3 == 0 ? kNan : g % 3 == 1 ? kInfinity : -kInfinity;
    for (size_t i = 32 * 36; i < 32 * 37; ++i) x[i] = kNan;
    check_same_quantized(x);
    for (const Kernels* kernels : all_tables()) {
        for (const int8_t q : quantize(*kernels, x).q) CHECK(q >= -127);
    }
}

TEST(rms_norm_equals_its_formula_at_every_length) {
    Random random(14);
    for (const size_t n : kLengths) {
        const Guarded<float> x = random_floats(random, n), weight = random_floats(random, n);
        Guarded<float> expected(n);
        edgeseek::scalar_kernels()->rms_norm(x.data(), weight.data(), n, 1e-5f, expected.data());
        for (const Kernels* kernels : all_tables()) {
            Guarded<float> out(n);
            kernels->rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
            check_same(out, expected, kernels->name);
            double squares = 0;
            for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
            const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
            for (size_t i = 0; i < n; ++i) CHECK_NEAR(out[i], x[i] * scale * weight[i], 2e-6);
            std::copy(x.begin(), x.end(), out.begin());
            kernels->rms_norm(out.data(), weight.data(), n, 1e-5f, out.data());
            check_same(out, expected, kernels->name);
        }
    }
}

TEST(rms_norm_of_zeros_is_zero) {
    for (const Kernels* kernels : all_tables()) {
        const Guarded<float> x(40);
        Random random(15);
        const Guarded<float> weight = random_floats(random, 40);
        Guarded<float> out(40);
        kernels->rms_norm(x.data(), weight.data(), 40, 1e-6f, out.data());
        for (const float v : out) CHECK_EQ(v, 0.0f);
    }
}

TEST(swiglu_equals_its_formula_at_every_length) {
    Random random(16);
    for (const size_t n : kLengths) {
        Guarded<float> gate = random_floats(random, n, -20.0f, 20.0f);
        const Guarded<float> up = random_floats(random, n);
        const float specials[] = {0.0f, -0.0f, 87.9f, -87.9f, 88.0f, -88.0f, 300.0f, -300.0f, 1e-40f, -87.5f};
        for (size_t i = 0; i < 10 && i < n; ++i) gate[i] = specials[i];
        Guarded<float> expected(n);
        edgeseek::scalar_kernels()->swiglu(gate.data(), up.data(), n, expected.data());
        for (const Kernels* kernels : all_tables()) {
            Guarded<float> out(n);
            kernels->swiglu(gate.data(), up.data(), n, out.data());
            check_same(out, expected, kernels->name);
            for (size_t i = 0; i < n; ++i) {
                const double g = gate[i], y = g / (1.0 + std::exp(-g)) * up[i];
                CHECK_NEAR(out[i], y, 5e-7 * std::abs(y) + 1e-35);
            }
        }
    }
}

TEST(add_adds_at_every_length) {
    Random random(17);
    for (const size_t n : kLengths) {
        const Guarded<float> a = random_floats(random, n), b = random_floats(random, n);
        for (const Kernels* kernels : all_tables()) {
            Guarded<float> x(n);
            std::copy(a.begin(), a.end(), x.begin());
            kernels->add(x.data(), b.data(), n);
            for (size_t i = 0; i < n; ++i) CHECK_EQ(x[i], a[i] + b[i]);
        }
    }
}

TEST(rope_rotates_halves_of_each_head) {
    Random random(18);
    for (const size_t head_dim : {16, 32, 64, 80, 96, 128, 192, 256}) {
        for (const size_t heads : {1, 3}) {
            const size_t half = head_dim / 2;
            const Guarded<float> x = random_floats(random, heads * head_dim);
            Guarded<float> cosine(half), sine(half);
            for (size_t i = 0; i < half; ++i) {
                double s, c;
                edgeseek::exact_sincos(random.uniform(0.0f, 5000.0f), &s, &c);
                cosine[i] = static_cast<float>(c);
                sine[i] = static_cast<float>(s);
            }
            const auto rotated = [&](const Kernels& kernels) {
                Guarded<float> y(x.size());
                std::copy(x.begin(), x.end(), y.begin());
                kernels.rope(y.data(), static_cast<int>(heads), static_cast<int>(head_dim), cosine.data(),
                             sine.data());
                return y;
            };
            const Guarded<float> expected = rotated(*edgeseek::scalar_kernels());
            for (const Kernels* kernels : all_tables()) {
                const Guarded<float> y = rotated(*kernels);
                check_same(y, expected, kernels->name);
                for (size_t h = 0; h < heads; ++h) {
                    for (size_t i = 0; i < half; ++i) {
                        const double a = x[h * head_dim + i], b = x[h * head_dim + half + i];
                        CHECK_NEAR(y[h * head_dim + i], a * cosine[i] - b * sine[i], 1e-6);
                        CHECK_NEAR(y[h * head_dim + half + i], b * cosine[i] + a * sine[i], 1e-6);
                    }
                }
            }
        }
    }
}

TEST(stored_keys_and_values_round_to_the_nearest_half) {
    // Every half, the points half way to the next one, and their neighbours: ties, subnormals, saturation.
    std::vector<float> values;
    for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const float low = edgeseek::half_to_float(static_cast<uint16_t>(bits));
        const float high =
            bits == 0x7bff ? 65536.0f : edgeseek::half_to_float(static_cast<uint16_t>(bits + 1));
        const float middle = 0.5f * (low + high);
        values.insert(values.end(),
                      {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)});
    }
    values.insert(values.end(), {1e-45f, 1e-38f, 65520.0f, 1e5f, 3e38f, kInfinity});
    while (values.size() % 16 != 0) values.push_back(0.0f);
    const size_t count = values.size();

    for (const float sign : {1.0f, -1.0f}) {
        Guarded<float> x(count);
        for (size_t i = 0; i < count; ++i) x[i] = sign * values[i];
        for (const Kernels* kernels : all_tables()) {
            Guarded<uint16_t> k(32 * (count - 1) + 1), v(count);
            kernels->store_kv(x.data(), x.data(), static_cast<int>(count), k.data(), v.data());
            size_t wrong = 0;
            for (size_t i = 0; i < count; ++i) {
                const double stored = edgeseek::half_to_float(v[i]);
                wrong += stored != nearest_half(x[i]) || std::signbit(stored) != std::signbit(x[i]) ? 1 : 0;
                wrong += k[32 * i] != v[i] || v[i] != edgeseek::float_to_half(x[i]) ? 1 : 0;
            }
            CHECK_EQ(wrong, 0);
        }
    }
}

TEST(storing_a_key_writes_its_own_column_only) {
    Random random(19);
    const Guarded<float> x = random_floats(random, 64);
    for (const Kernels* kernels : all_tables()) {
        Guarded<uint16_t> k(64 * 32), v(64);
        std::fill(k.begin(), k.end(), uint16_t{0xabcd});
        kernels->store_kv(x.data(), x.data(), 64, k.data() + 5, v.data());
        for (size_t i = 0; i < k.size(); ++i) {
            CHECK_EQ(k[i], i % 32 == 5 ? edgeseek::float_to_half(x[i / 32]) : 0xabcd);
        }
    }
}

TEST(a_nan_stays_a_nan_in_the_cache) {
    Guarded<float> x(16);
    x[3] = kNan;
    x[9] = -kNan;
    for (const Kernels* kernels : all_tables()) {
        Guarded<uint16_t> k(32 * 15 + 1), v(16);
        kernels->store_kv(x.data(), x.data(), 16, k.data(), v.data());
        for (size_t i = 0; i < 16; ++i) CHECK_EQ((v[i] & 0x7fff) > 0x7c00, std::isnan(x[i]));
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

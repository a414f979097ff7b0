// The core's own transcendental functions and half conversions, against libm and against every half there is.
#include "check.h"
#include "edgeseek/exact_math.h"
#include "kernel_testing.h"

using edgeseek::exact_exp;
using edgeseek::exact_log;
using edgeseek::exact_sincos;
using edgeseek::float_to_half;
using edgeseek::half_to_float;

TEST(exp_is_within_its_stated_error) {
    double worst = 0;
    for (int i = -874000; i <= 880000; ++i) {
        const float x = static_cast<float>(i) * 1e-4f;
        const double exact = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::abs(static_cast<double>(exact_exp(x)) - exact) / exact);
    }
    CHECK(worst < 1.5e-7);
}

TEST(exp_is_exact_at_zero_and_bounded_at_its_ends) {
    CHECK_EQ(exact_exp(0.0f), 1.0f);
    CHECK_EQ(exact_exp(-0.0f), 1.0f);
    CHECK_EQ(exact_exp(-88.0f), 0.0f);
    CHECK_EQ(exact_exp(-1e30f), 0.0f);
    CHECK_EQ(exact_exp(-std::numeric_limits<float>::infinity()), 0.0f);
    CHECK_EQ(exact_exp(std::numeric_limits<float>::quiet_NaN()), 0.0f);
    CHECK_EQ(exact_exp(std::numeric_limits<float>::infinity()), exact_exp(88.0f));
    CHECK_NEAR(exact_exp(1e30f), std::exp(88.0), 1e-6 * std::exp(88.0));
}

TEST(log_is_within_its_stated_error) {
    kernel_testing::Random random(20);
    double worst = 0;
    const auto compare = [&](double x) {
        const long double exact = std::log(static_cast<long double>(x));
        if (exact == 0) return;
        worst = std::max(worst, static_cast<double>(std::abs((exact_log(x) - exact) / exact)));
    };
    for (int i = 0; i < 50000; ++i) {
        compare(1.0 + static_cast<double>(random.uniform(-0.5f, 1.0f)));
        compare(std::ldexp(1.0 + static_cast<double>(random.uniform(0.0f, 1.0f)),
                           static_cast<int>(random.below(2000)) - 1000));
    }
    CHECK(worst < 1e-15);
    CHECK_EQ(exact_log(1.0), 0.0);
}

TEST(sine_and_cosine_are_within_their_stated_error) {
    kernel_testing::Random random(21);
    double worst = 0;
    for (int i = 0; i < 60000; ++i) {
        const double limit = i % 2 == 0 ? 10.0 : 4194304.0;
        const double angle = limit * (static_cast<double>(random.bits() >> 11) * 0x1p-52 - 1.0);
        double s, c;
        exact_sincos(angle, &s, &c);
        worst = std::max(worst, static_cast<double>(std::abs(s - std::sin(static_cast<long double>(angle)))));
        worst = std::max(worst, static_cast<double>(std::abs(c - std::cos(static_cast<long double>(angle)))));
    }
    CHECK(worst < 1e-15);
    double s, c;
    exact_sincos(0.0, &s, &c);
    CHECK_EQ(s, 0.0);
    CHECK_EQ(c, 1.0);
}

TEST(every_half_survives_a_round_trip) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float x = half_to_float(half);
        const int exponent = (half >> 10) & 31, mantissa = half & 1023;
        if (exponent == 31) {
            CHECK(mantissa == 0 ? std::isinf(x) : std::isnan(x));
            CHECK_EQ(float_to_half(x), mantissa == 0 ? (half & 0x8000) | 0x7bff : half | 0x0200);
            continue;
        }
        const double magnitude =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        CHECK_EQ(static_cast<double>(x), (half & 0x8000) != 0 ? -magnitude : magnitude);
        CHECK_EQ(std::signbit(x), (half & 0x8000) != 0);
        CHECK_EQ(float_to_half(x), half);
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// Transcendental functions that give the same bits on every machine: IEEE + - * / and fma only, no libm.
// float exp: |relative error| < 1.5e-7 (range reduction by ln 2, degree-6 polynomial, Cephes constants).
// double sin/cos/log: relative error < 1e-15 on the arguments the engine uses (|angle| < 2^22).
//
// The functions are static: a copy compiled for one instruction set must never be linked into another's code.
#pragma once

#include <cstdint>

namespace edgeseek {

namespace exact {
constexpr float kExpLow = -88.0f;
constexpr float kExpHigh = 88.0f;
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
// exp(r) ~ 1 + r + r^2 (c0 r^4 + c1 r^3 + ... + c5 r^0 ...), highest power first.
constexpr float kExpPoly[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                               4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}  // namespace exact

/// e^x; 0 at and below -88 and for a NaN, finite (about 1.65e38) at and above 88.
static inline float exact_exp(float x) {
    using namespace exact;
    x = x > kExpLow ? x : kExpLow;  // this way round, a NaN becomes kExpLow
    x = x < kExpHigh ? x : kExpHigh;
    const float n = __builtin_nearbyintf(x * kLog2e);
    float r = __builtin_fmaf(-n, kLn2High, x);
    r = __builtin_fmaf(-n, kLn2Low, r);
    float p = kExpPoly[0];
    for (int i = 1; i < 6; ++i) p = __builtin_fmaf(p, r, kExpPoly[i]);
    const float y = __builtin_fmaf(p, r * r, r) + 1.0f;
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, 4);
    return y * scale;
}

/// Natural logarithm of a positive, finite, normal double.
static inline double exact_log(double x) {
    uint64_t bits;
    __builtin_memcpy(&bits, &x, 8);
    int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
    bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
    double m;
    __builtin_memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++exponent;
    }
    // log m = 2 atanh(t), t = (m - 1) / (m + 1), |t| < 0.1716: odd series to t^19.
    const double t = (m - 1.0) / (m + 1.0);
    const double t2 = t * t;
    double p = 1.0 / 21.0;
    for (int k = 19; k >= 3; k -= 2) p = __builtin_fma(p, t2, 1.0 / k);
    const double log_m = 2.0 * __builtin_fma(p * t2, t, t);
    return __builtin_fma(static_cast<double>(exponent), 0.69314718055994530942, log_m);
}

/// sin and cos of `angle` (radians, |angle| < 2^22).
static inline void exact_sincos(double angle, double* sine, double* cosine) {
    const double n = __builtin_nearbyint(angle * 0.63661977236758134308);
    // pi/2 in three parts of at most 33 bits: n * part is exact for |n| < 2^20.
    double r = __builtin_fma(-n, 1.57079632673412561417, angle);
    r = __builtin_fma(-n, 6.07710050630396597660e-11, r);
    r = __builtin_fma(-n, 2.02226624879595063154e-21, r);
    const double z = r * r;
    double s = -7.6471637318198164759e-13;
    s = __builtin_fma(s, z, 1.6059043836821614599e-10);
    s = __builtin_fma(s, z, -2.5052108385441718775e-8);
    s = __builtin_fma(s, z, 2.7557319223985890653e-6);
    s = __builtin_fma(s, z, -1.9841269841269841270e-4);
    s = __builtin_fma(s, z, 8.3333333333333333333e-3);
    s = __builtin_fma(s, z, -1.6666666666666666667e-1);
    s = __builtin_fma(s * z, r, r);
    double c = 4.7794773323873852974e-14;
    c = __builtin_fma(c, z, -1.1470745597729724714e-11);
    c = __builtin_fma(c, z, 2.0876756987868098979e-9);
    c = __builtin_fma(c, z, -2.7557319223985890653e-7);
    c = __builtin_fma(c, z, 2.4801587301587301587e-5);
    c = __builtin_fma(c, z, -1.3888888888888888889e-3);
    c = __builtin_fma(c, z, 4.1666666666666666667e-2);
    c = __builtin_fma(c, z * z, __builtin_fma(-0.5, z, 1.0));
    const long quadrant = static_cast<long>(n) & 3;
    const double sq = (quadrant & 1) ? c : s;
    const double cq = (quadrant & 1) ? s : c;
    *sine = (quadrant & 2) ? -sq : sq;
    *cosine = (quadrant == 1 || quadrant == 2) ? -cq : cq;
}

/// binary16 bits of `x`, round to nearest even, saturating at +-65504 (NaN gives a quiet NaN).
static inline uint16_t float_to_half(float x) {
    x = x > 65504.0f ? 65504.0f : x;
    x = x < -65504.0f ? -65504.0f : x;
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x1ffu));
    if (bits <
        0x38800000u) {  // subnormal half or zero: adding 0.5 aligns the half's last bit with the float's
        float magnitude;
        __builtin_memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        __builtin_memcpy(&bits, &magnitude, 4);
        return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
    }
    bits += 0xfffu + ((bits >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((bits - 0x38000000u) >> 13));
}

/// Value of binary16 bits, exact.
static inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t mantissa = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
        __builtin_memcpy(&bits, &magnitude, 4);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | (mantissa << 13);
    } else {
        bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    }
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

}  // namespace edgeseek

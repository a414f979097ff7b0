// Sixteen float lanes in plain C++: the reference that every other vec16_*.h must equal bit for bit.
// Included inside an anonymous namespace by one kernels_*.cpp per instruction set.

struct F16 {
    float lane[16];
};

inline F16 f_zero() { return F16{}; }
inline F16 f_set1(float x) {
    F16 r;
    for (float& v : r.lane) v = x;
    return r;
}
inline F16 f_load(const float* p) {
    F16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
    return r;
}
inline void f_store(float* p, F16 a) {
    for (int i = 0; i < 16; ++i) p[i] = a.lane[i];
}
inline F16 f_load_half(const uint16_t* p) {
    F16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = half_to_float(p[i]);
    return r;
}
inline void f_store_half(uint16_t* p, F16 a) {
    for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.lane[i]);
}
inline F16 f_add(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
    return a;
}
inline F16 f_sub(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] -= b.lane[i];
    return a;
}
inline F16 f_mul(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
    return a;
}
inline F16 f_div(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] /= b.lane[i];
    return a;
}
inline F16 f_fma(F16 a, F16 b, F16 c) {  // a * b + c, one rounding
    for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
    return a;
}
inline F16 f_fnma(F16 a, F16 b, F16 c) {  // c - a * b, one rounding
    for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]);
    return a;
}
inline F16 f_fms(F16 a, F16 b, F16 c) {  // a * b - c, one rounding
    for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], -c.lane[i]);
    return a;
}
inline F16 f_max(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
inline F16 f_min(F16 a, F16 b) {
    for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
inline F16 f_abs(F16 a) {
    for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_fabsf(a.lane[i]);
    return a;
}
/// Lanes [lo, hi) of `a`, `other` elsewhere.
inline F16 f_keep(F16 a, int lo, int hi, F16 other) {
    for (int i = 0; i < 16; ++i) a.lane[i] = i >= lo && i < hi ? a.lane[i] : other.lane[i];
    return a;
}
inline float f_reduce_add(F16 a) {  // lanes i and i+8, then i+4, i+2, i+1
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) a.lane[i] += a.lane[i + width];
    }
    return a.lane[0];
}
inline float f_reduce_max(F16 a) {  // the same tree, so that even a NaN gives one result
    for (int width = 8; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i)
            a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
    }
    return a.lane[0];
}
inline F16 f_round(F16 a) {  // to nearest even
    for (int i = 0; i < 16; ++i) a.lane[i] = __builtin_nearbyintf(a.lane[i]);
    return a;
}
/// 2^n for lanes holding integers in [-127, 127] (0 at -127).
inline F16 f_pow2(F16 n) {
    F16 r;
    for (int i = 0; i < 16; ++i) {
        const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23;
        __builtin_memcpy(&r.lane[i], &bits, 4);
    }
    return r;
}
/// Rounds to nearest even, stores 16 int8 (lanes within [-127, 127]) and returns their sum.
inline int32_t f_store_int8(int8_t* p, F16 a) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
        p[i] = static_cast<int8_t>(__builtin_nearbyintf(a.lane[i]));
        sum += p[i];
    }
    return sum;
}

struct B16 {
    uint8_t byte[16];
};

inline B16 b_load(const uint8_t* p) {
    B16 r;
    for (int i = 0; i < 16; ++i) r.byte[i] = p[i];
    return r;
}
/// (x >> shift) & mask in each byte; shift 0..7.
inline B16 b_field(B16 x, int shift, int mask) {
    for (uint8_t& v : x.byte) v = static_cast<uint8_t>((v >> shift) & mask);
    return x;
}
/// low | high << 4 in each byte.
inline B16 b_join(B16 low, B16 high) {
    for (int i = 0; i < 16; ++i) low.byte[i] = static_cast<uint8_t>(low.byte[i] | (high.byte[i] << 4));
    return low;
}
inline F16 f_from_u8(B16 x) {
    F16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(x.byte[i]);
    return r;
}
inline F16 f_from_s8(B16 x) {
    F16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(static_cast<int8_t>(x.byte[i]));
    return r;
}

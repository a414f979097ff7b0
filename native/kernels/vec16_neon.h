// Sixteen float lanes as four 128-bit registers. Included inside an anonymous namespace after bytes16_neon.h.

struct F16 {
    float32x4_t a, b, c, d;
};

template <class Op>
ES_INLINE F16 f_each(F16 x, Op op) {
    return {op(x.a), op(x.b), op(x.c), op(x.d)};
}
template <class Op>
ES_INLINE F16 f_each(F16 x, F16 y, Op op) {
    return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}

inline F16 f_set1(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
}
inline F16 f_zero() { return f_set1(0.0f); }
inline F16 f_load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline void f_store(float* p, F16 x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
inline F16 f_load_half(const uint16_t* p) {
    const auto widened = [](const uint16_t* q) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(q))); };
    return {widened(p), widened(p + 4), widened(p + 8), widened(p + 12)};
}
inline F16 f_add(F16 x, F16 y) {
    return f_each(x, y, [](float32x4_t p, float32x4_t q) { return vaddq_f32(p, q); });
}
inline F16 f_sub(F16 x, F16 y) {
    return f_each(x, y, [](float32x4_t p, float32x4_t q) { return vsubq_f32(p, q); });
}
inline F16 f_mul(F16 x, F16 y) {
    return f_each(x, y, [](float32x4_t p, float32x4_t q) { return vmulq_f32(p, q); });
}
inline F16 f_div(F16 x, F16 y) {
    return f_each(x, y, [](float32x4_t p, float32x4_t q) { return vdivq_f32(p, q); });
}
inline F16 f_fma(F16 x, F16 y, F16 z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
            vfmaq_f32(z.d, x.d, y.d)};
}
inline F16 f_fnma(F16 x, F16 y, F16 z) {  // z - x * y, one rounding
    return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
            vfmsq_f32(z.d, x.d, y.d)};
}
inline F16 f_fms(F16 x, F16 y, F16 z) {
    return f_fma(x, y, f_each(z, [](float32x4_t p) { return vnegq_f32(p); }));
}
// Compare and select, not fmax and fmin: an unordered pair gives its second operand, as on x86.
ES_INLINE float32x4_t greater(float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); }
ES_INLINE float32x4_t smaller(float32x4_t p, float32x4_t q) { return vbslq_f32(vcltq_f32(p, q), p, q); }
inline F16 f_max(F16 x, F16 y) { return f_each(x, y, greater); }
inline F16 f_min(F16 x, F16 y) { return f_each(x, y, smaller); }
inline F16 f_abs(F16 x) {
    return f_each(x, [](float32x4_t p) { return vabsq_f32(p); });
}
inline void f_store_half(uint16_t* p, F16 x) {
    // The bound comes first, so that a NaN, as second operand, stays one.
    x = f_max(f_set1(-65504.0f), f_min(f_set1(65504.0f), x));
    const auto store = [](uint16_t* q, float32x4_t v) { vst1_u16(q, vreinterpret_u16_f16(vcvt_f16_f32(v))); };
    store(p, x.a);
    store(p + 4, x.b);
    store(p + 8, x.c);
    store(p + 12, x.d);
}
inline F16 f_keep(F16 x, int lo, int hi, F16 other) {
    static constexpr int32_t kFirst[4] = {0, 1, 2, 3};
    const int32x4_t before = vdupq_n_s32(lo), end = vdupq_n_s32(hi), first = vld1q_s32(kFirst);
    const auto keep = [&](int shift, float32x4_t kept, float32x4_t otherwise) {
        const int32x4_t i = vaddq_s32(first, vdupq_n_s32(shift));
        return vbslq_f32(vandq_u32(vcgeq_s32(i, before), vcltq_s32(i, end)), kept, otherwise);
    };
    return {keep(0, x.a, other.a), keep(4, x.b, other.b), keep(8, x.c, other.c), keep(12, x.d, other.d)};
}
inline float f_reduce_add(F16 x) {
    const float32x4_t s4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
inline float f_reduce_max(F16 x) {
    const float32x4_t m4 = greater(greater(x.a, x.c), greater(x.b, x.d));
    const float32x4_t m2 = greater(m4, vextq_f32(m4, m4, 2));
    return vgetq_lane_f32(greater(m2, vdupq_laneq_f32(m2, 1)), 0);
}
inline F16 f_round(F16 x) {
    return f_each(x, [](float32x4_t p) { return vrndnq_f32(p); });
}
inline F16 f_pow2(F16 n) {
    return f_each(n, [](float32x4_t p) {
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(p), vdupq_n_s32(127)), 23));
    });
}
inline int32_t f_store_int8(int8_t* p, F16 x) {
    const auto words = [](float32x4_t q) { return vqmovn_s32(vcvtnq_s32_f32(q)); };
    const int16x8_t low = vcombine_s16(words(x.a), words(x.b)), high = vcombine_s16(words(x.c), words(x.d));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    return vaddvq_s16(vaddq_s16(low, high));
}
inline F16 f_from_u8(B16 x) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(x.v)), high = vmovl_u8(vget_high_u8(x.v));
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))};
}
inline F16 f_from_s8(B16 x) {
    const int8x16_t bytes = vreinterpretq_s8_u8(x.v);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))};
}

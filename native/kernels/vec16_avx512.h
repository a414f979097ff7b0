// Sixteen float lanes as one 512-bit register (AVX-512 F, DQ, BW, VL). Included inside an anonymous namespace
// after bytes16_sse.h.

struct F16 {
    __m512 v;
};

inline F16 f_zero() { return {_mm512_setzero_ps()}; }
inline F16 f_set1(float x) { return {_mm512_set1_ps(x)}; }
inline F16 f_load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void f_store(float* p, F16 x) { _mm512_storeu_ps(p, x.v); }
inline F16 f_load_half(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F16 f_add(F16 x, F16 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline F16 f_sub(F16 x, F16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline F16 f_mul(F16 x, F16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline F16 f_div(F16 x, F16 y) { return {_mm512_div_ps(x.v, y.v)}; }
inline F16 f_fma(F16 x, F16 y, F16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
inline F16 f_fnma(F16 x, F16 y, F16 z) { return {_mm512_fnmadd_ps(x.v, y.v, z.v)}; }
inline F16 f_fms(F16 x, F16 y, F16 z) { return {_mm512_fmsub_ps(x.v, y.v, z.v)}; }
inline F16 f_max(F16 x, F16 y) { return {_mm512_max_ps(x.v, y.v)}; }
inline F16 f_min(F16 x, F16 y) { return {_mm512_min_ps(x.v, y.v)}; }
inline F16 f_abs(F16 x) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.v)}; }
inline void f_store_half(uint16_t* p, F16 x) {
    // The bound comes first, so that a NaN, as second operand, stays one.
    x = f_max(f_set1(-65504.0f), f_min(f_set1(65504.0f), x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline F16 f_keep(F16 x, int lo, int hi, F16 other) {
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 before = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(lo), i);
    const __mmask16 inside = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(hi), i);
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(inside & ~before), other.v, x.v)};
}
inline __m256 f_low(F16 x) { return _mm512_castps512_ps256(x.v); }
inline __m256 f_high(F16 x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1)); }
inline float f_reduce_add(F16 x) {
    const __m256 s8 = _mm256_add_ps(f_low(x), f_high(x));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline float f_reduce_max(F16 x) {
    const __m256 m8 = _mm256_max_ps(f_low(x), f_high(x));
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}
inline F16 f_round(F16 x) {
    return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F16 f_pow2(F16 n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
inline int32_t f_store_int8(int8_t* p, F16 x) {
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    const __m128i ones = _mm_set1_epi8(1);
    __m128i sum = _mm_madd_epi16(_mm_maddubs_epi16(ones, bytes), _mm_set1_epi16(1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1));
    return _mm_cvtsi128_si32(sum);
}
inline F16 f_from_u8(B16 x) { return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(x.v))}; }
inline F16 f_from_s8(B16 x) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x.v))}; }

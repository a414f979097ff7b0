// Sixteen float lanes as two 256-bit registers. Included inside an anonymous namespace.

struct F16 {
    __m256 a, b;
};

inline F16 f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F16 f_set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F16 f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void f_store(float* p, F16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline F16 f_load_half(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline F16 f_add(F16 x, F16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F16 f_sub(F16 x, F16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F16 f_mul(F16 x, F16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F16 f_div(F16 x, F16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F16 f_fma(F16 x, F16 y, F16 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F16 f_fnma(F16 x, F16 y, F16 z) {
    return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
inline F16 f_fms(F16 x, F16 y, F16 z) {
    return {_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)};
}
inline F16 f_max(F16 x, F16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F16 f_min(F16 x, F16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F16 f_abs(F16 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline void f_store_half(uint16_t* p, F16 x) {
    // The bound comes first, so that a NaN, as second operand, stays one.
    x = f_max(f_set1(-65504.0f), f_min(f_set1(65504.0f), x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline F16 f_keep(F16 x, int lo, int hi, F16 other) {
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    const __m256i before = _mm256_set1_epi32(lo), end = _mm256_set1_epi32(hi);
    const auto mask = [&](__m256i i) {
        return _mm256_castsi256_ps(
            _mm256_andnot_si256(_mm256_cmpgt_epi32(before, i), _mm256_cmpgt_epi32(end, i)));
    };
    return {_mm256_blendv_ps(other.a, x.a, mask(low)), _mm256_blendv_ps(other.b, x.b, mask(high))};
}
inline float f_reduce_add(F16 x) {
    const __m256 s8 = _mm256_add_ps(x.a, x.b);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline float f_reduce_max(F16 x) {
    const __m256 m8 = _mm256_max_ps(x.a, x.b);
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}
inline F16 f_round(F16 x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline F16 f_pow2(F16 n) {
    const __m256i bias = _mm256_set1_epi32(127);
    const auto scale = [&](__m256 v) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(v), bias), 23));
    };
    return {scale(n.a), scale(n.b)};
}
inline int32_t f_store_int8(int8_t* p, F16 x) {
    const __m256i ia = _mm256_cvtps_epi32(x.a), ib = _mm256_cvtps_epi32(x.b);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(ia, ib), 0xd8);
    const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(low, high));
    __m128i sum = _mm_madd_epi16(_mm_add_epi16(low, high), _mm_set1_epi16(1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1));
    return _mm_cvtsi128_si32(sum);
}
inline F16 f_from_u8(B16 x) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x.v)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x.v, x.v)))};
}
inline F16 f_from_s8(B16 x) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x.v)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x.v, x.v)))};
}

// AVX-512 and AVX-512 VNNI in terms of AVX2, for tests on machines without them: SIMDe
// (https://github.com/simd-everywhere/simde, Debian's libsimde-dev) and the few intrinsics that its version
// 0.7.4 lacks, split into 256-bit halves. Only for files compiled with AVX2, FMA and F16C.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

namespace simde_missing {

inline __m256 low(__m512 x) { return simde_mm512_castps512_ps256(x); }
inline __m256 high(__m512 x) {
    return simde_mm256_castpd_ps(simde_mm512_extractf64x4_pd(simde_mm512_castps_pd(x), 1));
}
inline __m512 join(__m256 a, __m256 b) {
    return simde_mm512_insertf32x8(simde_mm512_castps256_ps512(a), b, 1);
}
inline __m256i low(__m512i x) { return simde_mm512_castsi512_si256(x); }
inline __m256i high(__m512i x) { return simde_mm512_extracti64x4_epi64(x, 1); }
inline __m512i join(__m256i a, __m256i b) {
    return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(a), b, 1);
}

inline __m512i cvtps_epi32(__m512 x) { return join(_mm256_cvtps_epi32(low(x)), _mm256_cvtps_epi32(high(x))); }
inline __m512 cvtepi32_ps(__m512i x) { return join(_mm256_cvtepi32_ps(low(x)), _mm256_cvtepi32_ps(high(x))); }
inline __m512i cvtepu8_epi32(__m128i x) {
    return join(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x, x)));
}
inline __m512i cvtepi8_epi32(__m128i x) {
    return join(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x, x)));
}
inline __m512 cvtph_ps(__m256i x) {
    return join(_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
template <int rounding>
__m256i cvtps_ph(__m512 x) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high(x), rounding), _mm256_cvtps_ph(low(x), rounding));
}

}  // namespace simde_missing

#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#define _mm512_cvtps_epi32 simde_missing::cvtps_epi32
#define _mm512_cvtepi32_ps simde_missing::cvtepi32_ps
#define _mm512_cvtepu8_epi32 simde_missing::cvtepu8_epi32
#define _mm512_cvtepi8_epi32 simde_missing::cvtepi8_epi32
#define _mm512_cvtph_ps simde_missing::cvtph_ps
#define _mm512_cvtps_ph(x, rounding) simde_missing::cvtps_ph<(rounding)>(x)

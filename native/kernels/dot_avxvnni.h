// Integer dot products with 256-bit vpdpbusd: unsigned x signed bytes, summed
// in int32. ES_DPBUSD is the VEX-encoded intrinsic of AVX-VNNI or its AVX512VL twin.
// Included inside an anonymous namespace after dot_class.h, vec16_avx2.h and chunk_avx2.h.

template <Codes kind>
struct Dot {
    __m256i sum_a = _mm256_setzero_si256(), sum_b = _mm256_setzero_si256();

    ES_INLINE static __m256i accumulate(__m256i sum, __m256i w, __m256i x) {
        // Signed codes move their sign to the activation; |-128| is 128 unsigned.
        if (kind == Codes::s8) return ES_DPBUSD(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
        return ES_DPBUSD(sum, w, x);
    }
    ES_INLINE void step(int /*chunk*/, C64 w, const int8_t* a) {
        int32_t four;
        __builtin_memcpy(&four, a, 4);
        const __m256i x = _mm256_set1_epi32(four);
        sum_a = accumulate(sum_a, w.a, x);
        sum_b = accumulate(sum_b, w.b, x);
    }
    ES_INLINE F16 finish() const { return {_mm256_cvtepi32_ps(sum_a), _mm256_cvtepi32_ps(sum_b)}; }
};

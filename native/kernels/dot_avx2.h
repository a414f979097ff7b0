// Integer dot products with vpmaddubsw. Pairs of products stay in int16 while they cannot overflow:
// 15 * 127 * 2 = 3,810 takes 8 additions, 31 * 127 * 2 = 7,874 takes 4, 63 * 127 * 2 = 16,002 takes 2.
// Signed codes move their sign to the activation: 128 * 127 * 2 = 32,512 takes 1.
// Included inside an anonymous namespace after dot_class.h and chunk_avx2.h.

template <Codes kind>
struct Dot {
    // Chunks whose products share an int16 accumulator before it is widened.
    static constexpr int kRun = kind == Codes::u4 ? 8 : kind == Codes::u5 ? 4 : kind == Codes::u6 ? 2 : 1;
    __m256i pairs_a = _mm256_setzero_si256(), pairs_b = _mm256_setzero_si256();
    __m256i sum_a = _mm256_setzero_si256(), sum_b = _mm256_setzero_si256();

    ES_INLINE static __m256i products(__m256i w, __m256i a) {
        if (kind == Codes::s8) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
        return _mm256_maddubs_epi16(w, a);
    }
    ES_INLINE void step(int chunk, C64 w, const int8_t* a) {
        int32_t four;
        __builtin_memcpy(&four, a, 4);
        const __m256i x = _mm256_set1_epi32(four);
        const __m256i pa = products(w.a, x), pb = products(w.b, x);
        const bool first = chunk % kRun == 0;
        pairs_a = first ? pa : _mm256_add_epi16(pairs_a, pa);
        pairs_b = first ? pb : _mm256_add_epi16(pairs_b, pb);
        // Without this the compiler gathers all products before it adds any, and spills them.
        asm("" : "+x"(pairs_a), "+x"(pairs_b));
        if (chunk % kRun == kRun - 1) {
            const __m256i ones = _mm256_set1_epi16(1);
            const __m256i wa = _mm256_madd_epi16(pairs_a, ones), wb = _mm256_madd_epi16(pairs_b, ones);
            sum_a = chunk < kRun ? wa : _mm256_add_epi32(sum_a, wa);
            sum_b = chunk < kRun ? wb : _mm256_add_epi32(sum_b, wb);
        }
    }
    ES_INLINE F16 finish() const { return {_mm256_cvtepi32_ps(sum_a), _mm256_cvtepi32_ps(sum_b)}; }
};

// Integer dot products with vpdpbusd: one instruction multiplies a chunk with four activations and sums in
// int32. It takes unsigned x signed bytes, so signed codes move their sign to the activation; |-128| is 128
// unsigned. Included inside an anonymous namespace after dot_class.h and vec16_avx512.h.

struct C64 {
    __m512i v;
};

inline C64 c_load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void c_store(uint8_t* p, C64 x) { _mm512_storeu_si512(p, x.v); }
inline C64 c_low(C64 x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))}; }
inline C64 c_high(C64 x) { return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(15))}; }
ES_INLINE __m512i c_field(__m512i high, int right, char mask) {
    const auto distance = static_cast<unsigned>(right >= 0 ? right : -right);
    const __m512i moved = right >= 0 ? _mm512_srli_epi16(high, distance) : _mm512_slli_epi16(high, distance);
    return _mm512_and_si512(moved, _mm512_set1_epi8(mask));
}
ES_INLINE C64 c_with_bit(C64 x, C64 high, int chunk) {
    return {_mm512_or_si512(x.v, c_field(high.v, chunk - 4, 0x10))};
}
ES_INLINE C64 c_with_pair(C64 x, C64 high, int slot) {
    return {_mm512_or_si512(x.v, c_field(high.v, 2 * slot - 4, 0x30))};
}

template <Codes kind>
struct Dot {
    __m512i sum = _mm512_setzero_si512();

    ES_INLINE void step(int /*chunk*/, C64 w, const int8_t* a) {
        int32_t four;
        __builtin_memcpy(&four, a, 4);
        const __m512i x = _mm512_set1_epi32(four);
        if (kind == Codes::s8) {
            const __mmask64 negative = _mm512_movepi8_mask(w.v);
            const __m512i signed_x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
            sum = _mm512_dpbusd_epi32(sum, _mm512_abs_epi8(w.v), signed_x);
        } else {
            sum = _mm512_dpbusd_epi32(sum, w.v, x);
        }
    }
    ES_INLINE F16 finish() const { return {_mm512_cvtepi32_ps(sum)}; }
};

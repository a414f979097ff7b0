// Sixteen bytes in a 128-bit register, for decoding packed sub-block scales (all x86-64 files).
// Included inside an anonymous namespace.

struct B16 {
    __m128i v;
};

inline B16 b_load(const uint8_t* p) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))}; }
inline B16 b_field(B16 x, int shift, int mask) {
    return {_mm_and_si128(_mm_srli_epi16(x.v, shift), _mm_set1_epi8(static_cast<char>(mask)))};
}
inline B16 b_join(B16 low, B16 high) {
    return {_mm_or_si128(low.v, _mm_slli_epi16(high.v, 4))};  // high < 16, so nothing crosses a byte
}

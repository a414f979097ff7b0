// One chunk (16 channels x 4 columns of codes) as two 256-bit registers. Included inside an anonymous
// namespace.

struct C64 {
    __m256i a, b;  // channels 0-7, 8-15
};

inline C64 c_load(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline void c_store(uint8_t* p, C64 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
inline C64 c_low(C64 x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
inline C64 c_high(C64 x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), mask),
            _mm256_and_si256(_mm256_srli_epi16(x.b, 4), mask)};
}
ES_INLINE __m256i c_field(__m256i high, int right, char mask) {
    const __m256i moved = right >= 0 ? _mm256_srli_epi16(high, right) : _mm256_slli_epi16(high, -right);
    return _mm256_and_si256(moved, _mm256_set1_epi8(mask));
}
ES_INLINE C64 c_with_bit(C64 x, C64 high, int chunk) {
    return {_mm256_or_si256(x.a, c_field(high.a, chunk - 4, 0x10)),
            _mm256_or_si256(x.b, c_field(high.b, chunk - 4, 0x10))};
}
ES_INLINE C64 c_with_pair(C64 x, C64 high, int slot) {
    return {_mm256_or_si256(x.a, c_field(high.a, 2 * slot - 4, 0x30)),
            _mm256_or_si256(x.b, c_field(high.b, 2 * slot - 4, 0x30))};
}

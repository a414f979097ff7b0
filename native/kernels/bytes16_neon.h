// Sixteen bytes in a 128-bit register, for decoding packed sub-block scales (both aarch64 files).
// Included inside an anonymous namespace.

struct B16 {
    uint8x16_t v;
};

inline B16 b_load(const uint8_t* p) { return {vld1q_u8(p)}; }
inline B16 b_field(B16 x, int shift, int mask) {
    return {vandq_u8(x.v >> vdupq_n_u8(static_cast<uint8_t>(shift)), vdupq_n_u8(static_cast<uint8_t>(mask)))};
}
inline B16 b_join(B16 low, B16 high) { return {vorrq_u8(low.v, vshlq_n_u8(high.v, 4))}; }

// One chunk (16 channels x 4 columns of codes) as four 128-bit registers of 4 channels.
// Included inside an anonymous namespace.

struct C64 {
    uint8x16_t a, b, c, d;
};

template <class Op>
ES_INLINE C64 c_each(C64 x, Op op) {
    return {op(x.a), op(x.b), op(x.c), op(x.d)};
}
template <class Op>
ES_INLINE C64 c_each(C64 x, C64 y, Op op) {
    return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}

inline C64 c_load(const uint8_t* p) {
    return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
inline void c_store(uint8_t* p, C64 x) {
    vst1q_u8(p, x.a);
    vst1q_u8(p + 16, x.b);
    vst1q_u8(p + 32, x.c);
    vst1q_u8(p + 48, x.d);
}
inline C64 c_low(C64 x) {
    return c_each(x, [](uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); });
}
inline C64 c_high(C64 x) {
    return c_each(x, [](uint8x16_t v) { return vshrq_n_u8(v, 4); });
}
/// Bits `mask` of x, where it has zeros, from those of `high` moved right.
ES_INLINE C64 c_insert(C64 x, C64 high, int right, uint8_t mask) {
    const uint8x16_t distance = vdupq_n_u8(static_cast<uint8_t>(right >= 0 ? right : -right));
    return c_each(x, high, [=](uint8x16_t v, uint8x16_t h) {
        return vbslq_u8(vdupq_n_u8(mask), right >= 0 ? h >> distance : h << distance, v);
    });
}
ES_INLINE C64 c_with_bit(C64 x, C64 high, int chunk) { return c_insert(x, high, chunk - 4, 0x10); }
ES_INLINE C64 c_with_pair(C64 x, C64 high, int slot) { return c_insert(x, high, 2 * slot - 4, 0x30); }

// Integer dot products with widening multiplies (ARMv8.0 has no sdot). Products of equal columns stay in
// int16 while they cannot overflow: 8 chunks of 15 * 127 or 31 * 127 = 31,496, 4 chunks of 63 * 127 = 32,004
// (q6k has no more to a half group), 2 chunks of 128 * 127 = 32,512. Included inside an anonymous namespace
// after dot_class.h, vec16_neon.h and chunk_neon.h.

/// Of 4 channels x 4 columns: channels 0 and 1, channels 2 and 3.
struct Products {
    int16x8_t low, high;

    ES_INLINE void set(uint8x16_t codes, int8x16_t x) {
        const int8x16_t w = vreinterpretq_s8_u8(codes);
        low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        high = vmull_high_s8(w, x);
    }
    ES_INLINE void add(uint8x16_t codes, int8x16_t x) {
        const int8x16_t w = vreinterpretq_s8_u8(codes);
        low = vmlal_s8(low, vget_low_s8(w), vget_low_s8(x));
        high = vmlal_high_s8(high, w, x);
    }
};

/// Sums of neighbouring products, as Products has them.
struct PairSums {
    int32x4_t low, high;

    ES_INLINE void set(Products p) {
        low = vpaddlq_s16(p.low);
        high = vpaddlq_s16(p.high);
    }
    ES_INLINE void add(Products p) {
        low = vpadalq_s16(low, p.low);
        high = vpadalq_s16(high, p.high);
    }
    ES_INLINE float32x4_t channels() const { return vcvtq_f32_s32(vpaddq_s32(low, high)); }
};

template <Codes kind>
struct Dot {
    static constexpr bool kShort = kind == Codes::s8;  // two chunks fill an int16, else all of them fit
    Products a{}, b{}, c{}, d{};
    PairSums sum_a{}, sum_b{}, sum_c{}, sum_d{};  // used for two-chunk runs only

    ES_INLINE void step(int chunk, C64 w, const int8_t* four) {
        int32_t bits;
        __builtin_memcpy(&bits, four, 4);
        const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(bits));
        if (kShort ? chunk % 2 == 0 : chunk == 0) {
            a.set(w.a, x);
            b.set(w.b, x);
            c.set(w.c, x);
            d.set(w.d, x);
        } else {
            a.add(w.a, x);
            b.add(w.b, x);
            c.add(w.c, x);
            d.add(w.d, x);
        }
        if (kShort && chunk % 2 == 1) {
            sum_a.add(a);
            sum_b.add(b);
            sum_c.add(c);
            sum_d.add(d);
        }
    }
    ES_INLINE F16 finish() const {
        if (kShort) return {sum_a.channels(), sum_b.channels(), sum_c.channels(), sum_d.channels()};
        const auto channels = [](Products p) {
            PairSums sum;
            sum.set(p);
            return sum.channels();
        };
        return {channels(a), channels(b), channels(c), channels(d)};
    }
};

// Integer dot products with sdot by lane: four activations of a 16-byte load meet the 4 columns of 4
// channels. Included inside an anonymous namespace after dot_class.h, vec16_neon.h and chunk_neon.h.

template <Codes kind>
struct Dot {
    int32x4_t sum_a = vdupq_n_s32(0), sum_b = vdupq_n_s32(0), sum_c = vdupq_n_s32(0), sum_d = vdupq_n_s32(0);

    template <int lane>
    ES_INLINE static int32x4_t dot(int32x4_t sum, uint8x16_t w, int8x16_t x) {
        return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), x, lane);
    }
    template <int lane>
    ES_INLINE void step_lane(C64 w, int8x16_t x) {
        sum_a = dot<lane>(sum_a, w.a, x);
        sum_b = dot<lane>(sum_b, w.b, x);
        sum_c = dot<lane>(sum_c, w.c, x);
        sum_d = dot<lane>(sum_d, w.d, x);
    }
    ES_INLINE void step(int chunk, C64 w, const int8_t* a) {
        // Four chunks share one load; the compiler sees that it is the same.
        int8x16_t x;
        __builtin_memcpy(&x, a - 4 * (chunk % 4), 16);
        switch (chunk % 4) {
            case 0:
                return step_lane<0>(w, x);
            case 1:
                return step_lane<1>(w, x);
            case 2:
                return step_lane<2>(w, x);
            default:
                return step_lane<3>(w, x);
        }
    }
    ES_INLINE F16 finish() const {
        return {vcvtq_f32_s32(sum_a), vcvtq_f32_s32(sum_b), vcvtq_f32_s32(sum_c), vcvtq_f32_s32(sum_d)};
    }
};

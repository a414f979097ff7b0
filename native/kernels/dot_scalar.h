// Integer dot products of one chunk (16 channels x 4 columns) in plain C++: the reference.
// Included inside an anonymous namespace after dot_class.h.

struct C64 {
    uint8_t byte[64];
};

inline C64 c_load(const uint8_t* p) {
    C64 r;
    __builtin_memcpy(r.byte, p, 64);
    return r;
}
inline void c_store(uint8_t* p, C64 x) { __builtin_memcpy(p, x.byte, 64); }
inline C64 c_low(C64 x) {
    for (uint8_t& v : x.byte) v &= 15;
    return x;
}
inline C64 c_high(C64 x) {
    for (uint8_t& v : x.byte) v >>= 4;
    return x;
}
/// Code | bit `chunk` of `high` << 4.
inline C64 c_with_bit(C64 x, C64 high, int chunk) {
    for (int i = 0; i < 64; ++i) {
        x.byte[i] = static_cast<uint8_t>(x.byte[i] | (((high.byte[i] >> chunk) & 1) << 4));
    }
    return x;
}
/// Code | bits (2 slot, 2 slot + 1) of `high` << 4.
inline C64 c_with_pair(C64 x, C64 high, int slot) {
    for (int i = 0; i < 64; ++i) {
        x.byte[i] = static_cast<uint8_t>(x.byte[i] | (((high.byte[i] >> (2 * slot)) & 3) << 4));
    }
    return x;
}

template <Codes kind>
struct Dot {
    int32_t sum[16] = {};

    /// Adds codes x activations of chunk number `chunk` of the group; `a` are 4 int8.
    void step(int /*chunk*/, C64 w, const int8_t* a) {
        for (int ch = 0; ch < 16; ++ch) {
            for (int j = 0; j < 4; ++j) {
                const uint8_t code = w.byte[4 * ch + j];
                const int value = kind == Codes::s8 ? static_cast<int8_t>(code) : static_cast<int>(code);
                sum[ch] += value * a[j];
            }
        }
    }
    /// The sums so far as floats (exact: below 2^24).
    F16 finish() const {
        F16 r;
        for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(sum[i]);
        return r;
    }
};

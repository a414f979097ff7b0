// Matrix products of packed weights, written once over the C64/Dot/F16 of an instruction set.
// Included inside an anonymous namespace after vec16_*.h and dot_*.h.
//
// Per output channel the order of operations is fixed and the same for every instruction set, row count
// and blocking: groups ascending, and inside a group
//   offset codes (q4, q5):   acc = fma(fma(dot, d, -offset * d * sum), dw, acc)
//   q8:                      acc = fma(dot * d, dw, acc)
//   with minimum (q4z ...):  acc = fma(dot * d, dw, acc); acc = fma(d * sum, mw, acc)
//   q6k, per half group:     acc = fma(fma(dot, d, -32 * d * sum), dw, acc)
// Where an offset is taken away, both fma turn their product's sign: the same bits, since acc is never -0,
// and one instruction on NEON.

enum class Form { offset8, offset16, plain, minimum, halves };

template <Scheme scheme>
struct Traits;
template <>
struct Traits<Scheme::q8> {
    static constexpr Codes codes = Codes::s8;
    static constexpr Form form = Form::plain;
};
template <>
struct Traits<Scheme::q4> {
    static constexpr Codes codes = Codes::u4;
    static constexpr Form form = Form::offset8;
};
template <>
struct Traits<Scheme::q4z> {
    static constexpr Codes codes = Codes::u4;
    static constexpr Form form = Form::minimum;
};
template <>
struct Traits<Scheme::q5> {
    static constexpr Codes codes = Codes::u5;
    static constexpr Form form = Form::offset16;
};
template <>
struct Traits<Scheme::q5z> {
    static constexpr Codes codes = Codes::u5;
    static constexpr Form form = Form::minimum;
};
template <>
struct Traits<Scheme::q4k> : Traits<Scheme::q4z> {};
template <>
struct Traits<Scheme::q5k> : Traits<Scheme::q5z> {};
template <>
struct Traits<Scheme::q6k> {
    static constexpr Codes codes = Codes::u6;
    static constexpr Form form = Form::halves;
};

/// Mean bytes of a group of 32 columns of a tile.
constexpr size_t group_bytes(Scheme scheme) {
    const SchemeInfo& i = kSchemeInfo[static_cast<int>(scheme)];
    return static_cast<size_t>(i.bytes_per_channel) * 16 * 32 / static_cast<size_t>(i.block);
}

/// Scales of the eight groups of a block, as floats; empty where each group holds its own as halves.
template <Scheme scheme>
struct BlockScales {
    ES_INLINE void load(const uint8_t* /*block*/) {}
};

struct alignas(64) EightScales {
    float dw[8][16], mw[8][16];  // mw of q6k: of the second half group
};

template <Scheme scheme>
struct TwoLevelScales : EightScales {
    ES_INLINE void load(const uint8_t* block) {
        const F16 d = f_load_half(reinterpret_cast<const uint16_t*>(block));
        const F16 dmin = f_load_half(reinterpret_cast<const uint16_t*>(block + 32));
#pragma GCC unroll 8
        for (int sub = 0; sub < 8; ++sub) {
            f_store(dw[sub], f_mul(d, f_from_u8(six_bits(block + 64, sub))));
            f_store(mw[sub], f_sub(f_zero(), f_mul(dmin, f_from_u8(six_bits(block + 64 + 96, sub)))));
        }
    }
    ES_INLINE static B16 six_bits(const uint8_t* packed, int sub) {
        return b_join(b_field(b_load(packed + 16 * (sub / 2)), 4 * (sub % 2), 15),
                      b_field(b_load(packed + 64 + 16 * (sub / 4)), 2 * (sub % 4), 3));
    }
};
template <>
struct BlockScales<Scheme::q4k> : TwoLevelScales<Scheme::q4k> {};
template <>
struct BlockScales<Scheme::q5k> : TwoLevelScales<Scheme::q5k> {};
template <>
struct BlockScales<Scheme::q6k> : EightScales {
    ES_INLINE void load(const uint8_t* block) {
        const F16 d = f_load_half(reinterpret_cast<const uint16_t*>(block));
#pragma GCC unroll 8
        for (int sub = 0; sub < 8; ++sub) {
            f_store(dw[sub], f_mul(d, f_from_s8(b_load(block + 32 + 32 * sub))));
            f_store(mw[sub], f_mul(d, f_from_s8(b_load(block + 48 + 32 * sub))));
        }
    }
};

/// One group of 32 columns in packed form: chunks, and scales as floats.
template <Scheme scheme_>
struct PackedGroup {
    static constexpr Scheme scheme = scheme_;
    static constexpr size_t kBytes = group_bytes(scheme);
    static constexpr size_t kBlockBytes =
        static_cast<size_t>(kSchemeInfo[static_cast<int>(scheme)].bytes_per_channel) * 16;
    static constexpr size_t kBlockGroups = kBlockBytes / kBytes;
    static constexpr Codes codes = Traits<scheme>::codes;
    static constexpr Form form = Traits<scheme>::form;
    using Scales = BlockScales<scheme>;
    const uint8_t* nibbles;  // or int8 codes of q8
    F16 dw, mw;              // of the group; halves: of each half

    /// Group `sub` of a block.
    ES_INLINE PackedGroup(const uint8_t* block, size_t sub, const Scales& scales) {
        if constexpr (kBlockGroups == 8) {
            dw = f_load(scales.dw[sub]);
            mw = f_load(scales.mw[sub]);
            constexpr size_t header = scheme == Scheme::q6k ? 288 : 256;
            nibbles = block + header + sub * (kBytes - header / 8);
        } else {
            dw = f_load_half(reinterpret_cast<const uint16_t*>(block));
            nibbles = block + 32;
            mw = f_zero();
            if constexpr (form == Form::minimum) {
                mw = f_load_half(reinterpret_cast<const uint16_t*>(block + 32));
                nibbles = block + 64;
            }
        }
    }
    ES_INLINE C64 chunk(int c) const {
        if constexpr (codes == Codes::s8) return c_load(nibbles + 64 * c);
        const C64 pair = c_load(nibbles + 64 * (c / 2));
        const C64 low = c % 2 == 0 ? c_low(pair) : c_high(pair);
        if constexpr (codes == Codes::u5) return c_with_bit(low, c_load(nibbles + 256), c);
        if constexpr (codes == Codes::u6)
            return c_with_pair(low, c_load(nibbles + 256 + 64 * (c / 4)), c % 4);
        return low;
    }
};

/// The same group after unpacking to scratch: 8 chunks of bytes, then dw and mw.
template <Scheme scheme_>
struct UnpackedGroup {
    static constexpr Scheme scheme = scheme_;
    static constexpr size_t kBytes = group_bytes(scheme);
    static constexpr size_t kBlockBytes = 640;
    static constexpr size_t kBlockGroups = 1;
    static constexpr Codes codes = Traits<scheme>::codes;
    static constexpr Form form = Traits<scheme>::form;
    using Scales = BlockScales<Scheme::q8>;
    const uint8_t* bytes;
    F16 dw, mw;

    ES_INLINE UnpackedGroup(const uint8_t* block, size_t /*sub*/, const Scales& /*scales*/) : bytes(block) {
        dw = f_load(reinterpret_cast<const float*>(bytes + 512));
        mw = form == Form::minimum || form == Form::halves
                 ? f_load(reinterpret_cast<const float*>(bytes + 576))
                 : f_zero();
    }
    ES_INLINE C64 chunk(int c) const { return c_load(bytes + 64 * c); }
};

/// Unpacks whole blocks, `groups` groups in all, to 640 bytes each.
template <Scheme scheme>
void unpack_groups(const uint8_t* packed, size_t groups, uint8_t* scratch) {
    using Group = PackedGroup<scheme>;
    typename Group::Scales scales;
    for (size_t first = 0; first < groups; first += Group::kBlockGroups, packed += Group::kBlockBytes) {
        scales.load(packed);
        for (size_t sub = 0; sub < Group::kBlockGroups; ++sub, scratch += 640) {
            const Group g(packed, sub, scales);
#pragma GCC unroll 8
            for (int c = 0; c < 8; ++c) c_store(scratch + 64 * c, g.chunk(c));
            f_store(reinterpret_cast<float*>(scratch + 512), g.dw);
            f_store(reinterpret_cast<float*>(scratch + 576), g.mw);
        }
    }
}

/// acc[m] += group `w` x group `g` of rows 0..M-1 of `a`.
template <int M, class Group>
ES_INLINE void accumulate(const Group& w, const Activations& a, size_t g, F16 (&acc)[M]) {
    if constexpr (Group::form == Form::halves) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            Dot<Group::codes> dot[M];
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) {
                const C64 chunk = w.chunk(4 * half + c);
#pragma GCC unroll 16
                for (int m = 0; m < M; ++m)
                    dot[m].step(c, chunk, a.q + m * a.ldq + 32 * g + 16 * half + 4 * c);
            }
#pragma GCC unroll 16
            for (int m = 0; m < M; ++m) {
                const F16 offset = f_set1(a.half32[2 * (m * a.ldg + g) + half]);
                const F16 t = f_fnma(dot[m].finish(), f_set1(a.d[m * a.ldg + g]), offset);
                acc[m] = f_fnma(t, half == 0 ? w.dw : w.mw, acc[m]);
            }
        }
    } else {
        Dot<Group::codes> dot[M];
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) {
            const C64 chunk = w.chunk(c);
#pragma GCC unroll 16
            for (int m = 0; m < M; ++m) dot[m].step(c, chunk, a.q + m * a.ldq + 32 * g + 4 * c);
        }
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            const size_t i = m * a.ldg + g;
            const F16 f = dot[m].finish(), d = f_set1(a.d[i]);
            if constexpr (Group::form == Form::offset8) {
                acc[m] = f_fnma(f_fnma(f, d, f_set1(a.sum8[i])), w.dw, acc[m]);
            } else if constexpr (Group::form == Form::offset16) {
                acc[m] = f_fnma(f_fnma(f, d, f_set1(a.sum16[i])), w.dw, acc[m]);
            } else {
                acc[m] = f_fma(f_mul(f, d), w.dw, acc[m]);
                if constexpr (Group::form == Form::minimum) acc[m] = f_fma(f_set1(a.sum[i]), w.mw, acc[m]);
            }
        }
    }
}

/// Packed weights to bring into cache while others are used: `turn` groups from `here` on, then from `next`
/// on.
struct Ahead {
    const uint8_t* here;
    size_t turn;
    const uint8_t* next;
};
struct NothingAhead {};

/// Rows 0..M-1, groups [0, groups) of `weights` against groups first_group.. of `a`; continues from `out`
/// unless first_group is 0.
template <int M, class Group, class Fetch>
void run_rows(const uint8_t* weights, size_t groups, const Activations& a, size_t first_group, float* out,
              size_t ldo, const Fetch& ahead) {
    F16 acc[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = first_group == 0 ? f_zero() : f_load(out + m * ldo);
    typename Group::Scales scales;
    const uint8_t* fetched = nullptr;
    if constexpr (std::is_same_v<Fetch, Ahead>) fetched = ahead.turn == 0 ? ahead.next : ahead.here;
    for (size_t g = 0; g < groups; weights += Group::kBlockBytes) {
        scales.load(weights);
        for (size_t sub = 0; sub < Group::kBlockGroups; ++sub, ++g) {
            if constexpr (std::is_same_v<Fetch, Ahead>) {
                prefetch<Group::kBytes>(fetched);
                fetched = g + 1 == ahead.turn ? ahead.next : fetched + Group::kBytes;
            }
            accumulate<M>(Group(weights, sub, scales), a, first_group + g, acc);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) f_store(out + m * ldo, acc[m]);
}

/// All rows in blocks of kRowBlock (a power of two), then smaller ones.
template <class Group, class Fetch>
void run_all_rows(const uint8_t* weights, size_t groups, const Activations& a, size_t first_group,
                  size_t rows, float* out, size_t ldo, const Fetch& ahead) {
    const auto run = [&](auto count, size_t r) {
        run_rows<decltype(count)::value, Group>(weights, groups, a.from_row(r), first_group, out + r * ldo,
                                                ldo, ahead);
    };
    // Only the first block fetches.
    if constexpr (std::is_same_v<Fetch, Ahead>) {
        if (rows > kRowBlock) {
            run(std::integral_constant<int, kRowBlock>{}, 0);
            run_all_rows<Group>(weights, groups, a.from_row(kRowBlock), first_group, rows - kRowBlock,
                                out + kRowBlock * ldo, ldo, NothingAhead{});
            return;
        }
    }
    size_t r = 0;
    for (; r + kRowBlock <= rows; r += kRowBlock) run(std::integral_constant<int, kRowBlock>{}, r);
    if constexpr (kRowBlock > 4) {
        if (r + 4 <= rows) {
            run(std::integral_constant<int, 4>{}, r);
            r += 4;
        }
    }
    if constexpr (kRowBlock > 2) {
        if (r + 3 == rows) return run(std::integral_constant<int, 3>{}, r);
        if (r + 2 == rows) return run(std::integral_constant<int, 2>{}, r);
    }
    if constexpr (kRowBlock > 1) {
        if (r < rows) run(std::integral_constant<int, 1>{}, r);
    }
}

constexpr size_t kLead = 16;  // groups between what is used and what is fetched

template <Scheme scheme>
void gemm_integer(const uint8_t* tile, size_t columns, const Activations& a, size_t rows, float* out,
                  size_t ldo, uint8_t* scratch, const uint8_t* next) {
    constexpr size_t bytes = group_bytes(scheme);
    const size_t groups = columns / 32;
    if (next == nullptr) next = tile;  // in cache already, so fetching it costs next to nothing
    // Six-bit codes take so long to unpack that a second pass over them costs more than the scratch.
    constexpr size_t direct = Traits<scheme>::form == Form::halves ? kRowBlock : kDirectRows;
    if (rows <= direct) {
        const size_t rest = groups > kLead ? groups - kLead : 0;
        run_all_rows<PackedGroup<scheme>>(tile, groups, a, 0, rows, out, ldo,
                                          Ahead{tile + kLead * bytes, rest, next});
        return;
    }
    // Many rows: unpack a stretch of columns once, into cache, and use it for all of them. The stretch after
    // it is fetched while the processor computes.
    for (size_t first = 0; first < groups; first += kScratchGroups) {
        const size_t count = groups - first < kScratchGroups ? groups - first : kScratchGroups;
        const size_t rest = groups - first - count;
        unpack_groups<scheme>(tile + first * bytes, count, scratch);
        run_all_rows<UnpackedGroup<scheme>>(scratch, count, a, first, rows, out, ldo,
                                            Ahead{tile + (first + count) * bytes, rest, next});
    }
}

/// f16 and f32 weights on fp32 activations: acc = fma(w, x, acc), columns ascending.
template <int M, bool kHalf>
void float_rows(const uint8_t* tile, size_t columns, const Activations& a, float* out, size_t ldo) {
    F16 acc[M];
    for (int m = 0; m < M; ++m) acc[m] = f_zero();
    for (size_t k = 0; k < columns; ++k) {
        const F16 w = kHalf ? f_load_half(reinterpret_cast<const uint16_t*>(tile) + 16 * k)
                            : f_load(reinterpret_cast<const float*>(tile) + 16 * k);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m] = f_fma(w, f_set1(a.x[m * a.ldx + k]), acc[m]);
    }
    for (int m = 0; m < M; ++m) f_store(out + m * ldo, acc[m]);
}

constexpr int kFloatRows = kRowBlock < 4 ? kRowBlock : 4;

template <bool kHalf>
void gemm_float(const uint8_t* tile, size_t columns, const Activations& a, size_t rows, float* out,
                size_t ldo, uint8_t* /*scratch*/, const uint8_t* /*next*/) {
    size_t r = 0;
    for (; r + kFloatRows <= rows; r += kFloatRows)
        float_rows<kFloatRows, kHalf>(tile, columns, a.from_row(r), out + r * ldo, ldo);
    for (; r < rows; ++r) float_rows<1, kHalf>(tile, columns, a.from_row(r), out + r * ldo, ldo);
}

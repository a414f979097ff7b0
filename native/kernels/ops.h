// Element-wise kernels and quantization of activations, written once over F16.
// Included inside an anonymous namespace after vec16_*.h.

ES_INLINE F16 f_exp(F16 x) {  // as exact_exp
    x = f_min(f_max(x, f_set1(exact::kExpLow)), f_set1(exact::kExpHigh));
    const F16 n = f_round(f_mul(x, f_set1(exact::kLog2e)));
    const F16 minus_n = f_sub(f_zero(), n);
    F16 r = f_fma(minus_n, f_set1(exact::kLn2High), x);
    r = f_fma(minus_n, f_set1(exact::kLn2Low), r);
    F16 p = f_set1(exact::kExpPoly[0]);
    for (int i = 1; i < 6; ++i) p = f_fma(p, r, f_set1(exact::kExpPoly[i]));
    const F16 y = f_add(f_fma(p, f_mul(r, r), r), f_set1(1.0f));
    return f_mul(y, f_pow2(n));
}

/// Lanes [0, n) of p, zeros above; n in 1..15.
inline F16 f_load_tail(const float* p, size_t n) {
    float lanes[16] = {};
    for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return f_load(lanes);
}
inline void f_store_tail(float* p, F16 x, size_t n) {
    float lanes[16];
    f_store(lanes, x);
    for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

void quantize(const float* x, size_t n, QuantizedRow out) {
    for (size_t g = 0; g < n / 32; ++g) {
        const F16 a = f_load(x + 32 * g), b = f_load(x + 32 * g + 16);
        const float largest = f_reduce_max(f_max(f_abs(a), f_abs(b)));
        const float d = largest / 127.0f;
        const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
        const F16 scale = f_set1(inverse), top = f_set1(127.0f), bottom = f_set1(-127.0f);
        const auto scaled = [&](F16 v) { return f_max(f_min(f_mul(v, scale), top), bottom); };
        const int32_t sum_a = f_store_int8(out.q + 32 * g, scaled(a));
        const int32_t sum_b = f_store_int8(out.q + 32 * g + 16, scaled(b));
        const float sum = d * static_cast<float>(sum_a + sum_b);
        out.d[g] = d;
        out.sum[g] = sum;
        out.sum8[g] = 8.0f * sum;
        out.sum16[g] = 16.0f * sum;
        out.half32[2 * g] = 32.0f * (d * static_cast<float>(sum_a));
        out.half32[2 * g + 1] = 32.0f * (d * static_cast<float>(sum_b));
    }
}

void rms_norm(const float* x, const float* weight, size_t n, float eps, float* out) {
    const size_t whole = n / 16 * 16;
    F16 squares = f_zero();
    for (size_t i = 0; i < whole; i += 16) {
        const F16 v = f_load(x + i);
        squares = f_fma(v, v, squares);
    }
    if (whole < n) {
        const F16 v = f_load_tail(x + whole, n - whole);
        squares = f_fma(v, v, squares);
    }
    const float mean = f_reduce_add(squares) / static_cast<float>(n);
    const F16 scale = f_set1(1.0f / __builtin_sqrtf(mean + eps));
    for (size_t i = 0; i < whole; i += 16) {
        f_store(out + i, f_mul(f_mul(f_load(x + i), scale), f_load(weight + i)));
    }
    if (whole < n) {
        const F16 v = f_mul(f_load_tail(x + whole, n - whole), scale);
        f_store_tail(out + whole, f_mul(v, f_load_tail(weight + whole, n - whole)), n - whole);
    }
}

ES_INLINE F16 f_swiglu(F16 gate, F16 up) {
    const F16 one = f_set1(1.0f);
    return f_mul(f_div(gate, f_add(one, f_exp(f_sub(f_zero(), gate)))), up);
}

void swiglu(const float* gate, const float* up, size_t n, float* out) {
    const size_t whole = n / 16 * 16;
    for (size_t i = 0; i < whole; i += 16) f_store(out + i, f_swiglu(f_load(gate + i), f_load(up + i)));
    if (whole < n) {
        const F16 y = f_swiglu(f_load_tail(gate + whole, n - whole), f_load_tail(up + whole, n - whole));
        f_store_tail(out + whole, y, n - whole);
    }
}

void add(float* x, const float* y, size_t n) {
    const size_t whole = n / 16 * 16;
    for (size_t i = 0; i < whole; i += 16) f_store(x + i, f_add(f_load(x + i), f_load(y + i)));
    for (size_t i = whole; i < n; ++i) x[i] += y[i];
}

void rope(float* x, int heads, int head_dim, const float* cosine, const float* sine) {
    const int half = head_dim / 2;
    for (int h = 0; h < heads; ++h) {
        float* low = x + static_cast<size_t>(h) * static_cast<size_t>(head_dim);
        float* high = low + half;
        int i = 0;
        for (; i + 16 <= half; i += 16) {
            const F16 a = f_load(low + i), b = f_load(high + i), c = f_load(cosine + i), s = f_load(sine + i);
            f_store(low + i, f_fms(a, c, f_mul(b, s)));
            f_store(high + i, f_fma(b, c, f_mul(a, s)));
        }
        for (; i < half; ++i) {
            const float a = low[i], b = high[i];
            low[i] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
            high[i] = __builtin_fmaf(b, cosine[i], a * sine[i]);
        }
    }
}

void store_kv(const float* k, const float* v, int head_dim, uint16_t* k_column, uint16_t* v_row) {
    for (int i = 0; i < head_dim; i += 16) {
        uint16_t lanes[16];
        f_store_half(lanes, f_load(k + i));
        for (int j = 0; j < 16; ++j) k_column[32 * (i + j)] = lanes[j];
        f_store_half(v_row + i, f_load(v + i));
    }
}

/// Quantizes one group of up to 32 floats (16 or 32) to codes; returns the scale as a half.
/// scale = half(largest / 127); code = round to nearest even(x / scale), within +-127.
ES_INLINE uint16_t quantize_kv_group(const float* x, int count, int8_t* codes) {
    F16 largest = f_zero();
    for (int i = 0; i < count; i += 16) largest = f_max(f_abs(f_load(x + i)), largest);
    const float top = f_reduce_max(largest);
    const uint16_t half = float_to_half(top / 127.0f < 65504.0f ? top / 127.0f : 65504.0f);
    const float scale = half_to_float(half);
    const F16 inverse = f_set1(scale > 0.0f ? 1.0f / scale : 0.0f);
    const F16 high = f_set1(127.0f), low = f_set1(-127.0f);
    for (int i = 0; i < count; i += 16) {
        f_store_int8(codes + i, f_max(f_min(f_mul(f_load(x + i), inverse), high), low));
    }
    return half;
}

void store_kv_int8(const float* k, const float* v, int head_dim, int column, uint16_t* k_plane,
                   uint16_t* v_plane) {
    const int groups = kv_groups(head_dim);
    auto* k_codes = reinterpret_cast<int8_t*>(k_plane);
    auto* v_codes = reinterpret_cast<int8_t*>(v_plane) + column * head_dim;
    uint16_t* k_scales = k_plane + kBlockTokens * head_dim / 2;
    uint16_t* v_scales = v_plane + kBlockTokens * head_dim / 2;
    for (int g = 0; g < groups; ++g) {
        const int first = g * kKvGroup, count = head_dim - first < kKvGroup ? head_dim - first : kKvGroup;
        int8_t codes[kKvGroup];
        k_scales[g * kBlockTokens + column] = quantize_kv_group(k + first, count, codes);
        for (int i = 0; i < count; ++i) k_codes[kBlockTokens * (first + i) + column] = codes[i];
        v_scales[g * kBlockTokens + column] = quantize_kv_group(v + first, count, v_codes + first);
    }
}

// Fills a Kernels table from the templates of this instruction set. Included inside an anonymous namespace.

inline Kernels make_table(const char* name) {
    Kernels t{};
    t.name = name;
    t.gemm[static_cast<int>(Scheme::f32)] = gemm_float<false>;
    t.gemm[static_cast<int>(Scheme::f16)] = gemm_float<true>;
    t.gemm[static_cast<int>(Scheme::q8)] = gemm_integer<Scheme::q8>;
    t.gemm[static_cast<int>(Scheme::q4)] = gemm_integer<Scheme::q4>;
    t.gemm[static_cast<int>(Scheme::q4z)] = gemm_integer<Scheme::q4z>;
    t.gemm[static_cast<int>(Scheme::q5)] = gemm_integer<Scheme::q5>;
    t.gemm[static_cast<int>(Scheme::q5z)] = gemm_integer<Scheme::q5z>;
    t.gemm[static_cast<int>(Scheme::q4k)] = gemm_integer<Scheme::q4k>;
    t.gemm[static_cast<int>(Scheme::q5k)] = gemm_integer<Scheme::q5k>;
    t.gemm[static_cast<int>(Scheme::q6k)] = gemm_integer<Scheme::q6k>;
    t.quantize = quantize;
    t.rms_norm = rms_norm;
    t.swiglu = swiglu;
    t.add = add;
    t.rope = rope;
    t.store_kv = store_kv;
    t.store_kv_int8 = store_kv_int8;
    t.attention[static_cast<int>(KvType::f16)] = attention<KvType::f16>;
    t.attention[static_cast<int>(KvType::int8)] = attention<KvType::int8>;
    t.attention_range[static_cast<int>(KvType::f16)] = attention_range<KvType::f16>;
    t.attention_range[static_cast<int>(KvType::int8)] = attention_range<KvType::int8>;
    t.attention_join = attention_join;
    t.attention_mla = attention_mla;
    t.to_halves = to_halves;
    t.int8_chain = int8_chain;
    return t;
}

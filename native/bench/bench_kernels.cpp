// Speed of single kernels on one thread, by thread CPU time: bench_kernels [ISA]. Not a test.
#include <ctime>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../kernels/table.h"
#include "edgeseek/isa.h"
#include "edgeseek/matrix.h"

using namespace edgeseek;

namespace {

double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double best_seconds(F&& body) {
    double best = 1e9;
    for (int trial = 0; trial < 7; ++trial) {
        const double begin = cpu_seconds();
        body();
        const double took = cpu_seconds() - begin;
        if (took < best) best = took;
    }
    return best;
}

struct Buffer {
    explicit Buffer(size_t bytes)
        : data(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64))) {
        std::memset(data, 0x11, bytes);
    }
    ~Buffer() { std::free(data); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    uint8_t* data;
};

void bench_gemm(const Kernels& kernels, size_t columns) {
    constexpr size_t tiles = 8;
    for (size_t rows : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}, size_t{64}}) {
        std::printf("columns %5zu rows %2zu:", columns, rows);
        for (int s = 2; s < kSchemeCount; ++s) {
            Matrix w;
            w.scheme = static_cast<Scheme>(s);
            w.rows = tiles * kTile;
            w.columns = columns;
            if (columns % static_cast<size_t>(info(w.scheme).block) != 0) continue;
            const Buffer weights(w.bytes());
            w.data = weights.data;
            const size_t groups = columns / 32;
            const Buffer q(rows * columns), scales(rows * groups * 6 * 4), out(rows * kTile * 4),
                scratch(kScratchBytes);
            Activations a;
            a.q = reinterpret_cast<const int8_t*>(q.data);
            a.d = a.sum = a.sum8 = a.sum16 = a.half32 = reinterpret_cast<const float*>(scales.data);
            a.ldq = columns;
            a.ldg = groups;
            const int repeats =
                static_cast<int>(2e8 / static_cast<double>(tiles * kTile * columns * rows)) + 1;
            const double seconds = best_seconds([&] {
                for (int i = 0; i < repeats; ++i) {
                    for (size_t t = 0; t < tiles; ++t) {
                        kernels.gemm[s](w.tile(t), columns, a, rows, reinterpret_cast<float*>(out.data),
                                        kTile, scratch.data, t + 1 < tiles ? w.tile(t + 1) : nullptr);
                    }
                }
            });
            const double macs =
                static_cast<double>(repeats) * static_cast<double>(tiles * kTile * columns * rows);
            std::printf("  %s %.0f", info(w.scheme).name, macs / seconds * 1e-9);
        }
        std::printf("  GMAC/s\n");
    }
}

void bench_attention(const Kernels& kernels, int head_dim, int heads, int tokens, int context) {
    const auto dim = static_cast<size_t>(head_dim);
    const size_t blocks = static_cast<size_t>(context) / 32;
    const Buffer kv(2 * blocks * 32 * dim * 2);
    std::vector<const uint16_t*> k, v;
    for (size_t b = 0; b < blocks; ++b) {
        k.push_back(reinterpret_cast<const uint16_t*>(kv.data) + b * 32 * dim);
        v.push_back(reinterpret_cast<const uint16_t*>(kv.data) + (blocks + b) * 32 * dim);
    }
    const size_t width = static_cast<size_t>(heads) * dim;
    std::vector<float> q(static_cast<size_t>(tokens) * width, 0.01f), out(q.size());
    std::vector<float> scratch(attention_scratch_floats(tokens, heads, head_dim));
    AttentionUnit u{};
    u.q = q.data();
    u.q_token_stride = u.out_token_stride = width;
    u.out = out.data();
    u.tokens = tokens;
    u.first_position = context - tokens;
    u.heads = heads;
    u.head_dim = head_dim;
    u.scale = 0.1f;
    u.k = k.data();
    u.v = v.data();
    u.scratch = scratch.data();
    const double seconds = best_seconds([&] {
                               for (int i = 0; i < 20; ++i)
                                   kernels.attention[static_cast<int>(KvType::f16)](u);
                           }) /
                           20;
    const double macs = 2.0 * tokens * heads * head_dim * context;
    std::printf("attention dim %3d heads %d tokens %2d context %4d: %.1f us, %.1f GMAC/s, %.1f GB/s of KV\n",
                head_dim, heads, tokens, context, seconds * 1e6, macs / seconds * 1e-9,
                static_cast<double>(2 * blocks * 32 * dim * 2) / seconds * 1e-9);
}

void bench_rows(const Kernels& kernels) {
    for (size_t n : {size_t{576}, size_t{1536}, size_t{8960}}) {
        std::vector<float> x(n), w(n, 1.0f), y(n);
        for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<int>(i % 37) - 18) * 0.1f;
        const Buffer q(n), s(n / 32 * 6 * 4);
        auto* f = reinterpret_cast<float*>(s.data);
        const QuantizedRow row{reinterpret_cast<int8_t*>(q.data), f, f, f, f, f};
        const double norm = best_seconds([&] {
            for (int i = 0; i < 2000; ++i) kernels.rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
        });
        const double quantize = best_seconds([&] {
            for (int i = 0; i < 2000; ++i) kernels.quantize(x.data(), n, row);
        });
        const double swiglu = best_seconds([&] {
            for (int i = 0; i < 2000; ++i) kernels.swiglu(x.data(), w.data(), n, y.data());
        });
        std::printf("row of %4zu: rms_norm %.0f ns, quantize %.0f ns, swiglu %.0f ns\n", n, norm * 5e5,
                    quantize * 5e5, swiglu * 5e5);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const Kernels& kernels = argc > 1 ? kernels_named(argv[1]) : best_kernels();
    std::printf("kernels: %s\n", kernels.name);
    bench_gemm(kernels, 1536);
    bench_gemm(kernels, 576);
    bench_attention(kernels, 128, 6, 1, 2048);
    bench_attention(kernels, 128, 6, 8, 512);
    bench_attention(kernels, 64, 3, 16, 512);
    bench_rows(kernels);
    return 0;
}

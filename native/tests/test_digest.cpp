// One number for all kernels on fixed inputs. It is stored here, so that builds for different machines, which
// cannot be compared inside one process, must all give the same bits. A deliberate change of the arithmetic
// changes it: run the program, which prints the digest of every table, and store the new value.
#include <cstdio>

#include "attention_testing.h"
#include "check.h"
#include "gemm_testing.h"

using namespace kernel_testing;

namespace {

constexpr uint64_t kExpected = 0x8374c3ac723add3fULL;

/// FNV-1a, 64 bits.
class Digest {
  public:
    template <class T>
    void add(const T* values, size_t count) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(values);
        for (size_t i = 0; i < count * sizeof(T); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3ULL;
    }
    template <class T>
    void add(const Guarded<T>& values) {
        add(values.data(), values.size());
    }
    uint64_t value() const { return hash_; }

  private:
    uint64_t hash_ = 0xcbf29ce484222325ULL;
};

void add_products(const Kernels& kernels, Random& random, Digest& digest) {
    for (const Scheme scheme : all_schemes()) {
        for (const size_t columns : column_counts(scheme)) {
            const Tile tile = random_tile(random, scheme, columns);
            const Guarded<float> x = random_floats(random, 13 * columns);
            Rows rows(kernels, x, 13, columns);
            const edgeseek::QuantizedRow all = rows.row(0);
            const size_t groups = 13 * (columns / 32);
            digest.add(all.q, 32 * groups);
            digest.add(all.d, groups);
            digest.add(all.sum16, groups);
            digest.add(all.half32, 2 * groups);
            const std::vector<float> out = multiply(kernels, tile, rows);
            digest.add(out.data(), out.size());
        }
    }
}

void add_elementwise(const Kernels& kernels, Random& random, Digest& digest) {
    constexpr size_t n = 1003;
    Guarded<float> x = random_floats(random, n, -30.0f, 30.0f);
    const Guarded<float> y = random_floats(random, n);
    Guarded<float> out(n);
    kernels.rms_norm(x.data(), y.data(), n, 1e-5f, out.data());
    digest.add(out);
    kernels.swiglu(x.data(), y.data(), n, out.data());
    digest.add(out);
    kernels.add(x.data(), y.data(), n);
    digest.add(x);
    for (const size_t head_dim : {64, 80}) {
        Guarded<float> cosine(head_dim / 2), sine(head_dim / 2);
        for (size_t i = 0; i < head_dim / 2; ++i) {
            double s, c;
            edgeseek::exact_sincos(random.uniform(0.0f, 40000.0f), &s, &c);
            cosine[i] = static_cast<float>(c);
            sine[i] = static_cast<float>(s);
        }
        digest.add(cosine);
        digest.add(sine);
        kernels.rope(x.data(), 2, static_cast<int>(head_dim), cosine.data(), sine.data());
        digest.add(x);
        Guarded<uint16_t> k(32 * head_dim), v(head_dim);
        kernels.store_kv(x.data(), x.data() + 1, static_cast<int>(head_dim), k.data(), v.data());
        digest.add(k);
        digest.add(v);
    }
}

void add_attention(const Kernels& kernels, Random& random, Digest& digest) {
    const AttentionShape shapes[] = {
        {64, 3, 5, 0, 0}, {80, 2, 4, 29, 0}, {128, 7, 2, 510, 0}, {96, 1, 9, 250, 8}};
    for (const AttentionShape& s : shapes) {
        const PagedCache cache(random, s.first_position + s.tokens, s.head_dim);
        const Guarded<float> q = random_floats(random, s.tokens * s.heads * s.head_dim);
        digest.add(run_in_chunks(kernels, cache, s, q, s.tokens));
    }
}

void add_scalar_functions(Random& random, Digest& digest) {
    for (int i = 0; i < 1000; ++i) {
        const float e = edgeseek::exact_exp(random.uniform(-90.0f, 90.0f));
        const double l = edgeseek::exact_log(static_cast<double>(random.uniform(1e-6f, 100.0f)));
        digest.add(&e, 1);
        digest.add(&l, 1);
    }
}

uint64_t digest_of(const Kernels& kernels) {
    Random random(40);
    Digest digest;
    add_products(kernels, random, digest);
    add_elementwise(kernels, random, digest);
    add_attention(kernels, random, digest);
    add_scalar_functions(random, digest);
    return digest.value();
}

}  // namespace

TEST(all_kernels_give_the_stored_bits) {
    for (const Kernels* kernels : all_tables()) {
        const uint64_t digest = digest_of(*kernels);
        std::printf("    %-8s %016llx\n", kernels->name, static_cast<unsigned long long>(digest));
        std::fflush(stdout);
        CHECK_EQ(digest, kExpected);
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// Whole forward passes with latent attention: the bits do not depend on batching, chunks, threads or the
// instruction set, and what does not fit together is refused.
#include <cstdio>

#include "check.h"
#include "model_testing.h"

using namespace model_testing;

namespace {

// digest of all logits of the recorded runs; the same on every machine.
constexpr uint64_t kExpected = 0x7e193acaa6dcc368ULL;
constexpr uint64_t kExpectedLowRank = 0xedce02f9f97080b6ULL;

/// Latent attention in every scheme, with queries of rank 320 (above the hidden size) or straight ones.
struct LatentModel : TinyModel {
    explicit LatentModel(int query_rank) {
        tensors.clear();
        Random random(70);
        shape.layers = 2;
        shape.heads = 5;
        shape.kv_heads = 5;
        shape.head_dim = 48 + 32;
        shape.latent = {256, query_rank, 48, 32, 32, 0.11f, 1e-6f};
        shape.inverse_frequencies.resize(16);
        shape.windows = {0, 0};
        matrix(random, "embed", 99, 256, "q4k");
        matrix(random, "head", 99, 256, "q6k");
        vector(random, "final_norm.weight", 256);
        const char* const schemes[2][7] = {{"q4k", "q5z", "q6k", "q8", "q4k", "q4", "q5"},
                                           {"q8", "q4z", "f16", "f32", "f16", "q5", "q8"}};
        for (int i = 0; i < shape.layers; ++i) {
            const std::string p = "layers." + std::to_string(i) + ".";
            const char* const* scheme = schemes[i];
            vector(random, p + "attn_norm.weight", 256);
            vector(random, p + "mlp_norm.weight", 256);
            if (query_rank > 0) {
                const auto rank = static_cast<size_t>(query_rank);
                matrix(random, p + "attn.q_a", rank, 256, scheme[0]);
                vector(random, p + "attn.q_a.bias", rank);
                vector(random, p + "attn.q_a_norm.weight", rank);
                matrix(random, p + "attn.q_b", 400, rank, scheme[1]);
            } else {
                matrix(random, p + "attn.q", 400, 256, scheme[0]);
            }
            matrix(random, p + "attn.kv_a", 288, 256, scheme[2]);
            vector(random, p + "attn.kv_a.bias", 288);
            vector(random, p + "attn.kv_a_norm.weight", 256);
            matrix(random, p + "attn.k_b", 5 * 256, 48, scheme[3]);
            matrix(random, p + "attn.v_b", 5 * 32, 256, scheme[4]);
            matrix(random, p + "attn.o", 256, 160, scheme[5]);
            matrix(random, p + "mlp.gate", 512, 256, scheme[6]);
            matrix(random, p + "mlp.up", 512, 256, scheme[6]);
            matrix(random, p + "mlp.down", 256, 512, scheme[6]);
        }
    }
};

struct Rig {
    Rig(const TinyModel& tiny, const Kernels& kernels, int threads)
        : model(tiny.build()),
          pool(tiny.shape.kv(KvType::f16), 40),
          workers(threads),
          runner(*model, pool, workers, kernels, 300) {}
    std::unique_ptr<Model> model;
    KvPool pool;
    ThreadPool workers;
    Runner runner;
};

std::vector<float> logits_of(const TinyModel& tiny, const Kernels& kernels, int threads, size_t chunk) {
    Rig rig(tiny, kernels, threads);
    Random random(11);
    std::vector<Sequence> s;
    s.push_back(random_sequence(random, 290, {9, 0, 22, 3, 17, 4, 31, 8, 39, 1}, tiny.shape.vocab));
    run(rig.runner, tiny.shape, s, chunk);
    return s[0].logits;
}

}  // namespace

TEST(chunks_threads_and_instruction_sets_change_no_bit) {
    for (const int query_rank : {0, 320}) {
        const LatentModel tiny(query_rank);
        const std::vector<float> whole = logits_of(tiny, *scalar_kernels(), 1, 300);
        std::printf("    rank %d %016llx\n", query_rank, static_cast<unsigned long long>(digest(whole)));
        CHECK_EQ(digest(whole), query_rank == 0 ? kExpected : kExpectedLowRank);
        for (const float v : whole) REQUIRE(std::isfinite(v));
        CHECK(whole[0] != whole[99]);
        for (const Kernels* kernels : kernel_testing::all_tables()) {
            for (const size_t chunk : {size_t{1}, size_t{7}, size_t{64}}) {
                const int threads = chunk == 1 ? 2 : chunk == 7 ? 5 : 1;
                const std::vector<float> other = logits_of(tiny, *kernels, threads, chunk);
                CHECK_SAME_BITS(other.data(), whole.data(), whole.size());
            }
        }
    }
}

TEST(company_in_the_batch_changes_no_bit) {
    const LatentModel tiny(320);
    Random random(5);
    std::vector<Sequence> all;
    for (int i = 0; i < 8; ++i) {
        all.push_back(random_sequence(random, 3 + static_cast<size_t>(9 * i), {4 * i, 4 * i + 2, 4 * i + 1},
                                      tiny.shape.vocab));
    }
    for (const size_t chunk : {size_t{1}, size_t{5}, size_t{30}}) {
        Rig together(tiny, best_kernels(), 2);
        run(together.runner, tiny.shape, all, chunk);
        for (const Sequence& s : all) {
            Rig rig(tiny, best_kernels(), 2);
            std::vector<Sequence> alone{s};
            run(rig.runner, tiny.shape, alone, 300);
            CHECK_SAME_BITS(alone[0].logits.data(), s.logits.data(), s.logits.size());
        }
    }
}

TEST(tensors_and_sizes_that_contradict_each_other_are_refused) {
    const auto refused = [](int query_rank, auto change) {
        LatentModel tiny(query_rank);
        change(tiny);
        CHECK_THROWS(std::invalid_argument, tiny.build());
    };
    refused(320, [](TinyModel& t) { t.tensor("layers.1.attn.q_a_norm.weight").name = "other"; });
    refused(320, [](TinyModel& t) { t.tensor("layers.1.attn.q_b.weight").columns = 319; });
    refused(0, [](TinyModel& t) { t.tensor("layers.0.attn.kv_a.weight").rows = 287; });
    refused(0, [](TinyModel& t) { t.tensor("layers.0.attn.k_b.weight").bytes -= 1; });
    refused(0, [](TinyModel& t) { t.tensor("layers.0.attn.v_b.weight").name = "other"; });
    refused(0, [](TinyModel& t) { t.tensor("layers.0.attn.kv_a.bias").name = "layers.0.attn.k_b.bias"; });
    refused(0, [](TinyModel& t) { t.shape.latent.query_rank = 320; });
    refused(0, [](TinyModel& t) { t.shape.latent.rank = 255; });
    refused(0, [](TinyModel& t) { t.shape.latent.plain = 64; });
    refused(0, [](TinyModel& t) { t.shape.latent.value = -16; });
    refused(0, [](TinyModel& t) { t.shape.latent.scale = NAN; });
    refused(0, [](TinyModel& t) { t.shape.latent.rms_eps = -1.0f; });
    refused(0, [](TinyModel& t) { t.shape.inverse_frequencies.pop_back(); });
}

TEST(a_pool_of_another_kind_is_refused) {
    const LatentModel tiny(0);
    const std::unique_ptr<Model> model = tiny.build();
    ThreadPool workers(1);
    KvPool grouped(KvShape{2, 1, 288, KvType::f16, false}, 4);
    CHECK_THROWS(std::invalid_argument, Runner(*model, grouped, workers, best_kernels(), 8));
}

int main(int argc, char** argv) { return check::run(argc, argv); }

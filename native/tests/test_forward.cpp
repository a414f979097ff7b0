// Whole forward passes: the bits do not depend on batching, chunks, threads or the instruction set, bad
// batches are refused before anything is written, and taps show the activations.
#include "check.h"
#include "model_testing.h"

using namespace model_testing;

namespace {

// digest of all logits of the recorded run; the same on every machine.
constexpr uint64_t kExpected = 0x0a2e8ebf09b5cd81ULL;

struct Rig {
    Rig(const TinyModel& tiny, const Kernels& kernels, int threads, KvType type = KvType::f16)
        : model(tiny.build()),
          pool(tiny.shape.kv(type), 40),
          workers(threads),
          runner(*model, pool, workers, kernels, 300) {}
    std::unique_ptr<Model> model;
    KvPool pool;
    ThreadPool workers;
    Runner runner;
};

/// One sequence of 290 tokens (beyond a 256-position range) over scattered blocks.
std::vector<Sequence> long_sequence(const ModelShape& shape) {
    Random random(11);
    std::vector<Sequence> s;
    s.push_back(random_sequence(random, 290, {9, 0, 22, 3, 17, 4, 31, 8, 39, 1}, shape.vocab));
    return s;
}

std::vector<float> logits_of(const TinyModel& tiny, const Kernels& kernels, int threads, size_t chunk) {
    Rig rig(tiny, kernels, threads);
    std::vector<Sequence> s = long_sequence(tiny.shape);
    run(rig.runner, tiny.shape, s, chunk);
    return s[0].logits;
}

}  // namespace

TEST(logits_are_the_recorded_ones_on_every_instruction_set) {
    const TinyModel tiny;
    for (const Kernels* kernels : kernel_testing::all_tables()) {
        const uint64_t got = digest(logits_of(tiny, *kernels, 2, 64));
        std::printf("    %-8s %016llx\n", kernels->name, static_cast<unsigned long long>(got));
        CHECK_EQ(got, kExpected);
    }
}

TEST(logits_are_finite_and_vary) {
    const TinyModel tiny;
    const std::vector<float> logits = logits_of(tiny, best_kernels(), 1, 300);
    for (const float v : logits) REQUIRE(std::isfinite(v));
    CHECK(logits[0] != logits[99]);
    CHECK(logits[0] != logits[1]);
}

TEST(chunks_and_threads_change_no_bit) {
    const TinyModel tiny(20);
    const std::vector<float> whole = logits_of(tiny, best_kernels(), 1, 300);
    for (const size_t chunk : {size_t{1}, size_t{7}, size_t{64}}) {
        for (const int threads : {1, 2, 5}) {
            const std::vector<float> other = logits_of(tiny, best_kernels(), threads, chunk);
            CHECK_SAME_BITS(other.data(), whole.data(), whole.size());
        }
    }
}

TEST(norms_of_heads_change_the_logits_and_no_bit_between_ways) {
    const TinyModel plain;
    TinyModel tiny;
    tiny.add_head_norms();
    const auto logits = [](const TinyModel& model, const Kernels& kernels, int threads, size_t chunk) {
        Rig rig(model, kernels, threads);
        Random random(12);
        std::vector<Sequence> s{random_sequence(random, 40, {5, 2}, model.shape.vocab)};
        run(rig.runner, model.shape, s, chunk);
        return s[0].logits;
    };
    const std::vector<float> whole = logits(tiny, best_kernels(), 1, 40);
    const std::vector<float> without = logits(plain, best_kernels(), 1, 40);
    CHECK(std::memcmp(whole.data(), without.data(), whole.size() * sizeof(float)) != 0);
    for (const Kernels* kernels : kernel_testing::all_tables()) {
        for (const size_t chunk : {size_t{1}, size_t{7}}) {
            const std::vector<float> other = logits(tiny, *kernels, 2, chunk);
            CHECK_SAME_BITS(other.data(), whole.data(), whole.size());
        }
    }
}

TEST(long_contexts_are_the_same_bits_however_threads_share_them) {
    // Five ranges and two KV heads: three threads and more take ranges instead of whole heads.
    constexpr size_t kLength = 1100, kFed = 1088, kShort = 150;
    struct Case {
        std::vector<int> windows;
        KvType type;
    };
    for (const Case& c : {Case{{0, 0, 0}, KvType::int8}, Case{{0, 20, 300}, KvType::f16},
                          Case{{700, 600, 20}, KvType::f16}}) {
        TinyModel tiny;
        tiny.shape.windows = c.windows;
        Random random(12);
        std::vector<int32_t> blocks, others;
        for (int32_t i = 0; i < 35; ++i) blocks.push_back(34 - i);
        for (int32_t i = 35; i < 40; ++i) others.push_back(i);
        const Sequence whole = random_sequence(random, kLength, blocks, tiny.shape.vocab);
        const Sequence other = random_sequence(random, kShort, others, tiny.shape.vocab);
        const auto vocab = static_cast<size_t>(tiny.shape.vocab);
        Rig one(tiny, best_kernels(), 1, c.type);
        std::vector<Sequence> expected{whole};
        run(one.runner, tiny.shape, expected, 300);
        for (const int threads : {3, 8}) {
            Rig rig(tiny, best_kernels(), threads, c.type);
            std::vector<Sequence> s{whole, other};
            s[0].tokens.resize(kFed);
            run(rig.runner, tiny.shape, s, 100);
            for (const size_t chunk : {size_t{1}, size_t{5}}) {
                s[0].tokens = whole.tokens;
                run(rig.runner, tiny.shape, s, chunk, kFed);
                CHECK_SAME_BITS(s[0].logits.data() + kFed * vocab, expected[0].logits.data() + kFed * vocab,
                                (kLength - kFed) * vocab);
            }
        }
    }
}

TEST(company_in_the_batch_changes_no_bit) {
    const TinyModel tiny;
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

TEST(a_window_forgets_what_lies_before_it) {
    // With a window of 8 in all layers, three layers reach back 21 positions beyond a token's own.
    TinyModel tiny;
    tiny.shape.windows = {8, 8, 8};
    Rig rig(tiny, best_kernels(), 2);
    std::vector<Sequence> a = long_sequence(tiny.shape), b = a;
    b[0].tokens[0] = (b[0].tokens[0] + 1) % tiny.shape.vocab;
    run(rig.runner, tiny.shape, a, 64);
    run(rig.runner, tiny.shape, b, 64);
    const size_t vocab = 99, first_unaffected = 22;
    CHECK_SAME_BITS(a[0].logits.data() + first_unaffected * vocab,
                    b[0].logits.data() + first_unaffected * vocab,
                    a[0].logits.size() - first_unaffected * vocab);
    CHECK(std::memcmp(a[0].logits.data() + 7 * vocab, b[0].logits.data() + 7 * vocab,
                      vocab * sizeof(float)) != 0);
}

TEST(bad_batches_are_refused) {
    const TinyModel tiny;
    Rig rig(tiny, best_kernels(), 2);
    const int32_t tokens[] = {1, 2, 3}, blocks[] = {0, 40}, rows[] = {0, 1, 3};
    std::vector<float> logits(3 * 99);
    Batch good;
    good.tokens = tokens;
    good.total = 3;
    good.slices = {{3, 0, blocks, 1}};
    good.logit_rows = rows;
    good.logit_count = 2;
    rig.runner.forward(good, logits.data());
    const auto refused = [&](auto change) {
        Batch bad = good;
        change(bad);
        CHECK_THROWS(std::invalid_argument, rig.runner.forward(bad, logits.data()));
    };
    const int32_t outside[] = {1, 99, 3}, negative[] = {1, -1, 3};
    refused([&](Batch& b) { b.tokens = outside; });
    refused([&](Batch& b) { b.tokens = negative; });
    refused([&](Batch& b) { b.logit_count = 3; });  // row 3 of 3
    refused([&](Batch& b) { b.logit_count = 4; });
    refused([&](Batch& b) { b.slices[0].block_count = 2; });  // block 40 of 40
    refused([&](Batch& b) { b.slices[0].past = 30; });        // position 32 needs a second block
    refused([&](Batch& b) { b.slices[0].past = -1; });
    const std::vector<int32_t> repeated(50, 0);  // reaches further than 40 blocks can
    refused([&](Batch& b) { b.slices[0] = {3, 1500, repeated.data(), 50}; });
    refused([&](Batch& b) { b.slices[0].tokens = 2; });
    refused([&](Batch& b) { b.slices.push_back({0, 0, blocks, 1}); });
    refused([&](Batch& b) { b.total = 0; });
    refused([&](Batch& b) { b.total = 301; });
}

TEST(unknown_taps_are_refused_and_known_ones_filled) {
    const TinyModel tiny;
    Rig rig(tiny, best_kernels(), 2);
    const int32_t tokens[] = {5, 6}, blocks[] = {0}, rows[] = {1};
    Batch batch;
    batch.tokens = tokens;
    batch.total = 2;
    batch.slices = {{2, 0, blocks, 1}};
    batch.logit_rows = rows;
    batch.logit_count = 1;
    std::vector<float> logits(99), plain(99);
    rig.runner.forward(batch, plain.data());
    for (const std::string& name : rig.runner.tap_names()) {
        std::vector<Tap> taps{{name, {}, 0}};
        rig.runner.forward(batch, logits.data(), &taps);
        const size_t count = name == "final_norm" ? 1 : 2;
        CHECK_EQ(taps[0].values.size(), taps[0].width * count);
        CHECK(taps[0].width > 0);
        CHECK_SAME_BITS(logits.data(), plain.data(), logits.size());
    }
    std::vector<Tap> embed{{"embed", {}, 0}};
    rig.runner.forward(batch, logits.data(), &embed);
    std::vector<float> row(256);
    dequantize_row(rig.model->embedding(), 6, row.data());
    CHECK_SAME_BITS(embed[0].values.data() + 256, row.data(), row.size());
    std::vector<Tap> unknown{{"layers.9.output", {}, 0}};
    CHECK_THROWS(std::invalid_argument, rig.runner.forward(batch, logits.data(), &unknown));
}

TEST(tensors_that_contradict_the_shape_are_refused) {
    const auto refused = [](auto change) {
        TinyModel tiny;
        change(tiny);
        CHECK_THROWS(std::invalid_argument, tiny.build());
    };
    refused([](TinyModel& t) {
        t.tensors.pop_back();
        t.tensor("embed.weight").name = "other";
    });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").bytes -= 1; });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").rows = 287; });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").columns = 255; });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").scheme = "q3"; });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").layout = "rows"; });
    refused([](TinyModel& t) { t.tensor("layers.1.attn.q.weight").data += 4; });
    refused([](TinyModel& t) { t.tensor("layers.0.attn.q.bias").bytes = 287 * 4; });
    refused([](TinyModel& t) { t.tensor("final_norm.weight").scheme = "f16"; });
    refused([](TinyModel& t) { t.tensors.push_back(t.tensors[0]); });
    refused([](TinyModel& t) {
        t.add_head_norms();
        t.tensors.pop_back();  // k_norm of the last layer
    });
    refused([](TinyModel& t) {
        t.add_head_norms();
        t.tensor("layers.0.attn.q_norm.weight").rows = 47;
    });
    refused([](TinyModel& t) { t.shape.head_dim = 24; });
    refused([](TinyModel& t) { t.shape.kv_heads = 4; });
    refused([](TinyModel& t) { t.shape.layers = 0; });
    refused([](TinyModel& t) { t.shape.windows.pop_back(); });
    refused([](TinyModel& t) { t.shape.inverse_frequencies.pop_back(); });
    refused([](TinyModel& t) { t.shape.inverse_frequencies[3] = INFINITY; });
    refused([](TinyModel& t) { t.shape.rotary_scale = 0.0f; });
    refused([](TinyModel& t) { t.shape.vocab = -1; });
    refused([](TinyModel& t) { t.shape.rms_eps = NAN; });
}

int main(int argc, char** argv) { return check::run(argc, argv); }

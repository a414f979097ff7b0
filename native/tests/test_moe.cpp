// Layers with experts: which are chosen, that a row's bits depend on nothing else in the batch, and that
// experts nobody is routed to are never touched.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "check.h"
#include "model_testing.h"
#include "moe_plan.h"
#include "route.h"

using namespace model_testing;

namespace {

// digest of all logits of the recorded run; the same on every machine.
constexpr uint64_t kExpected = 0x65d60fb24eecd61cULL;

constexpr int kExperts = 12, kInner = 80, kShared = 112;

/// Layers 1 and 2 of three have experts, with a scheme of every kind; widths are no multiples of 32.
class MoeModel : public TinyModel {
  public:
    explicit MoeModel(bool shared = true) {
        Random random(70);
        MoeShape& m = shape.moe;
        m.experts = kExperts;
        m.experts_per_token = 3;
        m.intermediate = kInner;
        m.shared_intermediate = shared ? kShared : 0;
        m.first_layer = 1;
        const char* const up[] = {"q4k", "q5k", "q6k", "q8", "f16", "q4"};
        const char* const down[] = {"q4", "q8", "f32", "q5", "q5z", "q4z"};
        for (int i = 1; i < shape.layers; ++i) {
            const std::string p = "layers." + std::to_string(i) + ".mlp.";
            matrix(random, p + "router", kExperts, 256, "f32");
            matrix(random, p + "shared.gate", kShared, 256, "q4k");
            matrix(random, p + "shared.up", kShared, 256, "q8");
            matrix(random, p + "shared.down", 256, kShared, "q5");
            for (int e = 0; e < kExperts; ++e) {
                const std::string name = p + "experts." + std::to_string(e) + ".";
                matrix(random, name + "gate", kInner, 256, up[(e + i) % 6]);
                matrix(random, name + "up", kInner, 256, up[(e + 2 * i) % 6]);
                matrix(random, name + "down", 256, kInner, down[e % 6]);
            }
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

/// Values of tap `name` for a first step of `tokens`.
Tap tapped(Rig& rig, const std::vector<int32_t>& tokens, const std::string& name) {
    const int32_t blocks[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    Batch batch;
    batch.tokens = tokens.data();
    batch.total = static_cast<int>(tokens.size());
    batch.slices = {{batch.total, 0, blocks, 10}};
    std::vector<Tap> taps{{name, {}, 0}};
    rig.runner.forward(batch, nullptr, &taps);
    return taps[0];
}

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Routed routed(const MoeShape& moe, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
    RouteScratch scratch(moe);
    Routed r{std::vector<int32_t>(static_cast<size_t>(moe.experts_per_token)), {}};
    r.weights.resize(r.ids.size());
    route(moe, logits.data(), bias.empty() ? nullptr : bias.data(), scratch, r.ids.data(), r.weights.data());
    return r;
}

MoeShape small_shape(int per_token) {
    MoeShape m;
    m.experts = 6;
    m.experts_per_token = per_token;
    m.intermediate = 16;
    return m;
}

/// The inverse of the sigmoid.
float logit(float p) { return std::log(p / (1.0f - p)); }

}  // namespace

TEST(softmax_weights_are_those_of_the_largest_scores) {
    const std::vector<float> logits{0.5f, 3.0f, -1.0f, 2.0f, 0.0f, 2.5f};
    double sum = 0;
    for (const float v : logits) sum += std::exp(v);
    MoeShape moe = small_shape(3);
    Routed r = routed(moe, logits);
    CHECK(r.ids == (std::vector<int32_t>{1, 3, 5}));
    for (size_t i = 0; i < 3; ++i)
        CHECK_NEAR(r.weights[i], std::exp(logits[static_cast<size_t>(r.ids[i])]) / sum, 1e-6);
    moe.normalized = true;
    moe.scale = 2.5f;
    r = routed(moe, logits);
    CHECK_NEAR(r.weights[0] + r.weights[1] + r.weights[2], 2.5, 1e-6);
    CHECK_NEAR(r.weights[0] / r.weights[1], std::exp(1.0), 1e-5);
}

TEST(equal_scores_go_to_the_lower_ids) {
    CHECK(routed(small_shape(2), {1, 2, 2, 2, 1, 1}).ids == (std::vector<int32_t>{1, 2}));
}

TEST(groups_by_their_best_score_shut_out_the_others) {
    MoeShape moe = small_shape(2);
    moe.groups = 3;
    moe.groups_per_token = 1;
    // The two best are in different groups; the group of the best one wins.
    CHECK(routed(moe, {0.0f, 5.0f, 4.0f, 4.5f, -3.0f, -2.0f}).ids == (std::vector<int32_t>{0, 1}));
    moe.groups_per_token = 2;
    CHECK(routed(moe, {0.0f, 5.0f, 4.0f, 4.5f, -3.0f, 8.0f}).ids == (std::vector<int32_t>{1, 5}));
}

TEST(groups_by_their_two_best_scores_may_pass_over_the_best_expert) {
    MoeShape moe = small_shape(2);
    moe.scoring = Scoring::sigmoid;
    moe.groups = 2;
    moe.groups_per_token = 1;
    moe.group_score = GroupScore::two_best;
    const std::vector<float> logits{logit(0.9f), logit(0.1f), logit(0.1f),
                                    logit(0.6f), logit(0.5f), logit(0.7f)};
    const Routed r = routed(moe, logits);
    CHECK(r.ids == (std::vector<int32_t>{3, 5}));
    CHECK_NEAR(r.weights[0], 0.6, 1e-6);
    CHECK_NEAR(r.weights[1], 0.7, 1e-6);
}

TEST(a_bias_changes_the_choice_and_not_the_weights) {
    MoeShape moe = small_shape(2);
    moe.scoring = Scoring::sigmoid;
    moe.corrected = true;
    moe.normalized = true;
    const std::vector<float> logits{logit(0.9f), logit(0.8f), logit(0.2f),
                                    logit(0.3f), logit(0.4f), logit(0.5f)};
    const Routed r = routed(moe, logits, {-1.0f, 0.0f, 0.0f, 0.9f, 0.0f, 0.0f});
    CHECK(r.ids == (std::vector<int32_t>{1, 3}));
    CHECK_NEAR(r.weights[0], 0.8 / 1.1, 1e-6);
    CHECK_NEAR(r.weights[1], 0.3 / 1.1, 1e-6);
}

TEST(scores_that_are_not_numbers_still_give_distinct_experts) {
    for (const Scoring scoring : {Scoring::softmax, Scoring::sigmoid}) {
        MoeShape moe = small_shape(4);
        moe.scoring = scoring;
        moe.groups = 3;
        moe.groups_per_token = 2;
        moe.group_score = GroupScore::two_best;
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
            const Routed r = routed(moe, {bad, 1.0f, bad, bad, bad, bad});
            CHECK_EQ(std::set<int32_t>(r.ids.begin(), r.ids.end()).size(), size_t{4});
            for (const int32_t id : r.ids) CHECK(id >= 0 && id < 6);
        }
    }
}

TEST(a_plan_covers_every_slot_and_channel_once) {
    MoeShape moe = small_shape(2);
    moe.intermediate = 300;
    moe.shared_intermediate = 40;
    Random random(3);
    for (const int rows : {1, 2, 17, 400}) {
        std::vector<int32_t> ids;
        std::vector<float> weights;
        for (int r = 0; r < rows; ++r) {
            const auto first = static_cast<int32_t>(random.below(5));
            for (const int32_t id : {first, first + 1}) {
                ids.push_back(id);
                weights.push_back(random.uniform(0.0f, 1.0f));
            }
        }
        MoePlan plan(moe, 400);
        plan.make(rows, ids.data(), weights.data());
        size_t slots = 0;
        int expert = kSharedExperts - 1;
        for (const MoeSegment& s : plan.segments()) {
            CHECK(s.expert > expert);  // the shared ones first, then ids ascending
            expert = s.expert;
            const int pairs = ((s.expert == kSharedExperts ? 40 : 300) + 31) / 32;
            std::vector<int> seen(static_cast<size_t>(s.count * pairs), 0);
            for (int64_t t = s.first_task; t < s.end_task; ++t) {
                const MoeTask task = plan.task(s, t);
                for (int slot = task.first; slot < task.first + task.count; ++slot) {
                    for (int p = task.pair; p < task.end_pair; ++p)
                        ++seen[static_cast<size_t>((slot - s.first) * pairs + p)];
                }
            }
            for (const int n : seen) CHECK_EQ(n, 1);
            for (int slot = s.first; s.expert != kSharedExperts && slot < s.first + s.count; ++slot) {
                const auto i = static_cast<size_t>(2 * plan.row(s, slot));
                const size_t which = ids[i] == s.expert ? i : i + 1;
                CHECK_EQ(ids[which], s.expert);
                CHECK_EQ(plan.weight(s, slot), weights[which]);
                CHECK(slot == s.first || plan.row(s, slot) > plan.row(s, slot - 1));
                ++slots;
            }
        }
        CHECK_EQ(slots, ids.size());
    }
}

TEST(logits_with_experts_are_the_recorded_ones_on_every_instruction_set) {
    const MoeModel tiny;
    for (const Kernels* kernels : kernel_testing::all_tables()) {
        const std::vector<float> logits = logits_of(tiny, *kernels, 2, 64);
        for (const float v : logits) REQUIRE(std::isfinite(v));
        const uint64_t got = digest(logits);
        std::printf("    %-8s %016llx\n", kernels->name, static_cast<unsigned long long>(got));
        CHECK_EQ(got, kExpected);
    }
}

TEST(chunks_and_threads_change_no_bit_of_experts) {
    for (const bool shared : {true, false}) {
        const MoeModel tiny(shared);
        const std::vector<float> whole = logits_of(tiny, best_kernels(), 1, 300);
        for (const size_t chunk : {size_t{1}, size_t{3}, size_t{40}, size_t{300}}) {
            for (const int threads : {1, 2, 5}) {
                const std::vector<float> other = logits_of(tiny, best_kernels(), threads, chunk);
                CHECK_SAME_BITS(other.data(), whole.data(), whole.size());
            }
        }
    }
}

TEST(company_in_the_batch_changes_no_bit_of_experts) {
    const MoeModel tiny;
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

TEST(each_row_meets_its_own_experts) {
    // Recomputed in double from the taps before it; the core rounds the experts' inputs to int8.
    const MoeModel tiny;
    Rig rig(tiny, best_kernels(), 2);
    const std::vector<int32_t> tokens{5, 6, 7, 8, 9};
    const Layer& layer = rig.model->layers()[1];
    const Tap routing = tapped(rig, tokens, "layers.1.routing"), shared = tapped(rig, tokens, "layers.1.mlp");
    const Tap inner = tapped(rig, tokens, "layers.1.experts");
    const Tap normed = tapped(rig, tokens, "layers.1.mlp_norm");
    CHECK_EQ(routing.width, size_t{kExperts});
    CHECK_EQ(shared.width, size_t{kShared});
    CHECK_EQ(inner.width, size_t{3 * kInner});
    const auto rows_of = [](const Linear& linear) {
        std::vector<std::vector<float>> rows(linear.weight.rows, std::vector<float>(linear.weight.columns));
        for (size_t i = 0; i < rows.size(); ++i) dequantize_row(linear.weight, i, rows[i].data());
        return rows;
    };
    const auto dot = [](const std::vector<float>& a, const float* b) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        return sum;
    };
    for (size_t r = 0; r < tokens.size(); ++r) {
        const float* x = normed.values.data() + r * 256;
        size_t place = 0;
        for (size_t e = 0; e < kExperts; ++e) {
            if (routing.values[r * kExperts + e] == 0.0f) continue;
            const auto gate = rows_of(layer.experts[e].gate), up = rows_of(layer.experts[e].up);
            double difference = 0, size = 0;
            for (size_t i = 0; i < kInner; ++i) {
                const double g = dot(gate[i], x), want = g / (1 + std::exp(-g)) * dot(up[i], x);
                const double got = inner.values[r * inner.width + place * kInner + i];
                difference += (got - want) * (got - want);
                size += want * want;
            }
            CHECK(std::sqrt(difference / size) < 0.03);
            ++place;
        }
        CHECK_EQ(place, size_t{3});
    }
}

TEST(experts_without_rows_are_never_touched) {
    MoeModel tiny;
    // Each expert matrix on pages of its own.
    struct Pages {
        std::string name;
        uint8_t* data;
        size_t bytes;
    };
    std::vector<Pages> all;
    for (NamedTensor& t : tiny.tensors) {
        if (t.name.find(".experts.") == std::string::npos) continue;
        const size_t bytes = (t.bytes + 4095) / 4096 * 4096;
        void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(pages != MAP_FAILED);
        std::memcpy(pages, t.data, t.bytes);
        t.data = static_cast<uint8_t*>(pages);
        all.push_back({t.name, static_cast<uint8_t*>(pages), bytes});
    }
    Rig rig(tiny, best_kernels(), 2);
    const std::vector<int32_t> tokens{7, 3};
    std::set<std::string> used;
    for (const int layer : {1, 2}) {
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        const Tap routing = tapped(rig, tokens, prefix + "routing");
        for (size_t i = 0; i < routing.values.size(); ++i) {
            if (routing.values[i] != 0.0f)
                used.insert(prefix + "mlp.experts." + std::to_string(i % kExperts) + ".");
        }
    }
    CHECK(used.size() >= 6 && used.size() <= 12);
    const Tap before = tapped(rig, tokens, "layers.2.output");
    const Counters counted = rig.runner.counters();
    size_t bytes = 0;
    for (const Pages& p : all) {
        if (used.count(p.name.substr(0, p.name.rfind('.', p.name.rfind('.') - 1) + 1)) == 0) {
            REQUIRE(mprotect(p.data, p.bytes, PROT_NONE) == 0);
        } else {
            bytes += tiny.tensor(p.name).bytes;
        }
    }
    rig.model->populate();
    const Tap after = tapped(rig, tokens, "layers.2.output");
    CHECK_SAME_BITS(after.values.data(), before.values.data(), before.values.size());
    CHECK_EQ(rig.runner.counters().experts - counted.experts, used.size());
    CHECK_EQ(rig.runner.counters().expert_bytes - counted.expert_bytes, bytes);
    for (const Pages& p : all) munmap(p.data, p.bytes);
}

TEST(a_token_counts_the_bytes_of_its_experts) {
    const MoeModel tiny;
    const std::unique_ptr<Model> model = tiny.build();
    size_t all = 0;
    for (const NamedTensor& t : tiny.tensors) {
        if (t.name.find(".experts.") != std::string::npos) all += t.bytes;
    }
    MoeModel one;
    one.shape.moe.experts_per_token = 1;
    const size_t difference = model->bytes_per_token() - one.build()->bytes_per_token();
    CHECK_NEAR(static_cast<double>(difference), static_cast<double>(2 * all / kExperts), 4.0);
}

TEST(experts_that_contradict_the_shape_are_refused) {
    const auto refused = [](auto change) {
        MoeModel tiny;
        change(tiny);
        CHECK_THROWS(std::invalid_argument, tiny.build());
    };
    refused([](MoeModel& t) { t.tensor("layers.2.mlp.experts.11.down.weight").name = "other"; });
    refused([](MoeModel& t) { t.tensor("layers.1.mlp.experts.3.up.weight").rows = kInner - 1; });
    refused([](MoeModel& t) { t.tensor("layers.1.mlp.router.weight").scheme = "f16"; });
    refused([](MoeModel& t) { t.tensor("layers.1.mlp.shared.down.weight").bytes -= 1; });
    refused([](MoeModel& t) { t.shape.moe.corrected = true; });
    refused([](MoeModel& t) { t.shape.moe.experts_per_token = 13; });
    refused([](MoeModel& t) { t.shape.moe.experts_per_token = 0; });
    refused([](MoeModel& t) { t.shape.moe.groups = 5; });
    refused([](MoeModel& t) { t.shape.moe.groups_per_token = 2; });
    refused([](MoeModel& t) {
        t.shape.moe.groups = 6;  // of two experts each
        t.shape.moe.groups_per_token = 1;
    });
    refused([](MoeModel& t) {
        t.shape.moe.groups = t.shape.moe.groups_per_token = 12;
        t.shape.moe.group_score = GroupScore::two_best;
    });
    refused([](MoeModel& t) { t.shape.moe.layer_step = 0; });
    refused([](MoeModel& t) { t.shape.moe.intermediate = 0; });
    refused([](MoeModel& t) { t.shape.moe.scale = NAN; });
}

int main(int argc, char** argv) { return check::run(argc, argv); }

// edgeseek._core: the only file that knows both nanobind and the core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "edgeseek/isa.h"
#include "edgeseek/matrix.h"
#include "edgeseek/model.h"
#include "edgeseek/roofline.h"
#include "edgeseek/runner.h"
#include "edgeseek/sample.h"

#include "../kernels/table.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace edgeseek;

namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

/// Hands a heap array to numpy.
Floats2 owned_rows(std::unique_ptr<float[]> values, size_t rows, size_t columns) {
    float* data = values.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return Floats2(data, {rows, columns}, owner);
}

/// A model and the arrays whose memory its matrices point into.
struct BoundModel {
    std::vector<Bytes> keep_alive;
    std::unique_ptr<Model> model;
};

struct TensorArgument {
    std::string name, scheme, layout;
    size_t rows, columns;
    Bytes data;
};

using Fields = nb::typed<nb::dict, nb::str, nb::object>;

/// Experts from the fields of architectures.spec.MoE. Throws nb::cast_error or std::invalid_argument.
MoeShape moe_shape(const Fields& fields) {
    const auto number = [&](const char* name) { return nb::cast<int>(fields[name]); };
    const auto choice = [&](const char* name, const char* first, const char* second) {
        const auto text = nb::cast<std::string>(fields[name]);
        if (text != first && text != second) {
            throw std::invalid_argument(std::string(name) + " is '" + text + "', expected " + first + " or " +
                                        second);
        }
        return text == second;
    };
    MoeShape m;
    m.experts = number("num_experts");
    m.experts_per_token = number("experts_per_token");
    m.intermediate = number("intermediate_size");
    m.shared_intermediate = number("shared_size");
    m.first_layer = number("first_layer");
    m.layer_step = number("layer_step");
    m.scoring = choice("scoring", "softmax", "sigmoid") ? Scoring::sigmoid : Scoring::softmax;
    m.corrected = nb::cast<bool>(fields["corrected"]);
    m.groups = number("groups");
    m.groups_per_token = number("groups_per_token");
    m.group_score = choice("group_score", "best", "two_best") ? GroupScore::two_best : GroupScore::best;
    m.normalized = nb::cast<bool>(fields["normalized"]);
    m.scale = nb::cast<float>(fields["scale"]);
    return m;
}

/// Latent attention from the fields of architectures.spec.LatentAttention and its softmax scale.
LatentShape latent_shape(const Fields& fields) {
    const auto number = [&](const char* name) { return nb::cast<int>(fields[name]); };
    LatentShape l;
    l.rank = number("rank");
    l.query_rank = number("query_rank");
    l.plain = number("plain_dim");
    l.rotated = number("rotated_dim");
    l.value = number("value_dim");
    l.rms_eps = nb::cast<float>(fields["rms_eps"]);
    l.scale = nb::cast<float>(fields["softmax_scale"]);
    return l;
}

struct BoundRunner {
    BoundRunner(BoundModel& model, KvPool& pool, ThreadPool& threads, const std::optional<std::string>& isa,
                int max_tokens)
        : kernels(isa ? kernels_named(*isa) : best_kernels()),
          vocab(static_cast<size_t>(model.model->shape().vocab)),
          runner(*model.model, pool, threads, kernels, max_tokens) {}
    const Kernels& kernels;
    size_t vocab;
    Runner runner;
};

std::pair<Floats2, std::map<std::string, Floats2>> forward(
    BoundRunner& self, const Vector<int32_t>& tokens, const Vector<int32_t>& slice_tokens,
    const Vector<int32_t>& slice_past, const Table& tables, const Vector<int32_t>& table_sizes,
    const Vector<int32_t>& logit_rows, const std::vector<std::string>& tap_names) {
    const size_t slices = slice_tokens.shape(0);
    if (slice_past.shape(0) != slices || tables.shape(0) != slices || table_sizes.shape(0) != slices) {
        throw std::invalid_argument(
            "slice_tokens, slice_past, tables and table_sizes must have one entry per slice");
    }
    if (tokens.shape(0) > 1u << 30 || logit_rows.shape(0) > tokens.shape(0)) {
        throw std::invalid_argument("more logit rows than tokens");
    }
    Batch batch;
    batch.tokens = tokens.data();
    batch.total = static_cast<int>(tokens.shape(0));
    for (size_t s = 0; s < slices; ++s) {
        if (table_sizes.data()[s] < 0 || static_cast<size_t>(table_sizes.data()[s]) > tables.shape(1)) {
            throw std::invalid_argument("a table size exceeds the table's width");
        }
        batch.slices.push_back({slice_tokens.data()[s], slice_past.data()[s],
                                tables.data() + s * tables.shape(1), table_sizes.data()[s]});
    }
    batch.logit_rows = logit_rows.data();
    batch.logit_count = static_cast<int>(logit_rows.shape(0));
    std::vector<Tap> taps;
    for (const std::string& name : tap_names) taps.push_back({name, {}, 0});
    std::unique_ptr<float[]> logits(new float[logit_rows.shape(0) * self.vocab]);
    {
        nb::gil_scoped_release release;
        self.runner.forward(batch, logits.get(), &taps);
    }
    std::map<std::string, Floats2> tapped;
    for (const Tap& tap : taps) {
        const size_t rows = tap.width == 0 ? 0 : tap.values.size() / tap.width;
        std::unique_ptr<float[]> copy(new float[tap.values.size()]);
        std::copy(tap.values.begin(), tap.values.end(), copy.get());
        tapped.emplace(tap.name, owned_rows(std::move(copy), rows, tap.width));
    }
    return {owned_rows(std::move(logits), logit_rows.shape(0), self.vocab), std::move(tapped)};
}

Floats2 dequantize(const std::string& scheme, const std::string& layout, size_t rows, size_t columns,
                   const Bytes& data, const Vector<int32_t>& wanted) {
    Matrix m;
    m.scheme = scheme_from_name(scheme);
    if (layout != "tiles" && layout != "rows") throw std::invalid_argument("layout must be tiles or rows");
    if (rows < 1 || columns < 1 || rows > 1u << 30 || columns > 1u << 30) {
        throw std::invalid_argument("rows and columns must be 1 to 2^30");
    }
    m.layout = layout == "tiles" ? Layout::tiles : Layout::rows;
    m.rows = rows;
    m.columns = columns;
    m.data = data.data();
    if (m.bytes() > data.shape(0)) {
        throw std::invalid_argument("the data hold " + std::to_string(data.shape(0)) +
                                    " bytes, the shape needs " + std::to_string(m.bytes()));
    }
    for (size_t i = 0; i < wanted.shape(0); ++i) {
        if (wanted.data()[i] < 0 || static_cast<size_t>(wanted.data()[i]) >= rows) {
            throw std::invalid_argument("row " + std::to_string(wanted.data()[i]) + " of " +
                                        std::to_string(rows));
        }
    }
    std::unique_ptr<float[]> out(new float[wanted.shape(0) * columns]);
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < wanted.shape(0); ++i) {
            dequantize_row(m, static_cast<size_t>(wanted.data()[i]), out.get() + i * columns);
        }
    }
    return owned_rows(std::move(out), wanted.shape(0), columns);
}

template <class T>
const T* checked(const Vector<T>& array, size_t length, const char* name) {
    if (array.shape(0) != length) throw std::invalid_argument(std::string(name) + " has the wrong length");
    return array.data();
}

std::tuple<int32_t, double, std::vector<int32_t>, std::vector<double>> draw(
    const Vector<float>& logits, float temperature, int32_t top_k, double top_p, double min_p,
    float repetition_penalty, float presence_penalty, float frequency_penalty,
    const Vector<int32_t>& seen_ids, const Vector<int32_t>& output_ids, const Vector<int32_t>& output_counts,
    const Vector<int32_t>& bias_ids, const Vector<float>& bias_values, uint64_t seed, uint64_t position,
    int32_t top_logprobs) {
    SampleParams p;
    p.temperature = temperature;
    p.top_k = top_k;
    p.top_p = top_p;
    p.min_p = min_p;
    p.repetition_penalty = repetition_penalty;
    p.presence_penalty = presence_penalty;
    p.frequency_penalty = frequency_penalty;
    p.seen_ids = seen_ids.data();
    p.num_seen = seen_ids.shape(0);
    p.output_ids = output_ids.data();
    p.num_output = output_ids.shape(0);
    p.output_counts = checked(output_counts, p.num_output, "output_counts");
    p.bias_ids = bias_ids.data();
    p.num_bias = bias_ids.shape(0);
    p.bias_values = checked(bias_values, p.num_bias, "bias_values");
    p.seed = seed;
    p.position = position;
    p.top_logprobs = top_logprobs;
    SampleResult result;
    {
        nb::gil_scoped_release release;
        thread_local SampleScratch scratch;
        result = sample(logits.data(), logits.shape(0), p, scratch);
    }
    return {result.token, result.logprob, std::move(result.top_ids), std::move(result.top_logprobs)};
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() =
        "The native core: packed weights, paged attention, sampling. Knows nothing of text, files or HTTP.";
    m.attr("__version__") = EDGESEEK_VERSION;
    // A second Ctrl-C ends the interpreter with models still referenced from its frames.
    nb::set_leak_warnings(false);

    m.def("supported_isas", &supported_isas,
          "Instruction sets that this machine and build support, fastest first; the last is 'scalar'.");

    nb::class_<ThreadPool>(m, "ThreadPool", "The compute threads, the caller included.")
        .def(nb::init<int, std::vector<int>>(), "threads"_a, "cpus"_a = std::vector<int>{},
             "With `cpus`, the threads and whoever runs a step on them stay on those processors.")
        .def_prop_ro("size", &ThreadPool::size);

    nb::class_<KvPool>(
        m, "KvPool",
        "KV cache of `blocks` blocks of 32 positions, allocated once; `type` is 'f16' or 'int8'.")
        .def(
            "__init__",
            [](KvPool* self, int layers, int kv_heads, int head_dim, int blocks, const std::string& type,
               bool latent) {
                if (type != "f16" && type != "int8") {
                    throw std::invalid_argument("a KV cache is f16 or int8, not '" + type + "'");
                }
                const KvType kind = type == "f16" ? KvType::f16 : KvType::int8;
                new (self) KvPool(KvShape{layers, kv_heads, head_dim, kind, latent}, blocks);
            },
            "layers"_a, "kv_heads"_a, "head_dim"_a, "blocks"_a, "type"_a = "f16", "latent"_a = false,
            "`latent`: one plane of `head_dim` values a token, which all heads read; kv_heads is 1 then.")
        .def_prop_ro("blocks", &KvPool::blocks)
        .def_prop_ro("block_bytes", [](const KvPool& p) { return p.shape().block_bytes(); })
        .def_prop_ro("bytes", &KvPool::bytes)
        .def(
            "release",
            [](KvPool& p, const Vector<int32_t>& blocks) {
                return p.release(blocks.data(), blocks.shape(0));
            },
            "blocks"_a,
            "Gives the pages of unused blocks back to the system; returns the bytes that were in memory. "
            "They "
            "read as zeros until written again. Raises ValueError for a block that there is not.");

    nb::class_<BoundModel>(m, "Model",
                           "A decoder-only transformer over mapped, packed tensors, which it keeps alive.")
        .def(
            "__init__",
            [](BoundModel* self, int layers, int hidden, int intermediate, int heads, int kv_heads,
               int head_dim, int vocab, float rms_eps, bool tied_embeddings,
               const std::vector<float>& inverse_frequencies, const std::vector<int>& windows,
               const std::vector<std::tuple<std::string, std::string, std::string, size_t, size_t, Bytes>>&
                   tensors,
               float rotary_scale, const std::optional<Fields>& moe, const std::optional<Fields>& latent) {
                ModelShape shape;
                shape.layers = layers;
                shape.hidden = hidden;
                shape.intermediate = intermediate;
                shape.heads = heads;
                shape.kv_heads = kv_heads;
                shape.head_dim = head_dim;
                shape.vocab = vocab;
                shape.rms_eps = rms_eps;
                shape.tied_embeddings = tied_embeddings;
                shape.inverse_frequencies = inverse_frequencies;
                shape.windows = windows;
                shape.rotary_scale = rotary_scale;
                if (moe) shape.moe = moe_shape(*moe);
                if (latent) shape.latent = latent_shape(*latent);
                std::vector<NamedTensor> named;
                std::vector<Bytes> keep;
                for (const auto& [name, scheme, layout, rows, columns, data] : tensors) {
                    named.push_back({name, scheme, layout, rows, columns, data.data(), data.shape(0)});
                    keep.push_back(data);
                }
                auto model = std::make_unique<Model>(std::move(shape), named);
                new (self) BoundModel{std::move(keep), std::move(model)};
            },
            nb::kw_only(), "layers"_a, "hidden"_a, "intermediate"_a, "heads"_a, "kv_heads"_a, "head_dim"_a,
            "vocab"_a, "rms_eps"_a, "tied_embeddings"_a, "inverse_frequencies"_a, "windows"_a, "tensors"_a,
            "rotary_scale"_a = 1.0f, "moe"_a.none() = nb::none(), "latent"_a.none() = nb::none(),
            "Tensors are (name, scheme, layout, rows, columns, bytes). `rotary_scale` multiplies cosines and "
            "sines; `moe` holds the fields of architectures.spec.MoE, `latent` those of LatentAttention and "
            "softmax_scale. Raises ValueError naming what does not fit.")
        .def(
            "populate", [](const BoundModel& b) { b.model->populate(); },
            nb::call_guard<nb::gil_scoped_release>(),
            "Maps the weights' pages, in the order in which a step reads them. Releases the GIL.")
        .def(
            "lock", [](const BoundModel& b) { return b.model->lock(); },
            nb::call_guard<nb::gil_scoped_release>(),
            "Keeps the weights' pages in memory until they are unmapped. Returns 0 or the errno of mlock. "
            "Releases the GIL.")
        .def_prop_ro(
            "bytes_per_token", [](const BoundModel& b) { return b.model->bytes_per_token(); },
            "Bytes of weights that decoding one token reads.");

    nb::class_<SweepMemory>(m, "SweepMemory", "Memory that bandwidth is measured on, written once.")
        .def(nb::init<size_t>(), "bytes"_a)
        .def_prop_ro("bytes", &SweepMemory::bytes)
        .def("sweep", &SweepMemory::sweep, "threads"_a, "offset"_a = 0,
             nb::call_guard<nb::gil_scoped_release>(),
             "Bytes per second of one read-only sweep, every load `offset` bytes (0 to 63) after a 64-byte "
             "boundary. Releases the GIL.");

    m.def(
        "int8_peak",
        [](ThreadPool& threads, const std::optional<std::string>& isa, double seconds) {
            return int8_peak(threads, isa ? kernels_named(*isa) : best_kernels(), seconds);
        },
        "threads"_a, "isa"_a.none() = nb::none(), "seconds"_a = 0.5, nb::call_guard<nb::gil_scoped_release>(),
        "Multiply-accumulates per second of independent chains of int8 dot products on all threads. Releases "
        "the GIL.");

    nb::class_<BoundRunner>(m, "Runner",
                            "Runs steps of a model over a KV pool on a thread pool; not thread-safe.")
        .def(nb::init<BoundModel&, KvPool&, ThreadPool&, const std::optional<std::string>&, int>(), "model"_a,
             "pool"_a, "threads"_a, "isa"_a.none(), "max_tokens"_a, nb::keep_alive<1, 2>(),
             nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
        .def("forward", &forward, "tokens"_a, "slice_tokens"_a, "slice_past"_a, "tables"_a, "table_sizes"_a,
             "logit_rows"_a, "taps"_a,
             "One step. Returns (logits [len(logit_rows), vocab], {tap: [rows, width]}). Raises ValueError "
             "on a token, "
             "position, block or row out of range, before anything is written. Releases the GIL.")
        .def_prop_ro("isa", [](const BoundRunner& r) { return r.kernels.name; })
        .def_prop_ro("max_tokens", [](const BoundRunner& r) { return r.runner.max_tokens(); })
        .def_prop_ro("buffer_bytes", [](const BoundRunner& r) { return r.runner.buffer_bytes(); })
        .def("tap_names", [](const BoundRunner& r) { return r.runner.tap_names(); })
        .def(
            "expert_steps", [](const BoundRunner& r) { return r.runner.expert_steps(); },
            "[layer * experts + expert]: the number of the last step, from 1 on, that ran the expert, 0 for "
            "none.")
        .def("counters", [](const BoundRunner& r) {
            const Counters& c = r.runner.counters();
            return std::map<std::string, uint64_t>{
                {"steps", c.steps},           {"tokens", c.tokens},   {"logit_rows", c.logit_rows},
                {"forward_ns", c.forward_ns}, {"experts", c.experts}, {"expert_bytes", c.expert_bytes}};
        });

    m.def("dequantize", &dequantize, "scheme"_a, "layout"_a, "rows"_a, "columns"_a, "data"_a, "wanted"_a,
          "Rows `wanted` of a packed matrix as float32 [len(wanted), columns].");
    m.def("sample", &draw, "logits"_a, nb::kw_only(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
          "repetition_penalty"_a, "presence_penalty"_a, "frequency_penalty"_a, "seen_ids"_a, "output_ids"_a,
          "output_counts"_a, "bias_ids"_a, "bias_values"_a, "seed"_a, "position"_a, "top_logprobs"_a,
          "Draws one token: (token, logprob, top_ids, top_logprobs). The fields are those of "
          "runtime.backend.SampleRow.");
}

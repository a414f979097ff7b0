#include "edgeseek/model.h"

#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>

#include <cmath>
#include <map>
#include <stdexcept>

namespace edgeseek {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

std::string shape_text(size_t rows, size_t columns) {
    return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

}  // namespace

/// Finds tensors by name and checks each against the shape the model expects.
class TensorTable {
  public:
    explicit TensorTable(const std::vector<NamedTensor>& tensors) {
        for (const NamedTensor& t : tensors) {
            if (!by_name_.emplace(t.name, &t).second) fail("tensor '" + t.name + "' is given twice");
        }
    }

    Matrix matrix(const std::string& name, size_t rows, size_t columns) const {
        const NamedTensor& t = find(name, rows, columns);
        Matrix m;
        m.scheme = scheme_from_name(t.scheme);
        if (t.layout != "tiles" && t.layout != "rows") {
            fail("tensor '" + name + "' has layout '" + t.layout + "', expected tiles or rows");
        }
        m.layout = t.layout == "tiles" ? Layout::tiles : Layout::rows;
        m.rows = rows;
        m.columns = columns;
        m.data = t.data;
        if (m.bytes() > t.bytes) {
            fail("tensor '" + name + "' holds " + std::to_string(t.bytes) + " bytes, its shape " +
                 shape_text(rows, columns) + " in " + t.scheme + " needs " + std::to_string(m.bytes()));
        }
        return m;
    }

    Linear linear(const std::string& name, size_t rows, size_t columns) const {
        Linear l;
        l.weight = matrix(name + ".weight", rows, columns);
        if (l.weight.layout != Layout::tiles) fail("tensor '" + name + ".weight' must have layout tiles");
        // Activations are padded to 32 columns; 256-column blocks must come whole.
        if (info(l.weight.scheme).block == 256 && columns % 256 != 0) {
            fail("tensor '" + name + ".weight' is " + info(l.weight.scheme).name + " with " +
                 std::to_string(columns) + " columns, which is no multiple of 256");
        }
        if (by_name_.count(name + ".bias") != 0) l.bias = vector(name + ".bias", rows);
        return l;
    }

    const float* vector(const std::string& name, size_t length) const {
        const NamedTensor& t = find(name, length, 1);
        if (t.scheme != "f32" || t.layout != "flat") fail("tensor '" + name + "' must be f32 and flat");
        if (t.bytes < length * sizeof(float)) fail("tensor '" + name + "' holds too few bytes");
        return reinterpret_cast<const float*>(t.data);
    }

    bool has(const std::string& name) const { return by_name_.count(name) != 0; }

  private:
    const NamedTensor& find(const std::string& name, size_t rows, size_t columns) const {
        const auto found = by_name_.find(name);
        if (found == by_name_.end()) fail("tensor '" + name + "' is missing");
        const NamedTensor& t = *found->second;
        if (t.rows != rows || t.columns != columns) {
            fail("tensor '" + name + "' has shape " + shape_text(t.rows, t.columns) + ", expected " +
                 shape_text(rows, columns));
        }
        if (t.data == nullptr || reinterpret_cast<uintptr_t>(t.data) % 64 != 0) {
            fail("tensor '" + name + "' does not start on a 64-byte boundary");
        }
        return t;
    }

    std::map<std::string, const NamedTensor*> by_name_;
};

namespace {

void within(int value, const char* name, int least, int most) {
    if (value < least || value > most) {
        fail(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) +
             " to " + std::to_string(most));
    }
}

void check(const MoeShape& m) {
    within(m.experts, "experts", 0, 1 << 12);
    if (m.experts == 0) return;
    within(m.intermediate, "expert intermediate", 1, 1 << 20);
    within(m.shared_intermediate, "shared intermediate", 0, 1 << 20);
    within(m.first_layer, "first layer with experts", 0, 1 << 12);
    within(m.layer_step, "step of layers with experts", 1, 1 << 12);
    within(m.groups, "expert groups", 1, m.experts);
    within(m.groups_per_token, "expert groups per token", 1, m.groups);
    if (m.experts % m.groups != 0) {
        fail("experts (" + std::to_string(m.experts) + ") must be a multiple of their groups (" +
             std::to_string(m.groups) + ")");
    }
    const int each = m.experts / m.groups;
    within(m.experts_per_token, "experts per token", 1, m.groups_per_token * each);
    if (m.group_score == GroupScore::two_best && m.groups > 1) within(each, "experts of a group", 2, 1 << 12);
    if (!(m.scale > 0.0f) || !std::isfinite(m.scale)) fail("expert scale must be finite and positive");
}

void check(const LatentShape& l, int head_dim) {
    within(l.rank, "rank of the latent vector", 0, 1 << 14);
    if (!l.exists()) return;
    within(l.query_rank, "rank of the queries' latent vector", 0, 1 << 20);
    within(l.plain, "dimensions that are not rotated", 1, 1 << 10);
    within(l.rotated, "rotated dimensions", 1, 1 << 10);
    within(l.value, "dimensions of a value", 1, 1 << 10);
    for (const int size : {l.rank, l.plain, l.rotated, l.value}) {
        if (size % 16 != 0) {
            fail("latent attention with " + std::to_string(size) +
                 " dimensions is not supported; its sizes must be multiples of 16");
        }
    }
    if (l.plain + l.rotated != head_dim) {
        fail("head_dim " + std::to_string(head_dim) + " is not the sum of " + std::to_string(l.plain) +
             " dimensions and " + std::to_string(l.rotated) + " rotated ones");
    }
    if (!(l.scale > 0.0f) || !std::isfinite(l.scale)) fail("the scale of scores must be finite and positive");
    if (!(l.rms_eps >= 0.0f) || !std::isfinite(l.rms_eps)) {
        fail("rms_eps of the latent vectors must be finite and not negative");
    }
}

void check(const ModelShape& s) {
    const auto positive = [](int value, const char* name, int most) { within(value, name, 1, most); };
    check(s.moe);
    check(s.latent, s.head_dim);
    positive(s.layers, "layers", 1 << 12);
    positive(s.hidden, "hidden", 1 << 20);
    positive(s.intermediate, "intermediate", 1 << 20);
    positive(s.heads, "heads", 1 << 12);
    positive(s.kv_heads, "kv_heads", 1 << 12);
    positive(s.head_dim, "head_dim", s.latent.exists() ? 1 << 11 : 256);
    positive(s.vocab, "vocab", 1 << 24);
    if (s.heads % s.kv_heads != 0) {
        fail("heads (" + std::to_string(s.heads) + ") must be a multiple of kv_heads (" +
             std::to_string(s.kv_heads) + ")");
    }
    if (s.head_dim % 16 != 0) {
        fail("head_dim " + std::to_string(s.head_dim) +
             " is not supported; it must be a multiple of 16 up to 256");
    }
    if (!(s.rms_eps >= 0.0f) || !std::isfinite(s.rms_eps)) fail("rms_eps must be finite and not negative");
    if (s.inverse_frequencies.size() != static_cast<size_t>(s.rotary_dim() / 2)) {
        fail("inverse_frequencies has " + std::to_string(s.inverse_frequencies.size()) +
             " entries, expected " + std::to_string(s.rotary_dim() / 2));
    }
    for (float f : s.inverse_frequencies) {
        if (!(f >= 0.0f) || !std::isfinite(f)) fail("inverse_frequencies must be finite and not negative");
    }
    if (!(s.rotary_scale > 0.0f) || !std::isfinite(s.rotary_scale)) {
        fail("rotary_scale must be finite and positive");
    }
    if (s.windows.size() != static_cast<size_t>(s.layers)) {
        fail("windows has " + std::to_string(s.windows.size()) + " entries, expected one for each of " +
             std::to_string(s.layers) + " layers");
    }
    for (int w : s.windows) {
        if (w < 0) fail("an attention window cannot be negative");
    }
}

}  // namespace

Model::Model(ModelShape shape, const std::vector<NamedTensor>& tensors) : shape_(std::move(shape)) {
    check(shape_);
    const TensorTable table(tensors);
    const auto hidden = static_cast<size_t>(shape_.hidden),
               intermediate = static_cast<size_t>(shape_.intermediate);
    const auto vocab = static_cast<size_t>(shape_.vocab);
    embedding_ = table.matrix("embed.weight", vocab, hidden);
    if (shape_.tied_embeddings) {
        if (embedding_.layout != Layout::tiles)
            fail("tensor 'embed.weight' is the head too and must have layout tiles");
        head_ = table.linear("embed", vocab, hidden);
    } else {
        head_ = table.linear("head", vocab, hidden);
    }
    final_norm_ = table.vector("final_norm.weight", hidden);
    for (int i = 0; i < shape_.layers; ++i) {
        const std::string prefix = "layers." + std::to_string(i) + ".";
        Layer layer;
        layer.attn_norm = table.vector(prefix + "attn_norm.weight", hidden);
        layer.mlp_norm = table.vector(prefix + "mlp_norm.weight", hidden);
        add_attention(layer, prefix + "attn.", table);
        if (shape_.moe.in_layer(i)) {
            add_experts(layer, prefix + "mlp.", table);
        } else {
            layer.gate = table.linear(prefix + "mlp.gate", intermediate, hidden);
            layer.up = table.linear(prefix + "mlp.up", intermediate, hidden);
            layer.down = table.linear(prefix + "mlp.down", hidden, intermediate);
        }
        layer.window = shape_.windows[static_cast<size_t>(i)];
        layers_.push_back(std::move(layer));
    }
}

void Model::add_experts(Layer& layer, const std::string& prefix, const TensorTable& table) const {
    const MoeShape& moe = shape_.moe;
    const auto hidden = static_cast<size_t>(shape_.hidden), inner = static_cast<size_t>(moe.intermediate);
    const auto experts = static_cast<size_t>(moe.experts);
    layer.router = table.linear(prefix + "router", experts, hidden);
    if (layer.router.weight.scheme != Scheme::f32) fail("tensor '" + prefix + "router.weight' must be f32");
    layer.router_bias = layer.router.bias;
    layer.router.bias = nullptr;
    if (moe.corrected != (layer.router_bias != nullptr)) {
        fail("tensor '" + prefix + "router.bias' " + (moe.corrected ? "is missing" : "has no use here"));
    }
    if (moe.shared_intermediate > 0) {
        const auto wide = static_cast<size_t>(moe.shared_intermediate);
        layer.gate = table.linear(prefix + "shared.gate", wide, hidden);
        layer.up = table.linear(prefix + "shared.up", wide, hidden);
        layer.down = table.linear(prefix + "shared.down", hidden, wide);
    }
    for (size_t e = 0; e < experts; ++e) {
        const std::string name = prefix + "experts." + std::to_string(e) + ".";
        layer.experts.push_back({table.linear(name + "gate", inner, hidden),
                                 table.linear(name + "up", inner, hidden),
                                 table.linear(name + "down", hidden, inner)});
    }
}

void Model::add_attention(Layer& layer, const std::string& prefix, const TensorTable& table) const {
    const auto hidden = static_cast<size_t>(shape_.hidden), heads = static_cast<size_t>(shape_.heads);
    layer.o = table.linear(prefix + "o", hidden, shape_.attn_width());
    const LatentShape& latent = shape_.latent;
    if (!latent.exists()) {
        if (table.has(prefix + "q_norm.weight") || table.has(prefix + "k_norm.weight")) {
            layer.q_norm = table.vector(prefix + "q_norm.weight", static_cast<size_t>(shape_.head_dim));
            layer.k_norm = table.vector(prefix + "k_norm.weight", static_cast<size_t>(shape_.head_dim));
        }
        layer.q = table.linear(prefix + "q", shape_.q_width(), hidden);
        layer.k = table.linear(prefix + "k", shape_.kv_width(), hidden);
        layer.v = table.linear(prefix + "v", shape_.kv_width(), hidden);
        return;
    }
    const auto rank = static_cast<size_t>(latent.rank), query_rank = static_cast<size_t>(latent.query_rank);
    if (latent.query_rank > 0) {
        layer.query_a = table.linear(prefix + "q_a", query_rank, hidden);
        layer.query_norm = table.vector(prefix + "q_a_norm.weight", query_rank);
        layer.q = table.linear(prefix + "q_b", shape_.q_width(), query_rank);
    } else {
        layer.q = table.linear(prefix + "q", shape_.q_width(), hidden);
    }
    layer.kv_a = table.linear(prefix + "kv_a", static_cast<size_t>(latent.width()), hidden);
    layer.kv_norm = table.vector(prefix + "kv_a_norm.weight", rank);
    layer.k_b = table.linear(prefix + "k_b", heads * rank, static_cast<size_t>(latent.plain));
    layer.v_b = table.linear(prefix + "v_b", heads * static_cast<size_t>(latent.value), rank);
    for (const Linear* part : {&layer.k_b, &layer.v_b}) {
        if (part->bias != nullptr) fail("tensors '" + prefix + "k_b' and 'v_b' have no bias");
    }
}

/// Visits the matrices that every token reads, in the order in which a step reads them.
template <class F>
void Model::each_matrix(const F& visit) const {
    for (const Layer& l : layers_) {
        for (const Linear* w : {&l.query_a, &l.q, &l.k, &l.v, &l.kv_a, &l.k_b, &l.v_b, &l.o, &l.router,
                                &l.gate, &l.up, &l.down}) {
            if (w->weight.exists()) visit(w->weight);
        }
    }
    visit(head_.weight);
}

size_t Model::bytes_per_token() const {
    size_t total = embedding_.tile_bytes() / embedding_.interleave();
    each_matrix([&](const Matrix& m) { total += m.bytes(); });
    for (const Layer& l : layers_) {
        size_t experts = 0;
        for (const Expert& e : l.experts) {
            experts += e.gate.weight.bytes() + e.up.weight.bytes() + e.down.weight.bytes();
        }
        if (experts > 0) {
            total += experts / l.experts.size() * static_cast<size_t>(shape_.moe.experts_per_token);
        }
    }
    return total;
}

namespace {

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#endif

struct Pages {
    void* begin;
    size_t bytes;
};

Pages pages_of(const Matrix& matrix) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(matrix.data) / page * page;
    return {reinterpret_cast<void*>(begin),
            reinterpret_cast<uintptr_t>(matrix.data) + matrix.bytes() - begin};
}

}  // namespace

void Model::populate() const {
    each_matrix([](const Matrix& m) {
        const Pages p = pages_of(m);
        if (madvise(p.begin, p.bytes, MADV_POPULATE_READ) != 0) madvise(p.begin, p.bytes, MADV_WILLNEED);
    });
}

int Model::lock() const {
    int failed = 0;
    each_matrix([&](const Matrix& m) {
        const Pages p = pages_of(m);
        if (failed == 0 && mlock(p.begin, p.bytes) != 0) failed = errno;
    });
    return failed;
}

}  // namespace edgeseek

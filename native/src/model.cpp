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

void check(const ModelShape& s) {
    const auto positive = [](int value, const char* name, int most) {
        if (value < 1 || value > most) {
            fail(std::string(name) + " is " + std::to_string(value) + ", expected 1 to " +
                 std::to_string(most));
        }
    };
    positive(s.layers, "layers", 1 << 12);
    positive(s.hidden, "hidden", 1 << 20);
    positive(s.intermediate, "intermediate", 1 << 20);
    positive(s.heads, "heads", 1 << 12);
    positive(s.kv_heads, "kv_heads", 1 << 12);
    positive(s.head_dim, "head_dim", 256);
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
    if (s.inverse_frequencies.size() != static_cast<size_t>(s.head_dim / 2)) {
        fail("inverse_frequencies has " + std::to_string(s.inverse_frequencies.size()) +
             " entries, expected " + std::to_string(s.head_dim / 2));
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
        if (table.has(prefix + "attn.q_norm.weight") || table.has(prefix + "attn.k_norm.weight")) {
            layer.q_norm = table.vector(prefix + "attn.q_norm.weight", static_cast<size_t>(shape_.head_dim));
            layer.k_norm = table.vector(prefix + "attn.k_norm.weight", static_cast<size_t>(shape_.head_dim));
        }
        layer.q = table.linear(prefix + "attn.q", shape_.q_width(), hidden);
        layer.k = table.linear(prefix + "attn.k", shape_.kv_width(), hidden);
        layer.v = table.linear(prefix + "attn.v", shape_.kv_width(), hidden);
        layer.o = table.linear(prefix + "attn.o", hidden, shape_.q_width());
        layer.gate = table.linear(prefix + "mlp.gate", intermediate, hidden);
        layer.up = table.linear(prefix + "mlp.up", intermediate, hidden);
        layer.down = table.linear(prefix + "mlp.down", hidden, intermediate);
        layer.window = shape_.windows[static_cast<size_t>(i)];
        layers_.push_back(layer);
    }
}

/// Visits the matrices that every token reads, in the order in which a step reads them.
template <class F>
void Model::each_matrix(const F& visit) const {
    for (const Layer& l : layers_) {
        for (const Linear* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) visit(w->weight);
    }
    visit(head_.weight);
}

size_t Model::bytes_per_token() const {
    size_t total = embedding_.tile_bytes() / embedding_.interleave();
    each_matrix([&](const Matrix& m) { total += m.bytes(); });
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

#include "decode/fused/cuda/model_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/check.h"
#include "decode/fused/cuda/text_writer.h"
#include "ops/cuda/tiled_weights.h"

namespace weft {
namespace text {
extern const char* const decode_model;
}  // namespace text

namespace decode::fused {
namespace {

// Among a layer's offsets in ModelArgs.
int index_in_layer(WeightRole role) { return static_cast<int>(std::ranges::find(kMatrixRoles, role) - kMatrixRoles); }

std::string_view type_name_of(WeightRole role) {
  switch (role) {
    case WeightRole::qkv: return "Qkv";
    case WeightRole::output: return "Output";
    case WeightRole::gate_up: return "GateUp";
    case WeightRole::down: return "Down";
    case WeightRole::head: return "Head";
    default: return "Embedding";
  }
}

// Of the first operation of that kind that writes the buffer.
const Operation* find(const Program& program, OperationKind kind, Buffer writes) {
  for (const Operation& operation : program.operations)
    if (operation.kind == kind && operation.writes[0] == writes) return &operation;
  return nullptr;
}

// A number of C++: with a point or an exponent.
std::string number(float x) {
  std::string text = fmt::format("{}", x);
  return text.find_first_of(".e") == std::string::npos ? text + "." : text;
}

// A product of a layer, and what follows it up to the next one.
struct ProductOfLayer {
  WeightRole role;
  std::string_view type;       // of its weights, a struct of tile/cuda
  Shared from;                 // what it multiplies
  std::vector<size_t> behind;  // among the layer's phases
};
std::vector<ProductOfLayer> products_of_layer(const Partition& partition) {
  std::vector<ProductOfLayer> products;
  const std::span<const Phase> phases = partition.phases.first_layer();
  for (size_t i = 0; i < phases.size(); ++i) {
    const WeightRole role = phases[i].role;
    if (phases[i].multiplies())
      products.push_back({.role = role,
                          .type = ops::tile_struct(one_type_of(partition.matrix_of(role, 0).tiles, to_string(role))),
                          .from = i == 0 ? Shared::normed : phases[i - 1].writes,
                          .behind = {}});
    else
      products.back().behind.push_back(i);
  }
  return products;
}
std::vector<std::string_view> types_of(const std::vector<ProductOfLayer>& products) {
  std::vector<std::string_view> types;
  for (const ProductOfLayer& product : products)
    if (std::ranges::find(types, product.type) == types.end()) types.push_back(product.type);
  return types;
}

class ModelWriter {
 public:
  ModelWriter(const Partition& partition, const ModelShape& shape)
      : partition_(partition),
        program_(partition.program),
        shape_(shape),
        phases_(partition.phases.first_layer()),
        products_(products_of_layer(partition)),
        types_(types_of(products_)) {}

  std::string write(const std::string& symbol) {
    text_.line("// A step of up to {} row{} of a model of {} layers: {} columns, {} query and {} KV heads of {}.",
               shape_.sizes.rows, shape_.sizes.rows == 1 ? "" : "s", program_.num_layers,
               program_.cols_of(Buffer::residual), program_.num_qo_heads, program_.num_kv_heads, program_.head_dim);
    text_.block("namespace weft::decode::fused", [&] {
      shape();
      matrices();
      products();
      copies();
      steps();
    });
    kernel(symbol);
    return text_.take();
  }

 private:
  void shape() {
    const ModelSizes& sizes = shape_.sizes;
    const Operation attend = attends() ? main_of_attention() : Operation{};
    text_.block(
        "struct Model",
        [&] {
          text_.line(
              "static constexpr ModelSizes kSizes{{.rows = {}, .x_cols = {}, .half_parts = {}, .round_entries = {}, "
              ".slots = {}, .squares = {}, .owned = {}, .kept_sums = {}, .ring_bytes = {}, .ring_entries = {}, "
              ".head_dim = {}, .heads = {}, .qkv_panels = {}, .kinds = {}}};",
              sizes.rows, sizes.x_cols, sizes.half_parts, sizes.round_entries, sizes.slots, sizes.squares, sizes.owned,
              sizes.kept_sums, sizes.ring_bytes, sizes.ring_entries, sizes.head_dim, sizes.heads, sizes.qkv_panels,
              sizes.kinds);
          text_.line("static constexpr int kWorkers = {}, kLayers = {}, kPhases = {}, kHidden = {}, kVocabulary = {};",
                     partition_.machine.workers, program_.num_layers, partition_.phases.size(),
                     program_.cols_of(Buffer::residual), program_.cols_of(Buffer::logits));
          text_.line("static constexpr int kHeads = {}, kKvHeads = {}, kHeadDim = {};", program_.num_qo_heads,
                     program_.num_kv_heads, program_.head_dim);
          text_.line("static constexpr float kNormEps = {}f, kScale = {}f, kSoftCap = {}f;", number(program_.norm_eps),
                     number(attend.scale), number(attend.soft_cap));
          text_.line("static constexpr int kChunk = {};  // tokens of an item", partition_.machine.kv_chunk);
          text_.line("static constexpr bool kLeavesTimes = {};", shape_.leaves_times);
          text_.line("static constexpr bool kIsGelu = {}, kTurnsHalves = {};", gate() == Gate::gelu_tanh, halves());
          text_.line("static constexpr i64 kVectors = {};  // of a layer", shape_.vectors_of_layer);
          text_.line(
              "static constexpr i64 kAttended = {}, kSquares = {}, kNormed = {}, kGated = {}, kBest = {}, kStates = "
              "{};  "
              "// cells",
              shape_.cells_of(Shared::attended), shape_.cells_of(Shared::squares), shape_.cells_of(Shared::normed),
              shape_.cells_of(Shared::gated), shape_.best, shape_.cells_of(Shared::states));
        },
        ";");
  }

  void matrices() {
    text_.line(
        "// weights, index, rows, columns, panels, columns of a tile, tiles of an entry, pieces of a band, first cell, "
        "slots");
    size_t slots = 0;
    const std::vector<const MatrixPartition*> all = kernel_matrices(partition_);
    for (size_t i = 0; i < all.size(); ++i) {
      const MatrixPartition& matrix = *all[i];
      text_.line("using {} = Matrix<tile::{}, {}, {}, {}, {}, {}, {}, {}, {}, {}>;", type_name_of(matrix.role),
                 ops::tile_struct(one_type_of(matrix.tiles, to_string(matrix.role))), i, matrix.tiles.rows,
                 matrix.tiles.cols, matrix.tiles.num_panels, matrix.tiles.tile_cols, matrix.entry_tiles(),
                 matrix.most_pieces(), matrix.role == WeightRole::head ? 0 : shape_.cells_of(shared_of(matrix.role)),
                 slots);
      slots += matrix.first_slot.size();
    }
    text_.line("using Embedding = Matrix<tile::{}, 0, {}, {}, 1, {}, 1, 1, 0, 0>;",
               ops::tile_struct(one_type_of(partition_.embedding, "embedding")), partition_.embedding.rows,
               partition_.embedding.cols, partition_.embedding.tile_cols);
  }

  void products() {
    text_.line("");
    text_.line("// A layer's products: the matrix, its offset and type among the layer's, and what it multiplies.");
    text_.block("WEFT_INLINE constexpr Product product_of(int i)", [&] {
      for (size_t i = 0; i < products_.size(); ++i) {
        const auto& [role, type, from, behind] = products_[i];
        text_.line("{}return Product::of<{}>({}, {}, Model::{}, {});",
                   i + 1 < products_.size() ? fmt::format("if (i == {}) ", i) : "", type_name_of(role),
                   index_in_layer(role), std::ranges::find(types_, type) - types_.begin(),
                   from == Shared::normed     ? "kNormed"
                   : from == Shared::attended ? "kAttended"
                                              : "kGated",
                   from == Shared::normed);
      }
    });
  }

  // A loop over the products of a layer: `multiply` writes what each does, `write` a phase that follows one.
  template <class Multiply, class Write>
  void each_product(const Multiply& multiply, const Write& write) {
    text_.line("WEFT_NO_UNROLL");
    text_.block(fmt::format("for (int i = 0; i < {}; ++i)", products_.size()), [&] {
      text_.line("const Product product = product_of(i);");
      multiply();
      for (size_t i = 0; i < products_.size(); ++i)
        if (!products_[i].behind.empty())
          text_.block(fmt::format("if (i == {})", i), [&] {
            for (const size_t phase : products_[i].behind) write(phase);
          });
    });
    text_.line("return true;");
  }

  void copies() {
    text_.line("");
    text_.line(
        "// What is copied, in the order of phases: false behind the last one that runs. Reductions copy nothing.");
    text_.block("WEFT_INLINE bool copy_layer(Copies<Model>& copies, int layer)", [&] {
      const auto multiply = [&] { text_.line("if (!copies.weights_of_layer(product, layer)) return false;"); };
      each_product(multiply, [&](size_t i) {
        const Phase& phase = phases_[i];
        if (phase.attends()) {
          text_.line("if (!copies.keys_and_values(layer, {})) return false;", kind_of_layer());
          text_.line("if (layer == Model::kLayers - 1 && !copies.wants_logits()) return false;");
        }
        if (phase.reduces()) text_.line("copies.skip();");
      });
    });
  }

  bool attends() const { return std::ranges::any_of(phases_, &Phase::attends); }

  // Which of ModelArgs::attention a layer has.
  std::string kind_of_layer() const {
    std::vector<bool> slides;
    for (const Operation& operation : program_.operations)
      if (operation.kind == OperationKind::attend) slides.push_back(operation.window > 0);
    if (std::ranges::none_of(slides, [](bool s) { return s; })) return "0";
    const int period = partition_.phases.layer_period;
    std::string full;
    for (int l = 0; l < period; ++l)
      if (!slides[static_cast<size_t>(l)])
        full += fmt::format("{}layer % {} == {}", full.empty() ? "" : " || ", period, l);
    return full.empty() ? "1" : fmt::format("{} ? 0 : 1", full);
  }

  // Of a layer; nullptr: the model has none of that role.
  std::string vector(WeightRole role) const {
    return is_matrix(role) || shape_.vector_of(role) < 0 ? "nullptr"
                                                         : fmt::format("vectors + {}", shape_.vector_of(role));
  }
  static WeightRole norm_of(WeightRole product) {
    return product == WeightRole::qkv ? WeightRole::attn_norm : WeightRole::ffn_norm;
  }

  // Calls of the phases of a layer behind products, the i-th of them.
  std::string call_of(size_t i) const {
    const Phase& phase = phases_[i];
    const std::string_view type = type_name_of(phase.role);
    if (phase.attends())
      return fmt::format("step.attention<Qkv>(layer, kind, {}, {}, {})", vector(WeightRole::qkv_bias),
                         vector(WeightRole::q_norm), vector(WeightRole::k_norm));
    if (phase.merges()) return "step.merge(kind)";
    return call_of_reduction(phase, type, i + 1);
  }
  std::string bias_of(const Phase& phase) const {
    for (const Operation& operation : operations_of(phase, program_))
      if (operation.kind == OperationKind::add_bias) return vector(operation.weights[0].role);
    return "nullptr";
  }
  std::string call_of_reduction(const Phase& phase, std::string_view type, size_t next) const {
    if (phase.writes == Shared::gated) return fmt::format("step.gate<{}>()", type);
    const bool attended = phase.role == WeightRole::output;
    const std::string bias = bias_of(phase);
    if (phase.writes == Shared::squares) return fmt::format("step.squares_of<{}>({})", type, bias);
    // The norm is the next product's.
    const std::string norm =
        next < phases_.size() ? vector(norm_of(phases_[next].role))
                              : fmt::format("step.norm_behind(layer, {})", shape_.vector_of(norm_of(phases_[0].role)));
    if (!phase.norms_sums) return fmt::format("step.add<{}>({}, {})", type, bias, norm);
    return fmt::format("step.add_normed({}, {})",
                       vector(attended ? WeightRole::attn_post_norm : WeightRole::ffn_post_norm), norm);
  }

  void steps() {
    text_.line("");
    text_.line("// A layer, phase by phase.");
    text_.block("WEFT_INLINE bool run_layer(Step<Model>& step, int layer)", [&] {
      text_.line("const float* const vectors = step.vectors_of(layer);");
      if (attends()) text_.line("const int kind = {};", kind_of_layer());
      const auto multiply = [&] {
        text_.line("if (i == 0 && layer == 0)");
        text_.line("  step.embedded<Embedding>(product, {}f, {});", number(embedding_scale()),
                   vector(norm_of(phases_[0].role)));
        text_.line("else");
        text_.line("  step.rows(product);");
        text_.line("if (!step.multiply<tile::{}>(product)) return false;", fmt::join(types_, ", tile::"));
      };
      each_product(multiply, [&](size_t i) {
        text_.line("if (!{}) return false;", call_of(i));
        if (phases_[i].attends()) text_.line("if (layer == Model::kLayers - 1 && !step.wants_logits()) return false;");
      });
    });
  }

  void kernel(const std::string& symbol) {
    text_.line("");
    text_.block(
        fmt::format("WEFT_KERNEL({}, 1) void {}(WEFT_PARAM weft::decode::fused::ModelArgs args)",
                    32 * kConsumerWarps + 32, symbol),
        [&] {
          text_.line("using namespace weft::decode::fused;");
          text_.line("const Worker<Model> worker(args);");
          if (attends()) text_.line("Near<Model>::fill_all(worker);");
          text_.line("worker.init();");
          text_.block("if (worker.copies())", [&] {
            text_.line("Copies<Model> copies(worker);");
            text_.line("int layer = 0;");
            text_.line("while (layer < Model::kLayers && copy_layer(copies, layer)) ++layer;");
            text_.line("if (layer == Model::kLayers) copies.weights(Product::of<Head>(0, 0, 0, true), args.head);");
            text_.line("return copies.end();");
          });
          text_.line("Step<Model> step(worker);");
          text_.line("for (int layer = 0; layer < Model::kLayers; ++layer)");
          text_.line("  if (!run_layer(step, layer)) return;");
          text_.line("if (step.logits<Head>({}f) && args.ids != nullptr) choose_ids<Head, Model>(args);",
                     number(logits_soft_cap()));
        });
  }

  const Operation& main_of_attention() const {
    const auto found = std::ranges::find(program_.operations, OperationKind::attend, &Operation::kind);
    ensure(found != program_.operations.end(), "a model without attention");
    return *found;
  }
  Gate gate() const {
    const Operation* gate = find(program_, OperationKind::gate, Buffer::gated);
    return gate == nullptr ? Gate::silu : gate->gate;
  }
  float embedding_scale() const { return program_.operations[0].scale; }
  float logits_soft_cap() const {
    const Operation* cap = find(program_, OperationKind::soft_cap, Buffer::logits);
    return cap == nullptr ? 0.f : cap->soft_cap;
  }
  bool halves() const { return program_.ropes[0].pairs == RopePairs::halves; }

  const Partition& partition_;
  const Program& program_;
  const ModelShape& shape_;
  std::span<const Phase> phases_;  // of a layer
  std::vector<ProductOfLayer> products_;
  std::vector<std::string_view> types_;  // of a layer's weights
  TextWriter text_;
};

}  // namespace

cuda::KernelText model_text(const Partition& partition, const ModelShape& shape) {
  // What differs in anything has a name of its own: errors and lists tell kernels by it.
  const std::string symbol = fmt::format("weft_step_of_{}{}", shape.sizes.rows, shape.leaves_times ? "_timed" : "");
  return {.name = fmt::format("fused step of {} rows, {} layers of {}", shape.sizes.rows, partition.program.num_layers,
                              partition.program.cols_of(Buffer::residual)),
          .symbol = symbol,
          .file = "decode/fused/cuda/kernels/model.h",
          .head = text::decode_model,
          .instances = ModelWriter(partition, shape).write(symbol),
          .threads = 32 * kConsumerWarps + 32,
          .shared_bytes = SharedLayout(shape.sizes).bytes};
}

}  // namespace decode::fused
}  // namespace weft

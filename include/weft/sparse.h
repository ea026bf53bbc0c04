// Sparse tensor programs: axes, buffers and iterations, how they are stored and scheduled, compiled for this machine or
// for a card, Device::cuda().
//
//   Program program = parse(text);                                 // docs/sparse.md shows the language
//   Operator op = compile(program, Device::cpu());
//   Structure graph = csr(m, n, indptr, indices);      // checked once, bound to any operator of that format
//   op.run({.structures = {{"J", graph}}, .buffers = {{"A", values}, {"B", b}, {"C", c}}});
//   spmm(graph, values, b, c);                         // ready operators are short helpers over the same path
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/device.h"
#include "weft/sparse_program.h"
#include "weft/tensor.h"

namespace weft::sparse {

// ---------------------------------------------------------------- structures

// Which coordinates a sparse tensor stores, without values: the arrays of a chain of axes. Immutable, shared by copies,
// safe to use from any thread.
class Structure {
 public:
  struct Data;
  Structure() = default;
  explicit Structure(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  explicit operator bool() const { return data_ != nullptr; }
  int64_t num_rows() const;
  int64_t num_cols() const;
  int64_t nnz() const;  // positions of the last axis: padding counts
  const std::shared_ptr<const Data>& data() const { return data_; }

 private:
  std::shared_ptr<const Data> data_;
};

// Each checks its arrays, copies them, and throws Error(invalid_indptr) or Error(invalid_argument) naming the first
// wrong element: an indptr begins at 0 and never falls, indices of a row rise and lie below the extent, and all fits 32
// bits.
Structure csr(int64_t num_rows, int64_t num_cols, std::span<const int32_t> indptr, std::span<const int32_t> indices);
// From arrays of 64 bits whose numbers fit 32, as other libraries give them.
Structure csr(int64_t num_rows, int64_t num_cols, std::span<const int64_t> indptr, std::span<const int64_t> indices);
// `width` places a row; a place that is not used holds num_cols, behind those that are.
Structure ell(int64_t num_rows, int64_t num_cols, int64_t width, std::span<const int32_t> indices);
// Rows of any length, dense: element j of row i is at column j.
Structure ragged(int64_t num_rows, int64_t max_length, std::span<const int32_t> indptr);

// Integers of either width, 0 to 2^31 - 1.
using IndexArray = std::variant<std::span<const int32_t>, std::span<const int64_t>>;
enum class AxisKind : uint8_t { dense_fixed, dense_variable, sparse_fixed, sparse_variable };
// An axis with its arrays, as programs declare it.
struct StoredAxis {
  AxisKind kind = AxisKind::dense_fixed;
  int64_t length = 0;       // coordinates are below it
  int64_t nnz_cols = 0;     // of a sparse_fixed one: positions below each position of the axis before
  IndexArray indptr = {};   // of a variable one: [positions of the axis before + 1]
  IndexArray indices = {};  // of a sparse one: [positions]; of a sparse_fixed one, `length` is a place that is not used
  std::string name = {};    // for messages
};
// Any chain of axes, each below the one before; the first is dense_fixed and the others are not. So a program on axes
// of any kinds gets its structure (docs/sparse.md). Messages name the axis, the array and the place.
//
//   structure_of({{.length = m}, {.kind = AxisKind::sparse_variable, .length = n, .indptr = p, .indices = i}});  // CSR
Structure structure_of(const std::vector<StoredAxis>& axes);

// Elements in any order, none twice.
struct Coo {
  int64_t num_rows = 0, num_cols = 0;
  std::vector<int32_t> rows = {}, cols = {};
};
// `order[p]` says which element of the list stands at position p; -1 where none does.
struct Converted {
  Structure structure = {};
  std::vector<int64_t> order = {};
};
// Throws Error(invalid_argument) naming row and column of an element outside, or one that stands twice.
Converted csr_from_coo(const Coo& coo);
Converted ell_from_coo(const Coo& coo);                 // as wide as the longest row
Converted bsr_from_coo(const Coo& coo, int64_t block);  // of blocks that hold something; bind the axis of block columns
Converted coo_from_coo(const Coo& coo);                 // elements, below each an axis of its row and one of its column
Converted ragged_from_coo(const Coo& coo);              // rows as long as their elements; columns are not kept
Converted csc_from_coo(const Coo& coo);                 // CSR of the transpose: num_rows() is that of columns
Converted dcsr_from_coo(const Coo& coo);                // below an axis of one, rows that hold something, and columns
Converted dbsr_from_coo(const Coo& coo, int64_t block);  // of block rows that hold something
// Strips of t rows; of a strip's columns that hold something, groups of g; the last group's padding holds num_cols. The
// axes: strips, groups (dense, variable), columns (sparse, fixed g); t values stand together below each.
Converted sr_bcrs_from_coo(const Coo& coo, int64_t t, int64_t g);
// hyb(c, k): of each column partition its k + 1 buckets, one after another. The axes of a bucket: one; rows (sparse,
// fixed); of the last also pieces of rows (dense, variable); columns (sparse, fixed 2^i), whose padding holds num_cols.
std::vector<Converted> hyb_from_coo(const Coo& coo, int64_t c, int64_t k);
// Diagonals that hold something: values [diagonal, row], of column row + offset. The structure: below an axis of one,
// diagonals by column - row + num_rows.
struct Diagonals {
  Structure structure = {};
  std::vector<int32_t> offsets = {};
  std::vector<int64_t> order = {};
};
Diagonals dia_from_coo(const Coo& coo);
// Each place of the list once, sorted; `place[e]` says which of them element e of the list adds to.
struct Merged {
  Coo coo = {};
  std::vector<int64_t> place = {};
};
Merged merged(const Coo& coo);
// Values of the list, added up where elements stand at one place, in the order of the list.
std::vector<float> summed(const Merged& merged, std::span<const float> values);
// A tensor of any rank: coordinates[d][e] is below extents[d].
struct CooTensor {
  std::vector<int64_t> extents = {};
  std::vector<std::vector<int32_t>> coordinates = {};
};
Converted csf_from_coo(const CooTensor& coo);  // below an axis of one, a sparse axis for each dimension
// Elements (relation, row, column): a dense axis of relations, below each rows that hold something, and columns. 3-D
// hyb is hyb(c, k) of these.
Converted relations_from_coo(const CooTensor& coo);
// Edges (relation, row, column) as rgms takes them: tiles of rows, below each its relations, rows and columns.
Converted relational_from_coo(const CooTensor& edges, int64_t tile = 64);

// CSR of the transpose; `order[p]` says where the matrix holds what the transpose stores at p.
struct Transposed {
  Structure structure = {};
  std::vector<int32_t> order = {};
};
Transposed transposed(const Structure& a);

// Structures of blocks for sparse attention: those within `reach` of the diagonal (Longformer); those whose numbers
// differ in at most one bit, up to `stride` (Pixelated Butterfly).
Structure band(int64_t num_blocks, int64_t reach);
Structure butterfly(int64_t num_blocks, int64_t stride);

// ---------------------------------------------------------------- programs

// A program in the text form, with its schedule; ProgramBuilder (sparse_program.h) writes one. Every mistake is
// Error(invalid_argument) that names line and column.
class Program {
 public:
  explicit Program(std::string_view text);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};
inline Program parse(std::string_view text) { return Program(text); }

struct CompileOptions {
  std::map<std::string, int64_t> set = {};       // parameters that are fixed: code for one feature size runs faster
  std::map<std::string, double> set_reals = {};  // real parameters that are
  std::string stop_after = {};                   // a pass; then only what was made so far can be shown
  std::vector<std::string> skip = {};            // passes that only make code faster or explain it: "peel tails", ...
  bool prove_bounds = false;                     // refuse a program with an access that is not proven to lie inside
};

struct RunArguments {
  std::map<std::string, Structure> structures = {};  // by the axis that they end in
  std::map<std::string, TensorView> buffers = {};    // by name; contiguous
  std::map<std::string, int64_t> scalars = {};       // parameters that no structure and no shape tells
  std::map<std::string, double> reals = {};          // real parameters
  bool values_unchanged = false;  // those of decomposed buffers are the ones of the last run: they are not copied again
};

struct PassTime {
  std::string name;
  double milliseconds = 0;
};

// A compiled program. Thread-safe; runs of one operator with decomposed formats or temporary buffers take turns.
class Operator {
 public:
  // Throws Error(invalid_argument) and others before anything is computed: a structure of another format, a parameter
  // that is not known, a tensor of another shape or type, outputs that overlap with other tensors. After all is
  // computed it throws Error(invalid_argument) for a program that wrote where a buffer stores nothing, naming
  // iteration, buffer and coordinate, or divided an integer by 0, naming iteration, division and coordinates.
  // On a card a run enqueues on the stream, whose synchronize() throws that. Tensors lie on the operator's device,
  // those that are read 16 bytes at a time at multiples of that. A stream may be captured once a run with the same
  // structures, parameters and shapes has been there; a graph may run as long as the operator lives.
  void run(const RunArguments& arguments, Stream stream = {}) const;
  // "stage1", "stage2", "stage3", "code" or "cuda".
  std::string text(std::string_view stage) const;
  const std::vector<PassTime>& passes() const;
  struct Impl;
  explicit Operator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// With the program's own schedule, or with lines of another one. For a card throws Error(unsupported) that names the
// schedule's line for what has no meaning there.
Operator compile(const Program& program, Device device = Device::cpu(), const CompileOptions& options = {});
Operator compile(const Program& program, std::string_view schedule, Device device = Device::cpu(),
                 const CompileOptions& options = {});

// ---------------------------------------------------------------- ready operators

struct SparseOptions {
  // What the matrix is decomposed to: "csr", or any list of decompose_format's formats, as "hyb(1, 5)", "hyb(1)" or
  // "bsr(4), coo()"; "auto": what a search, tune_spmm or tune_sddmm, has found for the structure, else what its row
  // lengths promise. SpMM keeps sums of a row in registers in csr, ell, bsr and hyb.
  std::string format = "auto";
  // The values are those of the last call in this format: they are not copied into it again.
  bool values_unchanged = false;
};
// All tensors of a call are of fp32, or all of bf16 with sums in fp32, unless it says otherwise. They lie on the CPU,
// or all on one card: there the call runs, on a stream of it.

// c = a b, a being [m, n] of that structure and values [nnz]; b [n, feat], c [m, feat].
void spmm(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
          const SparseOptions& options = {}, Stream stream = {});

struct TuneOptions {
  double seconds = 45;            // for measuring; what is left by then, another call goes on with
  bool values_unchanged = false;  // for calls with that promise: formats need not be filled at each call
};
struct Tuned {
  std::string choice = {}, likely_choice = {};  // the fastest; what "auto" takes without a search
  double seconds = 0, likely_seconds = 0;       // of a call
  int num_tried = 0, num_left = 0;              // by this search; of all candidates
};
// Each searches on the stream's team with ones for tensors, or on the stream's card, there in a stream of its own, and
// calls over the structure take the fastest from then on, also in later processes: results are kept in the kernel
// cache. Formats and schedules of SpMM and of SDDMM in fp32 over rows of `feat` features, which "auto" takes:
Tuned tune_spmm(const Structure& a, int64_t feat, const TuneOptions& options = {}, Stream stream = {});
Tuned tune_sddmm(const Structure& a, int64_t feat, const TuneOptions& options = {}, Stream stream = {});
// Schedules of block_spmm, on a CPU, and of rgms in fp32 without values. Structures of other blocks or tiles are
// searches of their own.
Tuned tune_block_spmm(const Structure& blocks, int64_t heads, int64_t block, int64_t feat, DType dtype,
                      const TuneOptions& options = {}, Stream stream = {});
Tuned tune_rgms(const Structure& edges, int64_t feat_in, int64_t feat_out, const TuneOptions& options = {},
                Stream stream = {});
// Of edges (relation, row, column), also how many rows stand in a tile: relational_from_coo(edges, tile) makes the
// structure that the fastest calls take.
struct TunedRgms : Tuned {
  int64_t tile = 64;
};
TunedRgms tune_rgms(const CooTensor& edges, int64_t feat_in, int64_t feat_out, const TuneOptions& options = {},
                    Stream stream = {});

// out[p] = values[p] * dot(x[i], y[j]) for every stored (i, j); x [m, feat], y [n, feat].
void sddmm(const Structure& a, const TensorView& values, const TensorView& x, const TensorView& y,
           const TensorView& out, const SparseOptions& options = {}, Stream stream = {});

// o[i] = sum over stored (i, j) of softmax(scale * dot(q[i], k[j])) v[j], one row after another; 0 where a row stores
// nothing. q [m, feat], k [n, feat], v [n, feat_v], o [m, feat_v].
void graph_attention(const Structure& graph, const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& o, float scale = 1, Stream stream = {});
// o[i] = sum over stored (i, j) of sigmoid(dot(x[i], y[j])) y[j]; no score is stored (FusedMM). x [m, feat], y [n,
// feat], o [m, feat].
void fused_mm(const Structure& graph, const TensorView& x, const TensorView& y, const TensorView& o,
              Stream stream = {});

// One structure for all heads: values [heads, nnz], b [heads, n, feat], c [heads, m, feat]; x [heads, m, feat], y
// [heads, n, feat], out [heads, nnz].
void batched_spmm(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
                  Stream stream = {});
void batched_sddmm(const Structure& a, const TensorView& x, const TensorView& y, const TensorView& out,
                   Stream stream = {});
// One structure of blocks for all heads, CSR of block rows and columns (bsr_from_coo, band, butterfly): values and out
// are [heads, nnzb, block, block], rows and columns whole blocks. Without heads, one rank less everywhere: weights.
void block_spmm(const Structure& blocks, const TensorView& values, const TensorView& b, const TensorView& c,
                Stream stream = {});
void block_sddmm(const Structure& blocks, const TensorView& x, const TensorView& y, const TensorView& out,
                 Stream stream = {});
// c = a b of the structures that dbsr_from_coo (values [nnzb, block, block]) and sr_bcrs_from_coo (values [groups, g,
// t]) make; c has whole block rows, or strips.
void dbsr_spmm(const Structure& blocks, const TensorView& values, const TensorView& b, const TensorView& c,
               Stream stream = {});
void sr_bcrs_spmm(const Structure& strips, const TensorView& values, const TensorView& b, const TensorView& c,
                  Stream stream = {});

// y[i] = sum over edges (r, i, j) of values * x[j] w[r]: gather, multiply and scatter in one nest. x [n, feat_in], w
// [relations, feat_in, feat_out], y [m, feat_out]; values [nnz] in the structure's order, or none, which are ones.
void rgms(const Structure& edges, const TensorView& values, const TensorView& x, const TensorView& w,
          const TensorView& y, Stream stream = {});

// Which inputs a convolution over voxels meets. An output at u meets the input at u * stride + offset - (kernel - 1) /
// 2, offsets counted with the last dimension innermost. With stride 1 outputs are the inputs; else the inputs' places
// divided by the stride, each once, sorted.
struct KernelMap {
  std::vector<std::array<int32_t, 3>> outputs = {};
  CooTensor edges = {};  // (offset, output, input)
  Structure structure = {};
};
// Throws Error(invalid_argument) for a voxel that stands twice, or a kernel or stride beyond 1 to 15.
KernelMap kernel_map(const std::vector<std::array<int32_t, 3>>& coordinates, std::array<int32_t, 3> kernel = {3, 3, 3},
                     std::array<int32_t, 3> stride = {1, 1, 1});
// x [inputs, feat_in], w [offsets, feat_in, feat_out], y [outputs, feat_out].
void sparse_convolution(const KernelMap& map, const TensorView& x, const TensorView& w, const TensorView& y,
                        Stream stream = {});

// ---------------------------------------------------------------- gradients, of fp32

// Of c = a b, from d_c: those that are asked for.
struct SpmmGradients {
  TensorView values = {};  // [nnz]
  TensorView b = {};       // [n, feat]
};
void spmm_backward(const Structure& a, const Transposed& a_transposed, const TensorView& values, const TensorView& b,
                   const TensorView& d_c, const SpmmGradients& gradients, Stream stream = {});
// Of sddmm's out, from d_out [nnz].
struct SddmmGradients {
  TensorView values = {};  // [nnz]
  TensorView x = {}, y = {};
};
void sddmm_backward(const Structure& a, const Transposed& a_transposed, const TensorView& values, const TensorView& x,
                    const TensorView& y, const TensorView& d_out, const SddmmGradients& gradients, Stream stream = {});

}  // namespace weft::sparse

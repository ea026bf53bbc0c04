// Ready operators, compiled once a process for each schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sparse/formats/format.h"
#include "weft/sparse.h"

namespace weft::sparse {

// A program, how it runs fastest, and the parameters that both take as literals.
struct ReadyProgram {
  std::string text = {};
  std::string schedule = {};
  std::map<std::string, int64_t> set = {};
};

// The operator of this program and schedule with these parameters fixed, on a device; compiled by the first who asks.
Operator kept_operator(const ReadyProgram& ready, Device device = {});

// Where a call runs: where its first tensor lies; the operator sees to the others.
Device device_of(const TensorView& tensor);
// How many workers share a call's rows; 0: a card's.
int64_t workers_of(Device device, Stream stream);

// Every `old` in the text becomes `now`.
std::string replaced(std::string text, const std::string& old, const std::string& now);
// The program with that type where its text says DTYPE; temporary buffers and sums stay in fp32.
std::string with_dtype(const std::string& program, DType dtype);
// Throws Error(invalid_dtype) for tensors of another type than the first, or of one that operators don't take.
DType common_dtype(const std::vector<std::pair<const char*, const TensorView*>>& tensors);
void check_rank(const TensorView& tensor, const char* name, int rank, const char* shape);
// b, [.., feat] behind the first.
inline int64_t last_extent(const TensorView& tensor) { return tensor.shape(tensor.rank() - 1); }

// Lanes of fp32 in a vector, and vectors in registers.
struct VectorUnit {
  int64_t lanes = 16, registers = 32;
  bool is_of_card = false;  // then schedules bind rows to CTAs and features to threads (card.h)
  bool has_mma = true;      // of a card: tensor cores that take bf16
};
VectorUnit vector_unit(Isa isa);
VectorUnit vector_unit(Device device);  // of this CPU, or of a card from sm_80 on
VectorUnit unit_of(Device device);      // of this CPU, or of this card. Throws as machine() does.

// Emits a register-tile schedule: splits `loop` into tiles and vectors, moves the reductions `within` between them,
// keeps the sums in registers.
struct FeatureTile {
  std::string block = {}, loop = "k";
  int64_t feat = 0;
  std::vector<std::string> within = {};  // reductions, by their variables
  std::string rows = {};                 // a loop of rows that the tile has, too; unrolled
  int64_t num_rows = 1;                  // its extent
  std::string around = {};               // the loop that holds the sums where one tile has all features
  std::string pairs = {};                // a reduction of two, whose products are a dot product of bf16
  std::string widened = {};              // a buffer of the rows' factors, copied to fp32 within the first of two loops
  VectorUnit unit = {};
  int64_t most_vectors = 4;  // of a row
};
std::string tiled(const FeatureTile& tile);
// A tile of a block's rows and features: as many rows as there are sums for, 1 or a divisor of the block, split off the
// loop `ii`.
struct BlockTile {
  std::string name = {};   // of the iteration
  std::string above = {};  // the loop around `ii`
  int64_t block = 0;
  bool is_tall = false;  // factors cost nothing to broadcast: as many rows as registers have room for
  int64_t rows = 0;      // so many instead
  FeatureTile tile = {};
};
std::string block_tiled(BlockTile tile);
// Whether so many features are whole vectors, at least one.
bool has_vectors(int64_t feat, int64_t lanes);
// Whether products of bf16 are taken in pairs; splits the innermost reduction for that.
bool has_pairs(int64_t block, int64_t feat, DType dtype, bool dots, const VectorUnit& unit);
std::string in_pairs(BlockTile& tile);
// Whether factors of bf16 are copied to fp32, vector by vector: the multiply-add that takes one then broadcasts it.
bool has_widened(int64_t block, int64_t feat, DType dtype, bool pairs, const VectorUnit& unit);
// The tile of a product of blocks by rows of features, A's of a block by B's.
std::string block_rows_tiled(BlockTile tile, DType dtype, bool dots);
// Sums of a reduction `k` within a block in one vector; "" where there is none.
std::string partial_sums(const std::string& block, int64_t feat, const VectorUnit& unit);

// A row of `feat` features in vectors: `lanes` of each, 1 where there is no vector of them; how many of a row are kept
// in registers at once, of `rows` rows.
struct RowTiles {
  int64_t lanes = 1, vectors = 1;
};
RowTiles row_tiles(int64_t feat, const VectorUnit& unit, int64_t rows = 1);

// How many elements ahead gathered rows of fp32 are best fetched.
int64_t default_prefetch(int64_t feat);

extern const char* const kSpmmProgram;
extern const char* const kSddmmProgram;
// The fastest schedule for rows of `feat` features in formats that has_rows_in_registers() names.
// prefetch: how many elements ahead gathered rows are fetched; 0 = not.
// tile: features per pass over a row group (CSR); 0 = all.
// group: rows handed to a worker together; 0 = single rows, balanced by nnz.
std::string spmm_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch,
                          int64_t tile = 0, int64_t group = 0);
// Whether sums of a row, or of all rows of a block, stay in registers: CSR as it is, or one of csr, ell, bsr and hyb.
bool has_rows_in_registers(const Formats& formats);
// Of any list of formats, at least one.
std::string spmm_formats_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit);
// In bf16 with sums in fp32 that are rounded once, for formats that add to a row several times; `schedule` is that of
// the program in fp32.
ReadyProgram rounded_spmm(int64_t feat, const std::string& schedule, const VectorUnit& unit);
std::string sddmm_schedule(int64_t feat, DType dtype, const VectorUnit& unit, int64_t prefetch, int64_t group = 0);
// Of a list of formats, at least one.
std::string sddmm_format_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch = 0,
                                  int64_t group = 0);
// What SparseOptions.format names, with hyb(c) as hyb(c, k) of this structure.
Formats formats_for(const std::string& text, const Structure& a);

// What results of a search for such calls are kept by, and how a call runs: as the search found, or as tends to be
// best.
std::string block_spmm_call(int64_t heads, int64_t block, int64_t feat, DType dtype, int64_t workers);
std::string rgms_call(bool has_values, int64_t feat_in, int64_t feat_out, DType dtype, int64_t workers);
Operator block_spmm_operator(int64_t heads, int64_t block, int64_t feat, DType dtype, const std::string& candidate,
                             Device device = {});
// How many edges ahead rows of x are fetched where no search says otherwise; rows of more than
// four lines, which that makes slower, not at all.
int64_t likely_rgms_prefetch(int64_t feat_in, DType dtype);
Operator rgms_operator(int64_t tile, bool has_values, int64_t feat_in, int64_t feat_out, DType dtype,
                       const std::string& candidate, Device device = {});

struct AttentionForm {
  bool same = false;      // keys are the values, and are there already when those are read
  bool is_apart = false;  // scores of all rows before the values of any, in loops of their own
  // How many elements ahead rows are fetched, 0: not; default_prefetch() where nothing is said.
  std::optional<int64_t> keys_ahead = {}, values_ahead = {};
};
ReadyProgram attention_program(int64_t feat, int64_t feat_v, DType dtype, const VectorUnit& unit = {},
                               const AttentionForm& form = {});
// Which of both graph_attention runs, over keys of so many bytes.
bool attention_runs_apart(int64_t key_bytes, bool same);
ReadyProgram fused_mm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
ReadyProgram batched_spmm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
ReadyProgram batched_sddmm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
// `dots`: products of bf16 in pairs, by an instruction.
// `rows` in registers, of a block; 0: as many as tend to be best.
ReadyProgram block_spmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots = false,
                                const VectorUnit& unit = {}, int64_t rows = 0);
ReadyProgram block_sddmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots = false,
                                 const VectorUnit& unit = {});
ReadyProgram dbsr_spmm_program(int64_t block, int64_t feat, DType dtype, bool dots = false,
                               const VectorUnit& unit = {});
ReadyProgram sr_bcrs_spmm_program(int64_t t, int64_t g, int64_t feat, DType dtype, const VectorUnit& unit = {});
// Rows of `tile` stand together; without values every edge counts once.
ReadyProgram rgms_program(int64_t tile, bool has_values, int64_t feat_in, int64_t feat_out, DType dtype,
                          const VectorUnit& unit = {}, int64_t vectors = 4, int64_t prefetch = 0);
ReadyProgram transposed_spmm_program(int64_t feat, bool weighted, const VectorUnit& unit = {});
ReadyProgram weighted_spmm_program(int64_t feat, const VectorUnit& unit = {});
ReadyProgram edge_dots_program(int64_t feat, const VectorUnit& unit = {});

}  // namespace weft::sparse

// The CUDA text of every sparse operator, run by the threads of a GPU on the host: no access outside, no race, the
// right values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "loop/threads.h"
#include "sparse/bind.h"
#include "sparse/check.h"
#include "sparse/interpret.h"
#include "sparse/operator.h"
#include "tests/simt/machine/machine.h"
#include "tests/simt/sparse/kernels.h"
#include "tests/sparse/ready_programs.h"

namespace weft::sparse::test {
void PrintTo(const ReadyCase& c, std::ostream* out) { *out << c.name; }
}  // namespace weft::sparse::test

namespace weft::simt {
namespace {

using sparse::test::Matrix;
using sparse::test::ReadyCase;
using Values = std::vector<double>;

constexpr Launch kLaunches[] = {{.ctas = 1, .threads = 32}, {.ctas = 3, .threads = 64}};
constexpr int64_t kFeat = 19;  // where the program does not say how many

// Rows of 0 to 7 elements, one of them full.
Matrix places() {
  Matrix a{.rows = 23, .cols = 17, .indptr = {0}};
  std::mt19937 random(20261123);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.cols; ++j)
      if (i == 11 || (i % 5 != 0 && random() % 8 == 0)) a.indices.push_back(j);
    a.indptr.push_back(static_cast<int32_t>(a.indices.size()));
  }
  return a;
}

// Blocks of 2 x 2 and one element beside them in each row: what bsr(2) and ell(2) store together.
Matrix places_of_blocks() {
  Matrix a{.rows = 22, .cols = 16, .indptr = {0}};
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.cols; ++j)
      if ((i / 2 + j / 2) % 4 == 0 || j == (i * 5 + 3) % 16) a.indices.push_back(j);
    a.indptr.push_back(static_cast<int32_t>(a.indices.size()));
  }
  return a;
}

// What memory of a type holds.
Values numbers(const void* data, size_t count, DType dtype) {
  Values values(count);
  const auto* bytes = static_cast<const char*>(data);
  for (size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    float single = 0;
    int32_t integer = 0;
    if (dtype == DType::bf16 || dtype == DType::fp16) {
      std::memcpy(&half, bytes + 2 * i, 2);
      values[i] = dtype == DType::fp16 ? from_fp16(half) : std::bit_cast<float>(uint32_t{half} << 16);
    } else if (dtype == DType::fp32) {
      std::memcpy(&single, bytes + 4 * i, 4);
      values[i] = single;
    } else {
      std::memcpy(&integer, bytes + 4 * i, 4);
      values[i] = integer;
    }
  }
  return values;
}

// An operator bound to a structure, with its tensors and arrays in the memory of the machine.
class Bench {
 public:
  explicit Bench(const ReadyCase& c)
      : structure(c.structure(c.name == "spmm_bsr_ell" ? places_of_blocks() : places())),
        name_(c.name),
        op_(sparse::compile(sparse::parse(c.ready.text), c.ready.schedule, Device::cpu(),
                            {.set = c.ready.set, .stop_after = "generate"})) {
    const sparse::Compilation& made = op_.impl().made;
    sparse::RunArguments arguments{.structures = {{c.axis, structure}}, .scalars = c.scalars, .reals = c.reals};
    const auto& params = made.source.params;
    if (std::find(params.begin(), params.end(), "feat") != params.end()) arguments.scalars["feat"] = kFeat;
    sparse::test::RunMemory tensors(op_, arguments, 7);
    const auto own = sparse::made_here(made.stage1);
    sparse::bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound_);
    sparse::bind_parameters(made.stage1, arguments.scalars, tensors.arguments.buffers, bound_);
    sparse::bind_reals(made.stage1, arguments.reals, bound_);
    sparse::bind_rows(made.compute2, bound_);
    sparse::bind_buffers(made.stage1, tensors.arguments.buffers, {own}, bound_);
    if (!made.preprocess3.function.body.empty()) functions_.push_back(&made.preprocess3.function);
    functions_.push_back(&made.compute3.function);
    for (const loop::Function* function : functions_)
      for (const loop::Buffer& buffer : function->buffers)
        if (!tensors_.contains(buffer.name)) add(buffer, own.contains(buffer.name));
    failed_ = memory_.make<char>("failures", 8 * loop::failures_of(made.compute3.function).size());
    std::fill(failed_.begin(), failed_.end(), '\xff');
  }

  int64_t param(const std::string& name) const { return bound_.numbers.scalars.at(name); }
  size_t extent(const std::string& name) const { return static_cast<size_t>(param(name)); }
  Values values(const std::string& buffer) const {
    const Tensor& tensor = tensors_.at(buffer);
    return numbers(tensor.data.data(), tensor.count, tensor.dtype);
  }

  // All kernels in their order, in every launch and order of threads.
  void expect(const std::string& output, const Values& want) {
    const std::string content = memory_.content();
    const double tolerance = loop::is_narrow(tensors_.at(output).dtype) ? 1. / 128 : 2e-5;
    for (const Launch& launch : kLaunches) {
      memory_.restore(content);
      ASSERT_NO_FATAL_FAILURE(run(launch));
      const Values got = values(output);
      ASSERT_EQ(got.size(), want.size());
      for (size_t e = 0; e < want.size(); ++e)
        if (got[e] != want[e]) {  // infinities are
          ASSERT_NEAR(got[e], want[e], tolerance * (1 + std::fabs(want[e]))) << "element " << e;
        }
    }
  }

  // The least number of each failure.
  std::vector<uint64_t> failed() const {
    std::vector<uint64_t> numbers(failed_.size() / 8);
    if (!numbers.empty()) std::memcpy(numbers.data(), failed_.data(), failed_.size());
    return numbers;
  }

  // With the tensor 4 bytes behind where it should begin.
  void run_shifted(const std::string& buffer) {
    Tensor& tensor = tensors_.at(buffer);
    tensor.data = memory_.make<char>(buffer + "_shifted", tensor.data.size() + 4).subspan(4);
    run(kLaunches[0]);
  }

  const sparse::Structure structure;

 private:
  struct Tensor {
    std::span<char> data;
    size_t count = 0;
    DType dtype = DType::fp32;
  };

  void add(const loop::Buffer& buffer, bool is_own) {
    const auto count = static_cast<size_t>(sparse::evaluate(buffer.size, bound_.numbers));
    const size_t bytes = count * static_cast<size_t>(bits_of(buffer.dtype)) / 8;
    const Tensor tensor{memory_.make<char>(buffer.name, bytes), count, buffer.dtype};
    const std::vector<std::string> outputs = sparse::outputs_of(op_);
    const bool is_output = std::find(outputs.begin(), outputs.end(), buffer.name) != outputs.end();
    // What is written first begins as NaN.
    if (!is_own && !is_output && bytes > 0) std::memcpy(tensor.data.data(), bound_.pointers.at(buffer.name), bytes);
    tensors_[buffer.name] = tensor;
  }

  void run(Launch launch) {
    const SparseKernel* kernel = std::find_if(kSparseKernels, kSparseKernels + kNumSparseKernels,
                                              [&](const SparseKernel& k) { return k.golden == name_; });
    for (const loop::Function* function : functions_) {
      const std::vector<loop::Phase> phases = loop::split_phases(*function);
      for (size_t phase = 0; phase < phases.size(); ++phase, ++kernel) {
        const std::string name = "weft_" + function->name + "_" + std::to_string(phase);
        ASSERT_TRUE(kernel < kSparseKernels + kNumSparseKernels && kernel->golden == name_ && kernel->name == name)
            << "kernel " << name << " of " << name_ << " is missing in tests/simt/sparse/kernels.cpp";
        std::vector<long long> arguments;
        for (const loop::Buffer& buffer : function->buffers)
          arguments.push_back(reinterpret_cast<long long>(tensors_.at(buffer.name).data.data()));
        for (const std::string& scalar : function->scalars) arguments.push_back(param(scalar));
        for (const std::string& real : function->reals)
          arguments.push_back(std::bit_cast<long long>(bound_.numbers.reals.at(real)));
        if (!loop::failures_of(*function).empty()) arguments.push_back(reinterpret_cast<long long>(failed_.data()));
        launch.shared_bytes = static_cast<size_t>(loop::shared_bytes(loop::thread_body(*function, phases[phase])));
        sparse_threads_x = 0;
        visit(phases[phase].body, [](const loop::Stmt& stmt) {
          if (stmt.thread == "threadIdx.y") sparse_threads_x = 32;
        });
        run_in_all_orders(memory_, launch, [&] { kernel->call(arguments.data()); });
      }
    }
  }

  std::string name_;
  sparse::Operator op_;
  sparse::Bound bound_;
  Memory memory_;
  std::map<std::string, Tensor> tensors_;
  std::span<char> failed_;
  std::vector<const loop::Function*> functions_;
};

// An element that a structure stores, and which of its values it is.
struct Stored {
  size_t row, col, place;
};

std::vector<Stored> elements(const sparse::Structure& structure) {
  const auto [indptr, indices] = sparse::test::csr_arrays(structure);
  std::vector<Stored> list;
  for (size_t i = 0; i + 1 < indptr.size(); ++i)
    for (auto p = static_cast<size_t>(indptr[i]); p < static_cast<size_t>(indptr[i + 1]); ++p)
      list.push_back({i, static_cast<size_t>(indices[p]), p});
  return list;
}

// Blocks become their elements.
std::vector<Stored> within(const std::vector<Stored>& blocks, size_t block) {
  std::vector<Stored> list;
  for (const Stored& b : blocks)
    for (size_t i = 0; i < block; ++i)
      for (size_t j = 0; j < block; ++j)
        list.push_back({b.row * block + i, b.col * block + j, (b.place * block + i) * block + j});
  return list;
}

std::vector<Stored> rows_that_hold_something(const sparse::Structure& structure) {
  const sparse::Level &rows = structure.data()->levels[1], &cols = structure.data()->levels[2];
  std::vector<Stored> list;
  for (size_t r = 0; r < rows.indices.size(); ++r)
    for (auto p = static_cast<size_t>(cols.indptr[r]); p < static_cast<size_t>(cols.indptr[r + 1]); ++p)
      list.push_back({static_cast<size_t>(rows.indices[r]), static_cast<size_t>(cols.indices[p]), p});
  return list;
}

// Strips of t rows, columns in groups of g.
std::vector<Stored> strips(const sparse::Structure& structure, size_t t, size_t g) {
  const sparse::Level &groups = structure.data()->levels[1], &cols = structure.data()->levels[2];
  std::vector<Stored> list;
  for (size_t s = 0; s + 1 < groups.indptr.size(); ++s)
    for (auto p = static_cast<size_t>(groups.indptr[s]) * g; p < static_cast<size_t>(groups.indptr[s + 1]) * g; ++p)
      for (size_t i = 0; i < t && cols.indices[p] < cols.length; ++i)
        list.push_back({s * t + i, static_cast<size_t>(cols.indices[p]), p * t + i});
  return list;
}

double dot(const Values& x, size_t i, const Values& y, size_t j, size_t feat) {
  double sum = 0;
  for (size_t k = 0; k < feat; ++k) sum += x[i * feat + k] * y[j * feat + k];
  return sum;
}

// c = a b for each head, all dense but a.
Values product(const std::vector<Stored>& list, const Values& a, const Values& b, size_t rows, size_t feat,
               size_t heads = 1) {
  Values c(heads * rows * feat, 0);
  for (size_t h = 0; h < heads; ++h)
    for (const Stored& e : list)
      for (size_t k = 0; k < feat; ++k)
        c[(h * rows + e.row) * feat + k] +=
            a[h * (a.size() / heads) + e.place] * b[h * (b.size() / heads) + e.col * feat + k];
  return c;
}

// x y^T for each head where something is stored.
Values dots(const std::vector<Stored>& list, const Values& x, const Values& y, size_t feat, size_t heads = 1) {
  Values o(heads * list.size(), 0);
  for (size_t h = 0; h < heads; ++h)
    for (const Stored& e : list)
      o[h * list.size() + e.place] =
          dot(x, h * (x.size() / heads / feat) + e.row, y, h * (y.size() / heads / feat) + e.col, feat);
  return o;
}

Values times(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

Values attention(const std::vector<Stored>& list, const Values& scores, const Values& v, size_t rows, size_t feat) {
  Values weights, sum(rows, 0);
  for (const double score : scores) weights.push_back(std::exp(score));
  for (const Stored& e : list) sum[e.row] += weights[e.place];
  Values o = product(list, weights, v, rows, feat);
  for (size_t e = 0; e < o.size(); ++e) o[e] = sum[e / feat] == 0 ? 0 : o[e] / sum[e / feat];
  return o;
}

// y[i] = sum over edges (r, i, j) of a x[j] w[r].
Values gathered(const sparse::Structure& structure, const Values& a, const Values& x, const Values& w, size_t rows,
                size_t in, size_t out) {
  const auto& levels = structure.data()->levels;  // one, tiles of 64 rows, relations, rows, columns
  const auto each = [&](size_t level, size_t parent, const auto& call) {
    const sparse::Level& l = levels[level];
    for (auto p = static_cast<size_t>(l.indptr[parent]); p < static_cast<size_t>(l.indptr[parent + 1]); ++p)
      call(p, static_cast<size_t>(l.indices[p]));
  };
  Values y(rows * out, 0);
  each(1, 0, [&](size_t p, size_t tile) {
    each(2, p, [&](size_t q, size_t relation) {
      each(3, q, [&](size_t r, size_t row) {
        each(4, r, [&](size_t e, size_t col) {
          for (size_t l = 0; l < in; ++l)
            for (size_t k = 0; k < out; ++k)
              y[(tile * 64 + row) * out + k] +=
                  (a.empty() ? 1 : a[e]) * x[col * in + l] * w[(relation * in + l) * out + k];
        });
      });
    });
  });
  return y;
}

// The same of a stack of matrices: relations, rows, columns.
Values stacked(const sparse::Structure& structure, const Values& a, const Values& x, const Values& w, size_t rows,
               size_t in, size_t out) {
  const sparse::Level &of_rows = structure.data()->levels[1], &of_cols = structure.data()->levels[2];
  Values y(rows * out, 0);
  for (size_t r = 0; r + 1 < of_rows.indptr.size(); ++r)
    for (auto p = static_cast<size_t>(of_rows.indptr[r]); p < static_cast<size_t>(of_rows.indptr[r + 1]); ++p)
      for (auto e = static_cast<size_t>(of_cols.indptr[p]); e < static_cast<size_t>(of_cols.indptr[p + 1]); ++e)
        for (size_t l = 0; l < in; ++l)
          for (size_t k = 0; k < out; ++k)
            y[static_cast<size_t>(of_rows.indices[p]) * out + k] +=
                a[e] * x[static_cast<size_t>(of_cols.indices[e]) * in + l] * w[(r * in + l) * out + k];
  return y;
}

class SimtSparse : public testing::TestWithParam<ReadyCase> {};

TEST_P(SimtSparse, ComputesWhatDenseArithmeticDoes) {
  const std::string& name = GetParam().name;
  Bench run(GetParam());
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto v = [&](const char* buffer) { return run.values(buffer); };
  const sparse::Structure& s = run.structure;
  if (name.starts_with("spmm_")) {
    const size_t feat = v("B").size() / run.extent("n");
    return run.expect("C", product(elements(s), v("A"), v("B"), run.extent("m"), feat));
  }
  if (name.starts_with("sddmm"))
    return run.expect("O", times(dots(elements(s), v("X"), v("Y"), v("X").size() / run.extent("m")), v("A")));
  if (name == "edge_dots") return run.expect("O", dots(elements(s), v("X"), v("Y"), 32));
  if (name == "rest_shared") {
    Values sums(run.extent("m"), 0), rest;
    for (const Stored& e : elements(s)) sums[e.row] += 2 * v("X")[e.place];
    for (const Stored& e : elements(s)) rest.push_back(sums[e.row] - 2 * v("X")[e.place]);
    return run.expect("Z", rest);
  }
  if (name.starts_with("extremes")) {
    const double inf = std::numeric_limits<double>::infinity();
    Values largest(run.extent("m"), -inf), least(run.extent("m"), inf);
    for (const Stored& e : elements(s)) {
      largest[e.row] = std::max(largest[e.row], v("X")[e.place]);
      least[e.row] = std::min(least[e.row], v("X")[e.place]);
    }
    run.expect("Largest", largest);
    return run.expect("Least", least);
  }
  if (name == "scattered_copied") {
    Values last(run.extent("n"), 0);
    for (const Stored& e : elements(s)) last[e.col] = last[e.col] / 2 + v("A")[e.place];
    return run.expect("Y", last);
  }
  if (name == "scaled_by_ctas") {
    const Values x = v("X");
    return run.expect("Z", times(x, Values(x.size(), std::accumulate(x.begin(), x.end(), 0.))));
  }
  if (name == "compress") {  // what the matrix holds elsewhere is a failure, of the first such place
    const Values dense = v("D");
    Values kept;
    uint64_t first_absent = 0;
    for (const Stored& e : elements(s)) kept.push_back(dense[e.row * run.extent("n") + e.col]);
    for (const Stored& e : elements(s))
      if (e.row == 0 && e.col == first_absent) ++first_absent;
    run.expect("Z", kept);
    EXPECT_EQ(run.failed(), std::vector<uint64_t>{run.extent("n") + 2 + first_absent + 1});
    return;
  }
  if (name == "activations") {
    Values active, sums(run.extent("m"), 0);
    for (const double x : v("X"))
      active.push_back(0.75 * std::tanh(x) + 1 / (1 + std::exp(-x)) * std::log(1 + std::fabs(x)));
    for (const Stored& e : elements(s)) sums[e.row] += std::pow(std::fabs(v("A")[e.place]), 1.5);
    run.expect("Z", active);
    return run.expect("S", sums);
  }
  if (name == "quotients") {  // by 0 in column 3: a failure, first where a row has it
    Values quotients, rests;
    for (const Stored& e : elements(s)) {
      const double a = v("X")[e.place] - 40, b = v("Y")[e.col] - 3, quotient = b == 0 ? 0 : std::floor(a / b);
      quotients.push_back(quotient);
      rests.push_back(b == 0 ? 0 : a - b * quotient);
    }
    const auto list = elements(s);
    const auto first = std::find_if(list.begin(), list.end(), [](const Stored& e) { return e.col == 3; });
    run.expect("Q", quotients);
    run.expect("R", rests);
    ASSERT_NE(first, list.end());
    EXPECT_EQ(run.failed(), std::vector<uint64_t>(2, (first->row * run.extent("n") + 3) * 2));
    return;
  }
  if (name == "graph_attention") {
    const auto list = elements(s);
    const Values scores = times(dots(list, v("Q"), v("Keys"), 32), Values(list.size(), 0.75));
    return run.expect("O", attention(list, scores, v("V"), run.extent("m"), 32));
  }
  if (name == "fused_mm") {
    Values weights = dots(elements(s), v("X"), v("Y"), 32);
    for (double& w : weights) w = 1 / (1 + std::exp(-w));
    return run.expect("O", product(elements(s), weights, v("Y"), run.extent("m"), 32));
  }
  if (name == "batched_spmm") return run.expect("C", product(elements(s), v("A"), v("B"), run.extent("m"), 32, 2));
  if (name == "batched_sddmm") return run.expect("O", dots(elements(s), v("X"), v("Y"), 32, 2));
  if (is({"block_spmm", "block_spmm_dots"}))
    return run.expect("C", product(within(elements(s), 4), v("A"), v("B"), run.extent("mb") * 4, 32, 2));
  if (name == "block_spmm_widened")
    return run.expect("C", product(within(elements(s), 16), v("A"), v("B"), run.extent("mb") * 16, 32, 2));
  if (name == "block_sddmm") return run.expect("O", dots(within(elements(s), 4), v("X"), v("Y"), 32, 2));
  if (is({"block_sddmm_transposed", "block_sddmm_dots"}))
    return run.expect("O", dots(within(elements(s), 16), v("X"), v("Y"), 8, 2));
  if (name == "block_sddmm_widened") return run.expect("O", dots(within(elements(s), 16), v("X"), v("Y"), 48, 2));
  if (name == "dbsr_spmm")
    return run.expect("C", product(within(rows_that_hold_something(s), 8), v("A"), v("B"), run.extent("mb") * 8, 32));
  if (name == "dbsr_spmm_widened")
    return run.expect("C", product(within(rows_that_hold_something(s), 16), v("A"), v("B"), run.extent("mb") * 16, 32));
  if (is({"sr_bcrs_spmm", "sr_bcrs_tensorized"}))
    return run.expect("C", product(strips(s, 4, 8), v("A"), v("B"), run.extent("strips") * 4, 32));
  if (name == "rgms_hyb_tensorized") return run.expect("Y", stacked(s, v("A"), v("X"), v("W"), run.extent("m"), 6, 16));
  if (name == "rgms") return run.expect("Y", gathered(s, v("A"), v("X"), v("W"), run.extent("m"), 16, 32));
  if (name == "convolution") return run.expect("Y", gathered(s, {}, v("X"), v("W"), run.extent("m"), 16, 16));
  if (name == "weighted_spmm")
    return run.expect("D", product(elements(s), times(v("A"), v("G")), v("Y"), run.extent("m"), 32));
  if (name == "transposed_spmm") {  // rows are columns, and values stand in another order
    const Values order = v("Order"), both = times(v("A"), v("G"));
    Values turned;
    for (const double place : order) turned.push_back(both[static_cast<size_t>(place)]);
    return run.expect("D", product(elements(s), turned, v("X"), run.extent("n"), 32));
  }
  FAIL() << "dense arithmetic of " << name << " is missing here";
}

// What is read 16 bytes at a time has to begin so; what is read one by one need not.
TEST(SimtSparseTensors, BeginAtMultiplesOf16BytesWhereTheyAreReadWide) {
  for (const ReadyCase& c : sparse::test::all_cases()) {
    if (c.name != "spmm_csr") continue;
    try {
      Bench(c).run_shifted("B");
      FAIL() << "nothing was found";
    } catch (const Fault& fault) {
      EXPECT_NE(std::string(fault.what()).find("traps"), std::string::npos) << fault.what();
    }
    EXPECT_NO_THROW(Bench(c).run_shifted("A"));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, SimtSparse, testing::ValuesIn(sparse::test::all_cases()),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace weft::simt

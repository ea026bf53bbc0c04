#include "tests/sparse/cuda/card_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "loop/ir.h"
#include "sparse/check.h"
#include "sparse/operator.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse_files.h"

namespace weft::sparse::test {
namespace {

size_t bytes_of(const TensorView& tensor) {
  return static_cast<size_t>(tensor.size()) * static_cast<size_t>(bits_of(tensor.dtype())) / 8;
}

}  // namespace

OnCard::OnCard(const TensorView& host) : host_(host), memory_(Device::cuda(), std::max<size_t>(bytes_of(host), 16)) {
  view_ = TensorView(memory_.data(), host.dtype(), host.shape(), Device::cuda());
  send();
}

void OnCard::send() const {
  cuda::Card& card = cuda::Card::at(0);
  cuda::copy_to_card(card, memory_.data(), host_.data(), bytes_of(host_), nullptr);
  cuda::synchronize(card, nullptr);
}

void OnCard::fetch() const {
  cuda::Card& card = cuda::Card::at(0);
  cuda::copy_to_host(card, host_.data(), memory_.data(), bytes_of(host_), nullptr);
  cuda::synchronize(card, nullptr);
}

CardRun::CardRun(const Operator& op, const RunArguments& host) : arguments(host) {
  const std::vector<std::string> written = outputs_of(op);
  const std::vector<std::string> read = inputs_of(op.impl().made.source);
  for (auto& [name, tensor] : arguments.buffers) {
    TensorView from = tensor;
    if (std::find(written.begin(), written.end(), name) != written.end()) {
      std::vector<char>& bytes = bytes_[name];
      bytes.resize(bytes_of(tensor));
      const bool is_read = std::find(read.begin(), read.end(), name) != read.end();
      if (is_read)
        std::memcpy(bytes.data(), tensor.data(), bytes.size());
      else
        std::memset(bytes.data(), 0xff, bytes.size());
      from = TensorView(bytes.data(), tensor.dtype(), tensor.shape());
    }
    tensor = tensors_.emplace(name, from).first->second.view();
  }
}

std::vector<double> CardRun::fetch(const std::string& buffer) const {
  tensors_.at(buffer).fetch();
  const TensorView& there = arguments.buffers.at(buffer);
  return values_of(TensorView(bytes_.at(buffer).data(), there.dtype(), there.shape()));
}

Matrix few_places() {
  Matrix a{.rows = 22, .cols = 16, .indptr = {0}};
  std::mt19937 random(20261128);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.cols; ++j)
      if (i == 11 || (i % 5 != 0 && (random() % 8 == 0 || (i / 2 + j / 2) % 4 == 0))) a.indices.push_back(j);
    a.indptr.push_back(static_cast<int32_t>(a.indices.size()));
  }
  return a;
}

RunArguments arguments_of(const Operator& op, const std::string& axis, const Structure& structure, int64_t feat) {
  RunArguments arguments{.structures = {{axis, structure}}};
  const std::vector<std::string>& params = op.impl().made.source.params;
  if (std::find(params.begin(), params.end(), "feat") != params.end()) arguments.scalars["feat"] = feat;
  return arguments;
}

void expect_calls_as_on_the_cpu(const std::vector<int64_t>& features, const std::vector<std::string>& formats) {
  const Matrix a = few_places();
  const Structure structure = a.structure();
  const auto m = a.rows, n = a.cols, nnz = structure.nnz();
  const Transposed back = transposed(structure);
  for (const int64_t feat : features) {
    Values values = random_values(static_cast<size_t>(nnz), 1), x = random_values(static_cast<size_t>(m * feat), 2);
    Values y = random_values(static_cast<size_t>(n * feat), 3), of_edges(values.size()), of_rows(x.size());
    Values of_cols(y.size());
    const TensorView rows = view(x, {m, feat}), cols = view(y, {n, feat}), elements = view(values, {nnz});
    const OnCard there_rows(rows), there_cols(cols), there_elements(elements);
    // `call` writes to the last of what it is given, of that many values.
    const auto expect = [&](Values& out, const std::string& what, const auto& call) {
      const TensorView host = out.size() == values.size() ? view(out, {nnz})
                              : out.size() == x.size()    ? view(out, {m, feat})
                                                          : view(out, {n, feat});
      call(elements, rows, cols, host, Stream());
      const std::vector<double> want = doubles(out);
      std::fill(out.begin(), out.end(), NAN);
      const OnCard there(host);
      call(there_elements, there_rows, there_cols, there, Stream::cuda(nullptr));
      there.fetch();
      expect_close(doubles(out), want, 2e-5, fmt::format("{} of {} features", what, feat));
    };
    using View = const TensorView&;
    expect(of_rows, "spmm", [&](View v, View, View b, View c, Stream s) { spmm(structure, v, b, c, {}, s); });
    expect(of_edges, "sddmm", [&](View v, View p, View q, View o, Stream s) { sddmm(structure, v, p, q, o, {}, s); });
    expect(of_cols, "spmm_backward",
           [&](View v, View p, View q, View d, Stream s) { spmm_backward(structure, back, v, q, p, {.b = d}, s); });
    expect(of_cols, "sddmm_backward",
           [&](View v, View p, View q, View d, Stream s) { sddmm_backward(structure, back, v, p, q, v, {.y = d}, s); });
    if (feat != features[0]) continue;
    for (const std::string& format : formats) {
      expect(of_rows, format,
             [&](View v, View, View b, View c, Stream s) { spmm(structure, v, b, c, {.format = format}, s); });
      expect(of_edges, format,
             [&](View v, View p, View q, View o, Stream s) { sddmm(structure, v, p, q, o, {.format = format}, s); });
    }
  }
}

void expect_edges_as_on_the_cpu(DType dtype, int64_t feat) {
  constexpr int64_t kRows = 19, kCols = 23;
  std::vector<int32_t> indptr{0}, indices;  // more than two CTAs have
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j)
      if ((i * 7 + j) % 4 != 0) indices.push_back(static_cast<int32_t>(j));
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const Structure a = csr(kRows, kCols, indptr, indices);
  const auto typed = [&](size_t count, uint32_t seed, std::initializer_list<int64_t> shape) {
    const Values values = random_values(count, seed);
    Array array(DType::fp32, shape);
    std::memcpy(array.bytes().data(), values.data(), array.bytes().size());
    return converted(array, dtype);
  };
  const Array values = typed(indices.size(), 1, {a.nnz()});
  const Array x = typed(static_cast<size_t>(kRows * feat), 2, {kRows, feat});
  const Array y = typed(static_cast<size_t>(kCols * feat), 3, {kCols, feat});
  Array want(dtype, {a.nnz()}), got(dtype, {a.nnz()});
  sddmm(a, values, x, y, want);
  const OnCard there_values(values), there_x(x), there_y(y), there(got);
  sddmm(a, there_values, there_x, there_y, there, {}, Stream::cuda(nullptr));
  there.fetch();
  expect_close(values_of(got), values_of(want), dtype == DType::fp32 ? 2e-5 : 1. / 64,
               fmt::format("edges of {} features", feat));
}

void expect_long_rows_as_on_the_cpu(DType dtype, int64_t feat) {
  constexpr int64_t kRows = 12, kCols = 1200;
  // Of as many pieces as a group takes, of one element more; groups that are full; and some that no CTA takes.
  constexpr int64_t kLengths[kRows] = {0, 32, 33, 3, 65, 700, 0, 1024, 1, 1025, 64, 2};
  std::vector<int32_t> indptr{0}, indices;
  for (const int64_t length : kLengths) {
    for (int64_t j = 0; j < length; ++j) indices.push_back(static_cast<int32_t>(j * kCols / length));
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const Structure a = csr(kRows, kCols, indptr, indices);
  const auto typed = [&](const Values& values, std::initializer_list<int64_t> shape) {
    Array array(DType::fp32, shape);
    std::memcpy(array.bytes().data(), values.data(), array.bytes().size());
    return converted(array, dtype);
  };
  const Array values = typed(random_values(indices.size(), 1), {a.nnz()});
  const Array b = typed(random_values(static_cast<size_t>(kCols * feat), 2), {kCols, feat});
  Array want(dtype, {kRows, feat}), got(dtype, {kRows, feat});
  spmm(a, values, b, want);
  const OnCard there_values(values), there_b(b), there(got);
  std::vector<double> first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::memset(got.bytes().data(), 0xff, got.bytes().size());  // NaN
    there.send();
    spmm(a, there_values, there_b, there, {}, Stream::cuda(nullptr));
    there.fetch();
    expect_close(values_of(got), values_of(want), dtype == DType::fp32 ? 1e-4 : 1. / 64, "long rows");
    if (repeat == 0) first = values_of(got);
  }
  EXPECT_EQ(values_of(got), first) << "the same bits twice";
}

void expect_long_gradients_as_on_the_cpu(int64_t feat) {
  constexpr int64_t kRows = 5, kCols = 210;
  std::vector<int32_t> indptr{0}, indices;
  for (const int64_t length : {0, 65, 3, 200, 33}) {
    for (int64_t j = 0; j < length; ++j) indices.push_back(static_cast<int32_t>(j * kCols / length));
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const Structure a = csr(kRows, kCols, indptr, indices);
  const Transposed turned = transposed(a), back = transposed(turned.structure);  // with long columns; with long rows
  const auto nnz = a.nnz();
  Values values = random_values(indices.size(), 1), weights = random_values(indices.size(), 2);
  Values x = random_values(static_cast<size_t>(kRows * feat), 3),
         y = random_values(static_cast<size_t>(kCols * feat), 4);
  Values out(x.size());
  const TensorView v = view(values, {nnz}), w = view(weights, {nnz}), rows = view(x, {kRows, feat});
  const TensorView cols = view(y, {kCols, feat}), d = view(out, {kRows, feat});
  const OnCard there_v(v), there_w(w), there_rows(rows), there_cols(cols), there(d);
  using View = const TensorView&;
  const auto expect = [&](const char* what, const auto& call) {
    call(v, w, rows, cols, d, Stream());
    const std::vector<double> want = doubles(out);
    std::fill(out.begin(), out.end(), NAN);
    there.send();
    call(there_v, there_w, there_rows, there_cols, there, Stream::cuda(nullptr));
    there.fetch();
    expect_close(doubles(out), want, 2e-5, what);
  };
  expect("d_b of spmm", [&](View e, View, View r, View c, View o, Stream s) {
    spmm_backward(turned.structure, back, e, r, c, {.b = o}, s);
  });
  expect("d_x of sddmm",
         [&](View e, View f, View r, View c, View o, Stream s) { sddmm_backward(a, turned, e, r, c, f, {.x = o}, s); });
  expect("d_y of sddmm", [&](View e, View f, View r, View c, View o, Stream s) {
    sddmm_backward(turned.structure, back, e, c, r, f, {.y = o}, s);
  });
}

namespace {

// y[i, k], and the root of the sum of squares of its terms, which are what a row gathers of a feature times the weight.
struct RelationsWanted {
  double sum = 0, terms = 0;
};

// Of elements of a list in the order in which a structure stores them; without values these are 1.
std::vector<RelationsWanted> relations_wanted(const CooTensor& coo, const std::vector<int64_t>& order,
                                              const std::vector<double>& values, const std::vector<double>& x,
                                              const std::vector<double>& w, int64_t feat_in, int64_t feat_out) {
  std::vector<RelationsWanted> want(static_cast<size_t>(coo.extents[1] * feat_out));
  std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> stored;  // by relation and row
  for (size_t p = 0; p < order.size(); ++p) {
    const auto e = static_cast<size_t>(order[p]);
    stored[{coo.coordinates[0][e], coo.coordinates[1][e]}].push_back(p);
  }
  for (const auto& [at, places] : stored)
    for (int64_t l = 0; l < feat_in; ++l) {
      double gathered = 0, size = 0;
      for (const size_t p : places) {
        const auto col = static_cast<int64_t>(coo.coordinates[2][static_cast<size_t>(order[p])]);
        const double term = (values.empty() ? 1 : values[p]) * x[static_cast<size_t>(col * feat_in + l)];
        gathered += term;
        size += std::fabs(term);
      }
      for (int64_t k = 0; k < feat_out; ++k) {
        const double weight = w[static_cast<size_t>((at.first * feat_in + l) * feat_out + k)];
        RelationsWanted& y = want[static_cast<size_t>(at.second * feat_out + k)];
        y.sum += gathered * weight;
        y.terms += size * weight * size * weight;
      }
    }
  for (RelationsWanted& y : want) y.terms = std::sqrt(y.terms);
  return want;
}

}  // namespace

void expect_relations_as_computed(Edges edges, DType dtype, int64_t feat_in, int64_t feat_out) {
  constexpr int64_t kRelations = 3, kRows = 150, kCols = 70;
  // Relation 0 reaches every row, in groups that are full and one that is not; relation 1 few rows; relation 2 none.
  CooTensor coo{.extents = {kRelations, kRows, kCols}, .coordinates = {{}, {}, {}}};
  const auto add = [&](int64_t relation, int64_t row, int64_t col) {
    for (size_t d = 0; d < 3; ++d)
      coo.coordinates[d].push_back(static_cast<int32_t>(d == 0 ? relation : d == 1 ? row : col % kCols));
  };
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t count = edges == Edges::single ? 1 : 1 + row % 6;
    for (int64_t e = 0; e < count; ++e) add(0, row, row * 7 + e * 11);
    if (row % 40 == 3) add(1, row, row);
  }
  const Converted stored = relational_from_coo(coo, 48);
  const Structure& structure = stored.structure;
  const auto random = [&](uint32_t seed, std::vector<int64_t> shape) {
    Array array(DType::fp32, std::move(shape));
    const Values values = random_values(array.bytes().size() / 4, seed);
    std::memcpy(array.bytes().data(), values.data(), array.bytes().size());
    return converted(array, dtype);
  };
  const Array values = random(1, {structure.nnz()}), x = random(2, {kCols, feat_in});
  const Array w = random(3, {kRelations, feat_in, feat_out});
  Array got(dtype, {kRows, feat_out});
  const bool has_values = edges == Edges::weighted;
  const std::vector<RelationsWanted> want =
      relations_wanted(coo, stored.order, has_values ? values_of(values) : std::vector<double>(), values_of(x),
                       values_of(w), feat_in, feat_out);
  const OnCard there_values(values), there_x(x), there_w(w), there(got);
  // Errors of terms have either sign, so that they add up like their root sum of squares, here to less than four times
  // that. A product errs by 5 * 2^-22 of itself, where tf32 stands for fp32, or not at all; what a row gathers is
  // rounded to the type; each addition of a tensor core errs by 2^-23 of what it has, less than twice that root.
  const bool is_narrow = dtype != DType::fp32;
  const double rounding = std::ldexp(1, -8);  // of bf16
  const double of_terms = (is_narrow ? (edges == Edges::single ? 0 : rounding) : 5 * std::ldexp(1, -22)) +
                          2 * static_cast<double>(feat_in) * std::ldexp(1, -23);
  std::vector<double> first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::memset(got.bytes().data(), 0xff, got.bytes().size());  // NaN
    there.send();
    rgms(structure, has_values ? TensorView(there_values) : TensorView(), there_x, there_w, there,
         Stream::cuda(nullptr));
    there.fetch();
    const std::vector<double> values_got = values_of(got);
    for (size_t i = 0; i < want.size(); ++i) {
      const double bound = 4 * of_terms * want[i].terms + (is_narrow ? rounding * std::fabs(want[i].sum) : 0);
      ASSERT_LE(std::fabs(values_got[i] - want[i].sum), bound) << "element " << i;
    }
    if (repeat == 0) first = values_got;
  }
  EXPECT_EQ(values_of(got), first) << "the same bits twice";
}

void expect_as_interpreted(const ReadyCase& c) {
  const Operator op = compile(parse(c.ready.text), c.ready.schedule, Device::cuda(), {.set = c.ready.set});
  RunArguments host = arguments_of(op, c.axis, c.structure(few_places()), 19);
  host.scalars.insert(c.scalars.begin(), c.scalars.end());
  host.reals = c.reals;
  const RunMemory tensors(op, host, 7);
  const CardRun run(op, tensors.arguments);
  loop::Memory want = memory_of(op, tensors.arguments);
  // A program that fails computes all the same, and says so where it is waited for.
  const std::string failure = refusal([&] { interpret_operator(op, Stage::source, want); });
  const Stream stream = Stream::cuda(nullptr);
  std::map<std::string, std::vector<double>> first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    op.run(run.arguments, stream);
    EXPECT_EQ(refusal([&] { stream.synchronize(); }), failure) << c.name;
    for (const std::string& output : outputs_of(op)) {
      const std::vector<double> got = run.fetch(output), &expected = want.buffers.at(output);
      const bool is_narrow = loop::is_narrow(run.arguments.buffers.at(output).dtype());
      expect_close(got, expected, is_narrow ? 1. / 64 : 2e-5, c.name + " " + output);
      const std::vector<double>& before = first.try_emplace(output, got).first->second;
      const auto is_same = [](double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); };
      EXPECT_TRUE(std::ranges::equal(got, before, is_same)) << c.name << " " << output << ": other bits again";
    }
  }
}

}  // namespace weft::sparse::test

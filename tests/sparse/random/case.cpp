#include "tests/sparse/random/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/fp16.h"
#include "sparse/check.h"
#include "sparse/formats/structure.h"
#include "sparse/operator.h"
#include "sparse/schedule.h"
#include "tests/sparse/random/watched.h"
#include "weft/error.h"

namespace weft::sparse::random {

std::string Case::schedule() const {
  std::string text;
  for (const Line& line : stage1) text += line.text + "\n";
  text += "lower()\n";
  for (const Line& line : stage2) text += line.text + "\n";
  return text;
}

bool Case::has(const std::string& primitive) const {
  const auto is = [&](const Line& line) { return line.primitive == primitive; };
  return std::any_of(stage1.begin(), stage1.end(), is) || std::any_of(stage2.begin(), stage2.end(), is);
}

std::string to_text(const Case& c) {
  std::string text = to_text(c.program), schedule = "schedule:\n", set, rows;
  for (const Line& line : c.stage1) schedule += "  " + line.text + "\n";
  schedule += "  lower()\n";
  for (const Line& line : c.stage2) schedule += "  " + line.text + "\n";
  const auto add = [&](const auto& params) {
    for (const auto& [param, value] : params)
      set += fmt::format(" {}{}={}", c.program.set.contains(param) ? "--set " : "", param, value);
  };
  add(c.program.params);
  add(c.program.reals);
  for (const AxisDef& axis : c.program.axes)
    if (!axis.parent.empty()) {
      rows += fmt::format("# {} stores", axis.name);
      for (const auto& row : axis.rows) rows += fmt::format(" [{}]", fmt::join(row, " "));
      rows += "\n";
    }
  return fmt::format("{}{}#{}\n{}", text, schedule, set, rows);
}

// ---------------------------------------------------------------- inputs

namespace {

template <class T>
void append(std::vector<char>& bytes, T value) {
  const auto* first = reinterpret_cast<const char*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

template <class T>
void read(std::vector<double>& numbers, const char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    numbers.push_back(static_cast<double>(value));
  }
}

Level level_of(const AxisDef& axis) {
  Level level{.is_sparse = axis.is_sparse(), .is_variable = axis.is_variable(), .length = axis.length};
  if (axis.parent.empty()) return level;
  level.per_parent = axis.width;
  if (level.is_variable) level.indptr.push_back(0);
  for (size_t row = 0; row < axis.rows.size(); ++row) {
    for (const int64_t coordinate : axis.coordinates_below(static_cast<int64_t>(row)))
      if (level.is_sparse) level.indices.push_back(static_cast<int32_t>(coordinate < 0 ? axis.length : coordinate));
    if (level.is_variable) level.indptr.push_back(level.indptr.back() + static_cast<int32_t>(axis.rows[row].size()));
  }
  return level;
}

}  // namespace

std::vector<char> bytes_of(const std::vector<double>& values, const std::string& dtype) {
  std::vector<char> bytes;
  for (const double value : values) {
    if (dtype == "fp32") append(bytes, static_cast<float>(value));
    if (dtype == "fp64") append(bytes, value);
    if (dtype == "fp16") append(bytes, to_fp16(value));
    if (dtype == "bf16") append(bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    if (dtype == "int32") append(bytes, static_cast<int32_t>(value));
    if (dtype == "int64") append(bytes, static_cast<int64_t>(value));
  }
  return bytes;
}

std::vector<double> numbers_of(const char* bytes, size_t count, const std::string& dtype) {
  std::vector<double> numbers;
  for (size_t i = 0; i < count && dtype.ends_with("16"); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    numbers.push_back(dtype == "fp16" ? from_fp16(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
  if (dtype == "fp32") read<float>(numbers, bytes, count);
  if (dtype == "fp64") read<double>(numbers, bytes, count);
  if (dtype == "int32") read<int32_t>(numbers, bytes, count);
  if (dtype == "int64") read<int64_t>(numbers, bytes, count);
  return numbers;
}

Inputs::Inputs(const ProgramDef& program) : program_(program) {
  for (const AxisDef& axis : program.axes) {
    if (axis.parent.empty()) continue;
    std::vector<Level> levels;
    for (const std::string& name : program.chain_of(axis.name)) levels.push_back(level_of(program.axis(name)));
    structures_[axis.name] = make_structure(std::move(levels));
  }
  for (const BufferDef& buffer : program.buffers)
    if (!buffer.temporary) tensors_[buffer.name] = bytes_of(buffer.values, buffer.dtype);
  for (auto& [name, bytes] : tensors_) bytes.resize(bytes.size() + 8);  // one of no elements has an address, too
}

RunArguments Inputs::arguments() const {
  RunArguments arguments{.structures = structures_, .scalars = program_.params_that_are(false)};
  arguments.reals = program_.reals_that_are(false);
  for (const auto& [name, bytes] : tensors_) {
    const BufferDef& buffer = program_.buffer(name);
    arguments.buffers[name] = {
        const_cast<char*>(bytes.data()), dtype_from_string(buffer.dtype), {static_cast<int64_t>(buffer.values.size())}};
  }
  return arguments;
}

// ---------------------------------------------------------------- checks

Operator compiled_text(const Case& c) {
  return compile(
      parse(to_text(c.program)), c.schedule(), Device::cpu(),
      {.set = c.program.params_that_are(true), .set_reals = c.program.reals_that_are(true), .stop_after = "generate"});
}

std::string difference(const std::string& buffer, const std::vector<double>& got, const std::vector<Number>& want) {
  if (got.size() != want.size()) return fmt::format("{} has {} elements, not {}", buffer, got.size(), want.size());
  for (size_t e = 0; e < want.size(); ++e) {
    const Number& x = want[e];
    if (std::fabs(got[e] - x.value) <= x.error) continue;
    const std::string bound = x.error > 0 ? fmt::format(" within {:.1e}", x.error) : "";
    return fmt::format("element {} of {} is {}, not {}{}", e, buffer, got[e], x.value, bound);
  }
  return {};
}

Problem tried(const std::function<Problem()>& call) {
  Problem problem;
  const std::string end = watched([&] {
    try {
      problem = call();
    } catch (const Error& error) {
      const bool fits = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported;
      problem = {fits ? "refused" : "another error", error.what()};
    } catch (const Unusable& unusable) {
      problem = {"unusable", unusable.what()};
    } catch (const std::exception& exception) {
      problem = {"internal error", exception.what()};
    }
  });
  return end.empty() ? problem : Problem{"crash", end};
}

namespace {

Problem interpreted_stage(const Case& c, const Operator& op, const Results& want, Stage stage) {
  const Inputs inputs(c.program);
  const std::string where = stage == Stage::source ? "the program" : fmt::format("stage {}", int(stage));
  return tried([&]() -> Problem {
    loop::Memory memory = memory_of(op, inputs.arguments());
    std::string said;
    try {
      interpret_operator(op, stage, memory);
    } catch (const Error& error) {
      said = error.what();
    }
    if (Problem problem = failure_problem(c, want, said)) return {problem.kind, where + ": " + problem.what};
    for (const auto& [buffer, values] : want.values)
      if (const std::string text = difference(buffer, memory.buffers.at(buffer), values); !text.empty())
        return {"wrong", fmt::format("{}: {}", where, text)};
    return {};
  });
}

}  // namespace

Problem failure_problem(const Case& c, const Results& want, const std::string& said) {
  const std::string wrong = wrong_failure(c.program, want, said, c.has("decompose_format"));
  if (wrong.empty()) return {};
  return {said.empty() ? "no error" : want.failures.empty() ? "fails" : "another failure", wrong};
}

Problem accepted(const Case& c, std::unique_ptr<Operator>* made) {
  Problem problem = tried([&]() -> Problem {
    auto op = std::make_unique<Operator>(compiled_text(c));
    if (made != nullptr) *made = std::move(op);
    return {};
  });
  if (problem.kind == "refused" && problem.what.find(kBreaksRules) != problem.what.npos) problem.kind = "breaks rules";
  return problem;
}

Problem interpreted(const Case& c) {
  Results want;
  std::unique_ptr<Operator> op;
  Problem problem = tried([&]() -> Problem {
    want = results_of(c.program);
    return {};
  });
  if (!problem) problem = accepted(c, &op);
  if (problem) return problem;
  for (const Stage stage : {Stage::source, Stage::one, Stage::two, Stage::three})
    if ((problem = interpreted_stage(c, *op, want, stage))) return problem;
  problem = tried([&]() -> Problem {
    op->text("cuda");
    return {};
  });
  return problem.kind == "refused" ? Problem{} : problem;
}

std::string report(const Case& c, const Problem& problem) {
  return fmt::format("{}: {}\n{}", problem.kind, problem.what, to_text(c));
}

}  // namespace weft::sparse::random

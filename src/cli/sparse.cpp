// `weft sparse`: a sparse program as text: shown at any stage, run, checked, drawn.
#include "weft/sparse.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/packed_file.h"
#include "cli/sparse_input.h"
#include "cli/sparse_svg.h"
#include "cli/sparse_tune.h"
#include "sparse/check.h"
#include "sparse/formats/structure_on.h"
#include "sparse/stage1/parse.h"

namespace weft::cli {
namespace {

struct SparseOptions {
  std::string file, print, schedule, svg;
  std::vector<std::string> matrices, set;
  bool run = false, check = false, sum_duplicates = false, tune = false;
  int seconds = 45;
  uint64_t seed = 0;
};

// "NAME=value"
std::pair<std::string, std::string> named(const std::string& option, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) throw UsageError(fmt::format("{} {}: NAME=VALUE is expected", option, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// A tensor of one's own, of numbers in [-1, 1).
struct Tensor {
  std::vector<char> bytes;
  TensorView view;
};

void fill(Tensor& tensor, const sparse::RunSize::Tensor& wanted, std::mt19937_64& random) {
  const size_t width = static_cast<size_t>(bits_of(wanted.dtype)) / 8;
  tensor.bytes.resize(static_cast<size_t>(wanted.count) * width);
  const auto next = [&] { return static_cast<double>(random() >> 11) * 0x1p-52 - 1; };
  for (int64_t i = 0; i < wanted.count; ++i) {
    const double value = next();
    switch (wanted.dtype) {
      case DType::fp64: reinterpret_cast<double*>(tensor.bytes.data())[i] = value; break;
      case DType::fp32: reinterpret_cast<float*>(tensor.bytes.data())[i] = static_cast<float>(value); break;
      case DType::bf16:
        reinterpret_cast<uint16_t*>(tensor.bytes.data())[i] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
        break;
      default: break;  // integers are zero
    }
  }
  tensor.view = TensorView(tensor.bytes.data(), wanted.dtype, {wanted.count});
}

void run(const SparseOptions& options, const sparse::Operator& op, const sparse::RunArguments& structures,
         double compile_ms, const Context& context) {
  sparse::RunArguments arguments = structures;
  const sparse::RunSize size = sparse::size_of_run(op, arguments);
  std::mt19937_64 random(options.seed);
  std::map<std::string, Tensor> tensors;
  for (const sparse::RunSize::Tensor& wanted : size.tensors) {
    fill(tensors[wanted.name], wanted, random);
    arguments.buffers[wanted.name] = tensors[wanted.name].view;
  }
  // What is written is read by the check as it was before.
  std::map<std::string, Tensor> before;
  sparse::RunArguments as_before = arguments;
  const std::vector<std::string> outputs = sparse::outputs_of(op);
  for (const std::string& name : outputs) {
    before[name] = tensors[name];
    as_before.buffers[name] =
        TensorView(before[name].bytes.data(), tensors[name].view.dtype(), tensors[name].view.shape());
  }
  const auto restore = [&] {
    for (const std::string& name : outputs)
      tensors[name].bytes.assign(before[name].bytes.begin(), before[name].bytes.end());
  };
  const double first_ms = seconds_of([&] { op.run(arguments); }) * 1e3;
  arguments.values_unchanged = true;
  double run_ms = first_ms;
  for (int repeat = 0; repeat < 3; ++repeat) {
    stop_if_interrupted();
    restore();
    run_ms = std::min(run_ms, seconds_of([&] { op.run(arguments); }) * 1e3);
  }
  double checksum = 0;
  std::map<std::string, TensorView> after;
  for (const std::string& name : outputs) {
    after[name] = arguments.buffers[name];
    for (const double value : sparse::values_of(arguments.buffers[name])) checksum += value;
  }
  nlohmann::json result = {
      {"event", "done"},     {"compile_ms", compile_ms}, {"convert_ms", std::max(0., first_ms - run_ms)},
      {"run_ms", run_ms},    {"flops", size.flops},      {"bytes", size.bytes},
      {"checksum", checksum}};
  if (options.check) result["max_error"] = sparse::max_error(op, as_before, after);
  if (context.json) return print_json(result);
  print_out(
      "compiled in {:.1f} ms, converted in {:.1f} ms, ran in {:.3f} ms: {:.2f} GFLOP/s, {:.2f} GB/s; checksum {}\n",
      compile_ms, std::max(0., first_ms - run_ms), run_ms, size.flops / run_ms / 1e6, size.bytes / run_ms / 1e6,
      checksum);
  if (options.check) print_out("max error against the interpreter: {:.3g}\n", result["max_error"].get<double>());
}

// The structure of an axis, in the format that the program's axes say.
sparse::Structure read_structure(const sparse::Stage1& program, const std::string& axis, const std::string& path,
                                 bool sum_duplicates) {
  check(program.find_axis(axis) != nullptr, ErrorCode::invalid_argument, "--matrix {}={}: the program has no axis '{}'",
        axis, path, axis);
  const std::vector<std::string> above = program.ancestors(axis);
  if (above.size() <= 1 || !is_tensor(path)) {
    const sparse::Coo coo = read_matrix(path);
    return sparse::structure_on(program, axis, sum_duplicates ? sparse::merged(coo).coo : coo);
  }
  const sparse::CooTensor tensor = read_tensor(path);
  const size_t rank = tensor.extents.size();
  if (above.size() == rank) return sparse::csf_from_coo(tensor).structure;
  if (rank == 3 && above.size() == 2) return sparse::relations_from_coo(tensor).structure;
  int64_t tile = 0;
  if (rank == 3 && above.size() == 4 && loop::is_integer(program.axis(above.back()).length, &tile))
    return sparse::relational_from_coo(tensor, tile).structure;
  fail(ErrorCode::invalid_argument,
       "--matrix {}={}: the tensor has {} dimensions and the axis {} above it; required: as many (CSF below an axis of "
       "one), or relations as relations_from_coo and relational_from_coo make them",
       axis, path, rank, above.size());
}

void sparse_verb(const SparseOptions& options, const Context& context) {
  const sparse::Program program = sparse::parse(read_packed_file(options.file));
  if (options.tune) {
    const auto by_name = [](const std::string& option, const std::vector<std::string>& texts) {
      std::map<std::string, std::string> map;
      for (const std::string& text : texts) map.insert(named(option, text));
      return map;
    };
    return tune_sparse({.file = options.file,
                        .matrices = by_name("--matrix", options.matrices),
                        .set = by_name("--set", options.set),
                        .seconds = static_cast<double>(options.seconds)},
                       program, context);
  }
  sparse::CompileOptions compile_options;
  const Allowed any{"0 to 2147483647", [](double n) { return n >= 0 && n <= 2147483647.; }};
  for (const std::string& text : options.set) {
    const auto [name, value] = named("--set", text);
    compile_options.set[name] = parse_number<int64_t>("--set " + name, value, any);
  }
  if (!options.run) compile_options.stop_after = options.print == "cuda" ? "generate cuda" : "generate";
  const std::string schedule = options.schedule.empty() ? "" : read_packed_file(options.schedule);
  sparse::RunArguments arguments;
  const sparse::Stage1 axes = sparse::parse_program(program.text()).stage1;
  for (const std::string& text : options.matrices) {
    const auto [axis, path] = named("--matrix", text);
    arguments.structures[axis] = read_structure(axes, axis, path, options.sum_duplicates);
    stop_if_interrupted();
  }
  const auto start = Clock::now();
  const sparse::Operator op = options.schedule.empty()
                                  ? sparse::compile(program, Device::cpu(), compile_options)
                                  : sparse::compile(program, schedule, Device::cpu(), compile_options);
  const double compile_ms = seconds_since(start) * 1e3;
  if (!options.svg.empty()) {
    const std::string picture = sparse_svg(op, arguments.structures);
    std::ofstream out(options.svg, std::ios::binary);
    out << picture;
    out.flush();
    check(out.good(), ErrorCode::io_error, "--svg {}: cannot be written; check the folder and its permissions",
          options.svg);
  }
  if (!options.print.empty()) {
    const std::string text = op.text(options.print);
    if (context.json)
      print_json({{"event", "text"}, {"stage", options.print}, {"text", text}});
    else
      write_out(text);
  }
  if (options.run) return run(options, op, arguments, compile_ms, context);
  if (options.print.empty() && !context.json)
    for (const sparse::PassTime& pass : op.passes()) print_out("{:<24} {:>9.3f} ms\n", pass.name, pass.milliseconds);
  if (context.json) print_json({{"event", "done"}, {"compile_ms", compile_ms}});
}

}  // namespace

void add_sparse(Program& program, Context& context) {
  Verb verb = program.verb("sparse", "Compile a sparse tensor program; show its stages, run it, check it, draw it");
  auto options = std::make_shared<SparseOptions>();
  verb.option("file", options->file, "A program in the text form, with its schedule").required().type_name("FILE");
  verb.option("--print", options->print, "Show a stage, or the code")
      .one_of({"stage1", "stage2", "stage3", "code", "cuda"});
  verb.option("--schedule", options->schedule, "Lines of a schedule instead of the program's own").type_name("FILE");
  verb.option("--set", options->set, "Parameters that are fixed, feat=64").type_name("NAME=N");
  verb.flag("--run", options->run, "Run it; buffers are filled with numbers in [-1, 1)");
  verb.option("--matrix", options->matrices, "The structure of an axis, J=FILE: .mtx, .smtx, .csv, .tns, each also .gz")
      .type_name("AXIS=FILE");
  verb.flag("--sum-duplicates", options->sum_duplicates, "Elements of a matrix that stand twice are one");
  verb.flag("--tune", options->tune,
            "Search formats and schedules of SpMM, SDDMM or RGMS for --matrix and --set; results are kept");
  verb.option("--seconds", options->seconds, "With --tune: for so long; another call goes on with what is left")
      .range(0, 86400);
  verb.flag("--check", options->check, "With --run: compare with the interpreter, in fp64");
  verb.option("--seed", options->seed, "Of the numbers that fill buffers");
  verb.option("--svg", options->svg, "Draw the matrix in its formats, and the loops, into this file").type_name("FILE");
  verb.example("weft sparse spmm.txt --run --matrix J=cora.mtx.gz --set feat=64 --check");
  verb.runs([options, &context] { sparse_verb(*options, context); });
}

}  // namespace weft::cli

// `weft sparse`: a sparse program as text: shown at any stage, run, checked, drawn.
#include "weft/sparse.h"

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/error_message.h"
#include "base/names.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/packed_file.h"
#include "cli/sparse_matrix.h"
#include "cli/sparse_run.h"
#include "cli/sparse_structure.h"
#include "cli/sparse_svg.h"
#include "cli/sparse_tune.h"
#include "sparse/stage1/parse.h"

namespace weft::cli {
namespace {

struct SparseOptions {
  std::string file, print, schedule, svg, device = "cpu";
  std::vector<std::string> matrices, structures, set, inputs, outputs;
  bool run = false, check = false, sum_duplicates = false, pattern = false, tune = false;
  int seconds = 45;
  uint64_t seed = 0;
  bool has_seconds = false, has_seed = false;  // that are given
};

// "NAME=value" of an option that may stand several times, each name once.
std::map<std::string, std::string> by_name(const std::string& option, const std::vector<std::string>& texts) {
  std::map<std::string, std::string> map;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || equals + 1 == text.size())
      throw UsageError(fmt::format("{} {}: NAME=VALUE is expected", option, text));
    const std::string name = text.substr(0, equals);
    if (!map.emplace(name, text.substr(equals + 1)).second)
      throw UsageError(fmt::format("{} {}: '{}' is given twice", option, text, name));
  }
  return map;
}

// The same, or "FILE" for the only result.
std::map<std::string, std::string> outputs_by_name(const std::vector<std::string>& texts) {
  std::vector<std::string> named;
  std::map<std::string, std::string> unnamed;
  for (const std::string& text : texts) {
    if (text.find('=') != text.npos)
      named.push_back(text);
    else if (text.empty() || !unnamed.emplace("", text).second)
      throw UsageError(fmt::format("--out {}: NAME=FILE is expected", text));
  }
  std::map<std::string, std::string> all = by_name("--out", named);
  all.merge(unnamed);
  return all;
}

// Names the file whose line a message speaks of. `schedule`: one that lines of a schedule stand in, "" for the
// program's.
template <class Work>
auto naming_file(const std::string& program, const std::string& schedule, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string message = message_of(error);
    if (!message.starts_with("line ")) throw;
    // Of a program that is parsed, messages speak of an iteration.
    const bool is_of_program = schedule.empty() || message.find(": iteration '") < message.find('(');
    throw Error(error.code(), fmt::format("'{}', {}", is_of_program ? program : schedule, message));
  }
}

// What files of axes hold; arrays become structures when the lengths of axes are known.
void read_files(const SparseOptions& options, const sparse::Stage1& program, SparseRun& run, std::string& doing) {
  const auto does_not_fit = [&](const char* option, const std::string& axis, const std::string& path) {
    doing = fmt::format("{} {}={}: the matrix does not fit into memory; take a smaller one", option, axis, path);
  };
  const std::map<std::string, std::string> matrices = by_name("--matrix", options.matrices);
  for (const auto& [axis, path] : matrices) {
    does_not_fit("--matrix", axis, path);
    run.matrices.push_back(read_matrix_option(program, axis, path,
                                              {.sum_duplicates = options.sum_duplicates,
                                               .places_alone = options.pattern,
                                               .set = run.set,
                                               .is_run = options.run}));
    stop_if_interrupted();
  }
  for (const auto& [axis, files] : by_name("--structure", options.structures)) {
    does_not_fit("--structure", axis, files);
    if (matrices.contains(axis))
      throw UsageError(fmt::format("--structure {0}={1} and --matrix {0}={2}: both give the structure of axis '{0}'",
                                   axis, files, matrices.at(axis)));
    if (is_of_arrays(files))
      run.arrays.emplace(axis, read_axis_arrays(program, axis, files));
    else
      run.matrices.push_back(read_matrix_option(program, axis, files,
                                                {.sum_duplicates = options.sum_duplicates,
                                                 .places_alone = true,
                                                 .option = "--structure",
                                                 .set = run.set,
                                                 .is_run = options.run}));
    stop_if_interrupted();
  }
}

void write_picture(const SparseOptions& options, const sparse::Operator& op,
                   const std::vector<MatrixOption>& matrices) {
  std::map<std::string, sparse::Structure> structures;
  for (const MatrixOption& matrix : matrices) structures[matrix.axis] = matrix.structure;
  write_svg(options.svg, sparse_svg(op, structures));
}

// Parameters that --set fixes, integers and reals apart.
void set_parameters(const SparseOptions& options, const sparse::Stage1& program,
                    sparse::CompileOptions& compile_options) {
  const Allowed any{"0 to 2147483647", [](double n) { return n >= 0 && n <= 2147483647.; }};
  const Allowed any_real{"finite numbers", [](double) { return true; }};
  std::vector<std::string> known = program.params;
  known.insert(known.end(), program.reals.begin(), program.reals.end());
  for (const auto& [name, value] : by_name("--set", options.set)) {
    check(std::find(known.begin(), known.end(), name) != known.end(), ErrorCode::invalid_argument,
          "--set {}={}: the program has no parameter '{}'; its parameters are {}{}", name, value, name,
          known.empty() ? "none" : joined(known), did_you_mean(name, known));
    if (std::find(program.reals.begin(), program.reals.end(), name) != program.reals.end())
      compile_options.set_reals[name] = parse_number<double>("--set " + name, value, any_real);
    else
      compile_options.set[name] = parse_number<int64_t>("--set " + name, value, any);
  }
}

// `doing`: what takes memory, for a message where there is too little.
void compile_and_run(const SparseOptions& options, const sparse::Program& program, const Context& context,
                     std::string& doing) {
  const Device device = require_device(options.device);
  sparse::CompileOptions compile_options;
  const sparse::Stage1 stage1 = sparse::parse_program(program.text()).stage1;
  set_parameters(options, stage1, compile_options);
  if (!options.run) compile_options.stop_after = options.print == "cuda" ? "generate cuda" : "generate";
  SparseRun run{.inputs = by_name("--input", options.inputs),
                .outputs = outputs_by_name(options.outputs),
                .check = options.check,
                .device = device,
                .seed = options.seed};
  run.set = compile_options.set;
  check_run(run, stage1);
  read_files(options, stage1, run, doing);
  doing = fmt::format("{}: compiling it takes more memory than there is", options.file);
  const auto start = Clock::now();
  const std::string schedule = options.schedule.empty() ? "" : read_packed_file(options.schedule);
  const sparse::Operator op = naming_file(options.file, options.schedule, [&] {
    return options.schedule.empty() ? sparse::compile(program, device, compile_options)
                                    : sparse::compile(program, schedule, device, compile_options);
  });
  run.compile_ms = seconds_since(start) * 1e3;
  if (!options.svg.empty()) write_picture(options, op, run.matrices);
  if (!options.print.empty()) {
    const std::string text = naming_file(options.file, options.schedule, [&] { return op.text(options.print); });
    if (context.json)
      print_json({{"event", "text"}, {"stage", options.print}, {"text", text}});
    else
      write_out(text);
  }
  if (options.run) {
    doing = "the tensors of the run do not fit into memory; take a smaller --matrix, or smaller numbers in --set";
    return run_sparse(run, stage1, op, context);
  }
  if (options.print.empty() && !context.json)
    for (const sparse::PassTime& pass : op.passes()) print_out("{:<24} {:>9.3f} ms\n", pass.name, pass.milliseconds);
  if (context.json) print_json({{"event", "done"}, {"compile_ms", run.compile_ms}});
}

void sparse_verb(const SparseOptions& options, const Context& context) {
  const bool has_matrix = !options.matrices.empty(), has_structure = !options.structures.empty();
  const struct {
    bool given;
    const char* option;
    bool fits;
    const char* with;
  } needs[] = {{options.check, "--check", options.run, "--run"},
               {!options.inputs.empty(), "--input", options.run, "--run"},
               {has_structure, "--structure", options.run, "--run"},
               {!options.outputs.empty(), "--out", options.run, "--run"},
               {options.has_seed, "--seed", options.run, "--run"},
               {options.has_seconds, "--seconds", options.tune, "--tune"},
               {options.pattern, "--pattern", has_matrix, "--matrix"},
               {options.sum_duplicates, "--sum-duplicates", has_matrix || has_structure, "--matrix and --structure"}};
  for (const auto& need : needs)
    if (need.given && !need.fits) throw UsageError(fmt::format("{} is for {}", need.option, need.with));
  const sparse::Program program =
      naming_file(options.file, "", [&] { return sparse::parse(read_packed_file(options.file)); });
  std::string doing = "the matrix and the tensors of a search do not fit into memory; take a smaller --matrix";
  try {
    if (options.tune)
      return tune_sparse({.file = options.file,
                          .matrices = by_name("--matrix", options.matrices),
                          .set = by_name("--set", options.set),
                          .seconds = static_cast<double>(options.seconds),
                          .device = require_device(options.device),
                          .sum_duplicates = options.sum_duplicates},
                         program, context);
    compile_and_run(options, program, context, doing);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "{}", doing);
  }
}

}  // namespace

void add_sparse(Program& program, Context& context) {
  Verb verb = program.verb("sparse", "Compile a sparse tensor program; show its stages, run it, check it, draw it");
  auto options = std::make_shared<SparseOptions>();
  verb.option("file", options->file, "A program in the text form, with its schedule").required().type_name("FILE");
  const Option print = verb.option("--print", options->print, "Show a stage, or the code")
                           .one_of({"stage1", "stage2", "stage3", "code", "cuda"});
  const Option schedule =
      verb.option("--schedule", options->schedule, "Lines of a schedule instead of the program's own")
          .type_name("FILE")
          .filled();
  verb.option("--set", options->set, "Parameters that are fixed, feat=64, alpha=0.5").type_name("NAME=N");
  const Option run =
      verb.flag("--run", options->run, "Run it; buffers that no file gives are filled with numbers in [-1, 1)");
  verb.option(
          "--matrix", options->matrices,
          "The structure of an axis, J=FILE, and the values of the buffer on its axes: .mtx, .smtx, .csv, .tns, each "
          "also .gz")
      .type_name("AXIS=FILE");
  verb.option(
          "--structure", options->structures,
          "With --run: the structure of an axis alone, J=FILE as of --matrix, or its arrays, J=INDPTR.npy,INDICES.npy")
      .type_name("AXIS=FILE");
  verb.flag("--pattern", options->pattern, "Of --matrix the places alone, not the values");
  verb.flag("--sum-duplicates", options->sum_duplicates, "Elements of a matrix that stand twice are one, their sum");
  verb.option("--input", options->inputs, "With --run: the numbers of a buffer, B=FILE.npy").type_name("NAME=FILE");
  verb.option("--out", options->outputs,
              "With --run: writes a result, C=FILE.npy or C=FILE.mtx; FILE alone where there is one result")
      .type_name("NAME=FILE");
  Option tune =
      verb.flag("--tune", options->tune,
                "Search formats and schedules of SpMM, SDDMM or RGMS for --matrix and --set; results are kept");
  const Option seconds =
      verb.option("--seconds", options->seconds, "With --tune: for so long; another call goes on with what is left")
          .range(0, 86400);
  verb.option("--device", options->device, "Where it runs, or is searched for: cpu, cuda:0, ...");
  verb.flag("--check", options->check, "With --run: compare with the interpreter, in fp64");
  const Option seed = verb.option("--seed", options->seed, "With --run: of the numbers that fill buffers");
  const Option svg = verb.option("--svg", options->svg, "Draw the matrix in its formats, and the loops, into this file")
                         .type_name("FILE")
                         .filled();
  for (const Option& other : {run, print, schedule, svg}) tune.excludes(other);
  verb.example("weft sparse spmm.txt --run --matrix J=cora.mtx.gz --set feat=64 --check --out C=c.npy");
  verb.runs([options, seconds, seed, &context] {
    options->has_seconds = seconds.given();
    options->has_seed = seed.given();
    sparse_verb(*options, context);
  });
}

}  // namespace weft::cli

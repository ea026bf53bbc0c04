#include "cli/sparse_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/check.h"
#include "base/clock.h"
#include "base/error_message.h"
#include "base/fp16.h"
#include "base/names.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "cli/packed_file.h"
#include "cli/sparse_device.h"
#include "device/cpu/cgroup.h"
#include "sparse/argument_names.h"
#include "sparse/check.h"
#include "sparse/formats/structure_on.h"

namespace weft::cli {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The options that gave what a message is about, and those that are missing.
class OptionNames : public sparse::ArgumentNames {
 public:
  explicit OptionNames(const SparseRun& run) : run_(run) {}
  std::string structure(const std::string& axis) const override {
    for (const MatrixOption& matrix : run_.matrices)
      if (matrix.axis == axis) return matrix.given;
    const auto arrays = run_.arrays.find(axis);
    return arrays == run_.arrays.end() ? fmt::format("--matrix {}", axis) : arrays->second.given;
  }
  std::string scalar(const std::string& param) const override { return fmt::format("--set {}", param); }
  std::string real(const std::string& param) const override { return scalar(param); }
  std::string buffer(const std::string& name) const override {
    const auto found = run_.inputs.find(name);
    return found == run_.inputs.end() ? fmt::format("buffer '{}'", name)
                                      : fmt::format("--input {}={}", name, found->second);
  }
  void lacks_structure(const std::string& axis, const std::string& axes, const std::string& why) const override {
    throw UsageError(
        fmt::format("--matrix {}=FILE is missing{}{}; files are taken by {}. --structure {}=FILE gives "
                    "the structure alone",
                    axis, why.empty() ? "" : ": ", why, axes, axis));
  }
  void lacks_parameters(const std::vector<std::string>& params) const override {
    throw UsageError(fmt::format("{} missing: no --matrix and no --input tells {}",
                                 joined(params, [](const std::string& p) { return fmt::format("--set {}=N", p); }) +
                                     (params.size() == 1 ? " is" : " are"),
                                 params.size() == 1 ? "it" : "them"));
  }
  void lacks_reals(const std::vector<std::string>& params) const override {
    throw UsageError(fmt::format("{} missing: a real parameter has no other value",
                                 joined(params, [](const std::string& p) { return fmt::format("--set {}=X", p); }) +
                                     (params.size() == 1 ? " is" : " are")));
  }

 private:
  const SparseRun& run_;
};

std::string extension_of(const std::string& path) { return std::filesystem::path(path).extension().string(); }

std::vector<std::string> written_by(const sparse::Stage1& program) {
  std::vector<std::string> names;
  for (const sparse::SparseBuffer& buffer : program.buffers) {
    if (buffer.temporary) continue;
    const auto writes = [&](const sparse::Iteration& it) {
      return stores_to(it.body, buffer.name) || stores_to(it.init, buffer.name);
    };
    if (std::any_of(program.iterations.begin(), program.iterations.end(), writes)) names.push_back(buffer.name);
  }
  return names;
}

std::vector<std::string> given_by_user(const sparse::Stage1& program) {
  std::vector<std::string> names;
  for (const sparse::SparseBuffer& buffer : program.buffers)
    if (!buffer.temporary) names.push_back(buffer.name);
  return names;
}

void check_inputs(const SparseRun& run, const sparse::Stage1& program) {
  const std::vector<std::string> buffers = given_by_user(program);
  for (const auto& [name, path] : run.inputs) {
    check(contains(buffers, name), ErrorCode::invalid_argument,
          "--input {}={}: the program has no buffer '{}' to give; its buffers are {}", name, path, name,
          joined(buffers));
    check(path.ends_with(".npy") || path.ends_with(".npy.gz"), ErrorCode::invalid_argument,
          "--input {}={}: files of buffers end with .npy", name, path);
  }
}

// One output at a time.
void check_output(const std::string& name, const std::string& path, const std::vector<std::string>& written) {
  const std::string option = fmt::format("--out {}={}", name, path);
  check(contains(written, name), ErrorCode::invalid_argument, "{}: the program writes no buffer '{}'; it writes {}",
        option, name, joined(written));
  const std::string extension = extension_of(path);
  check(extension == ".npy" || extension == ".mtx", ErrorCode::invalid_argument,
        "{}: files of results end with .npy or .mtx", option);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  check(std::filesystem::is_directory(folder, ignored), ErrorCode::io_error, "{}: there is no folder '{}'", option,
        folder.string());
}

// Numbers in [-1, 1); zeros of integers.
sparse::Array random_array(DType dtype, std::vector<int64_t> shape, std::mt19937_64& random) {
  sparse::Array array(dtype, std::move(shape));
  const int64_t count = array.view().size();
  std::byte* bytes = array.bytes().data();
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    switch (dtype) {
      case DType::fp64: reinterpret_cast<double*>(bytes)[i] = value; break;
      case DType::fp32: reinterpret_cast<float*>(bytes)[i] = static_cast<float>(value); break;
      case DType::fp16: reinterpret_cast<uint16_t*>(bytes)[i] = to_fp16(value); break;
      case DType::bf16:
        reinterpret_cast<uint16_t*>(bytes)[i] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
        break;
      default: break;
    }
  }
  return array;
}

// The tensors of a run, by buffer.
class Tensors {
 public:
  Tensors(const SparseRun& run, const sparse::Stage1& program, const sparse::Operator& op) : run_(run), names_(run) {
    for (const MatrixOption& matrix : run.matrices) arguments.structures[matrix.axis] = matrix.structure;
    std::vector<std::string> given;
    for (const auto& [name, path] : run.inputs) {
      read(name, path, program.buffer(name).dtype);
      given.push_back(name);
    }
    arguments.structures.merge(structures_of_arrays(program, run.arrays, run.set, arguments, names_));
    for (const MatrixOption& matrix : run.matrices) {
      const std::string name = buffer_of_values(program, matrix, given);
      if (name.empty()) continue;
      keep(name, sparse::values_at(matrix.values, matrix.order, program.buffer(name).dtype));
      sources[name] = matrix.path;
    }
    size = sparse::size_of_run(op, arguments, names_);
    check_size();
    std::mt19937_64 random(run.seed);
    const std::vector<std::string> inputs = sparse::inputs_of(program);
    for (const sparse::RunSize::Tensor& wanted : size.tensors) {
      stop_if_interrupted();
      // What is given, or is 0 in a file where the program leaves it out, changes no other buffer's numbers.
      const bool is_given = arrays.contains(wanted.name), is_read = contains(inputs, wanted.name);
      const bool is_zero = !is_given && !is_read && run.outputs.contains(wanted.name);
      if (is_given || is_zero) random.discard(static_cast<unsigned long long>(wanted.count));
      if (is_zero) keep(wanted.name, sparse::Array(wanted.dtype, wanted.shape));
      if (is_given || is_zero) continue;
      if (is_read) filled.push_back(wanted.name);
      keep(wanted.name, random_array(wanted.dtype, wanted.shape, random));
    }
    sparse::check_arguments(op, arguments, names_);
  }

  sparse::RunArguments arguments = {};
  std::map<std::string, sparse::Array> arrays = {};
  std::map<std::string, std::string> sources = {};  // the file that each is from
  std::vector<std::string> filled = {};             // with random numbers, which are read
  sparse::RunSize size = {};

 private:
  // Before memory is taken, which a system may promise and not have.
  void check_size() const {
    double bytes = 0;
    for (const sparse::RunSize::Tensor& tensor : size.tensors)
      if (!arrays.contains(tensor.name)) bytes += static_cast<double>(tensor.count) * bits_of(tensor.dtype) / 8;
    const auto available = static_cast<double>(available_memory());
    check(bytes <= available, ErrorCode::out_of_memory,
          "the tensors of the run do not fit into memory: they take {:.1f} GB, and {:.1f} GB are free; take a smaller "
          "--matrix, or smaller numbers in --set",
          bytes / 1e9, available / 1e9);
  }
  void keep(const std::string& name, sparse::Array array) {
    arrays[name] = std::move(array);
    arguments.buffers[name] = arrays[name].view();
  }
  void read(const std::string& name, const std::string& path, DType dtype) {
    const sparse::Array array = sparse::parse_npy(path, read_packed_file(path));
    try {
      keep(name, sparse::converted(array, dtype));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", names_.buffer(name), message_of(error)));
    }
    sources[name] = path;
  }

  const SparseRun& run_;
  OptionNames names_;
};

// Of all results.
struct Checksum {
  double sum = 0;
  int64_t num_values = 0, num_nan = 0, num_infinite = 0;

  void add(const TensorView& tensor) {
    for (const double value : sparse::values_of(tensor)) {
      sum += value;
      num_nan += std::isnan(value) ? 1 : 0;
      num_infinite += std::isinf(value) ? 1 : 0;
    }
    num_values += tensor.size();
  }
  bool is_of_numbers() const { return num_nan + num_infinite == 0; }
  // "12.5"; "nan (64 values: 3 nan, 1 infinite)"
  std::string text() const {
    const std::string number = std::isnan(sum) ? "nan" : fmt::format("{}", sum);  // whatever its sign
    if (is_of_numbers()) return number;
    return fmt::format("{} ({}: {} nan, {} infinite)", number, counted(num_values, "value"), num_nan, num_infinite);
  }
};

sparse::Array elements_at(const sparse::Array& array, const std::vector<int64_t>& places) {
  sparse::Array result(array.dtype(), {static_cast<int64_t>(places.size())});
  const size_t width = static_cast<size_t>(bits_of(array.dtype())) / 8;
  for (size_t i = 0; i < places.size(); ++i)
    std::copy_n(array.bytes().begin() + places[i] * static_cast<int64_t>(width), width,
                result.bytes().begin() + static_cast<std::ptrdiff_t>(i * width));
  return result;
}

// Elements of a result on axes of a matrix, or a dense one.
void write_as_matrix(const std::string& name, const std::string& path, const sparse::Stage1& program,
                     const sparse::Array& array, const std::map<std::string, sparse::Structure>& structures) {
  const std::vector<std::string>& axes = program.buffer(name).axes;
  const auto is_root = [&](const std::string& axis) { return program.axis(axis).parent.empty(); };
  if (axes.size() <= 2 && std::all_of(axes.begin(), axes.end(), is_root)) return sparse::write_matrix(path, array);
  const auto structure = structures.find(axes.back());
  std::vector<std::string> chain = program.ancestors(axes.back());
  chain.push_back(axes.back());
  check(structure != structures.end() && axes == chain, ErrorCode::unsupported,
        "--out {}={}: required: the rows and columns of a buffer on ({}); supported: dense buffers of up to two axes, "
        "and those on the axes of a matrix alone; write a .npy",
        name, path, joined(axes));
  const sparse::Coo places = sparse::coordinates_at(structure->second);
  sparse::Coo coo{.num_rows = places.num_rows, .num_cols = places.num_cols};
  std::vector<int64_t> stored;
  for (size_t p = 0; p < places.rows.size(); ++p) {
    if (places.cols[p] < 0) continue;
    coo.rows.push_back(places.rows[p]);
    coo.cols.push_back(places.cols[p]);
    stored.push_back(static_cast<int64_t>(p));
  }
  sparse::write_matrix(path, coo, elements_at(array, stored));
}

}  // namespace

void check_run(SparseRun& run, const sparse::Stage1& program) {
  check_inputs(run, program);
  const std::vector<std::string> written = written_by(program);
  if (const auto unnamed = run.outputs.find(""); unnamed != run.outputs.end()) {
    if (written.size() != 1)
      throw UsageError(fmt::format("--out {}: the program writes {}; name one of them, --out {}={}", unnamed->second,
                                   joined(written), written.empty() ? "NAME" : written.back(), unnamed->second));
    const std::string path = unnamed->second;
    run.outputs.erase(unnamed);
    if (!run.outputs.emplace(written[0], path).second)
      throw UsageError(fmt::format("--out: two files are given for '{}'", written[0]));
  }
  std::set<std::string> paths;
  for (const auto& [name, path] : run.outputs) {
    check_output(name, path, written);
    if (!paths.insert(path).second) throw UsageError(fmt::format("--out: two results go to {}", path));
  }
}

void run_sparse(const SparseRun& run, const sparse::Stage1& program, const sparse::Operator& op,
                const Context& context) {
  Tensors tensors(run, program, op);
  const sparse::RunArguments& arguments = tensors.arguments;
  // What is written is read by the check, and by each run, as it was before.
  const std::vector<std::string> outputs = sparse::outputs_of(op);
  std::map<std::string, sparse::Array> before;
  sparse::RunArguments as_before = arguments;
  for (const std::string& name : outputs) {
    before[name] = tensors.arrays.at(name);
    as_before.buffers[name] = before[name].view();
  }
  const auto restore = [&] {
    for (const std::string& name : outputs) {
      const std::span<const std::byte> from = std::as_const(before.at(name)).bytes();
      std::copy(from.begin(), from.end(), tensors.arrays.at(name).bytes().begin());
    }
  };
  RunOnDevice on_device(run.device, arguments);
  const double first_ms = seconds_of([&] { on_device.operate(op); }) * 1e3;
  on_device.set_values_unchanged();
  double run_ms = first_ms;
  for (int repeat = 0; repeat < 3; ++repeat) {
    stop_if_interrupted();
    restore();
    for (const std::string& name : outputs) on_device.send(name);
    run_ms = std::min(run_ms, seconds_of([&] { on_device.operate(op); }) * 1e3);
  }
  for (const std::string& name : outputs) on_device.fetch(name);
  Checksum checksum;
  std::map<std::string, TensorView> after;
  for (const std::string& name : outputs) {
    after[name] = arguments.buffers.at(name);
    checksum.add(after[name]);
  }
  const double convert_ms = std::max(0., first_ms - run_ms);
  nlohmann::json result = {{"event", "done"},          {"compile_ms", run.compile_ms}, {"convert_ms", convert_ms},
                           {"run_ms", run_ms},         {"flops", tensors.size.flops},  {"bytes", tensors.size.bytes},
                           {"checksum", checksum.sum}, {"inputs", tensors.sources},    {"filled", tensors.filled}};
  if (!checksum.is_of_numbers())
    result.update({{"nan_values", checksum.num_nan}, {"infinite_values", checksum.num_infinite}});
  if (run.check) result["max_error"] = sparse::max_error(op, as_before, after);
  for (const auto& [name, path] : run.outputs) {
    if (extension_of(path) == ".npy")
      sparse::write_npy(path, tensors.arrays.at(name));
    else
      write_as_matrix(name, path, program, tensors.arrays.at(name), arguments.structures);
  }
  if (!run.outputs.empty()) result["outputs"] = run.outputs;
  if (context.json) return print_json(result);
  print_out(
      "compiled in {:.1f} ms, converted in {:.1f} ms, ran in {:.3f} ms: {:.2f} GFLOP/s, {:.2f} GB/s; checksum {}\n",
      run.compile_ms, convert_ms, run_ms, tensors.size.flops / run_ms / 1e6, tensors.size.bytes / run_ms / 1e6,
      checksum.text());
  for (const auto& [name, path] : tensors.sources) print_out("{} read from {}\n", name, path);
  if (!tensors.filled.empty()) print_out("filled with random numbers: {}\n", joined(tensors.filled));
  for (const auto& [name, path] : run.outputs) print_out("{} written to {}\n", name, path);
  if (run.check) print_out("max error against the interpreter: {:.3g}\n", result["max_error"].get<double>());
}

}  // namespace weft::cli

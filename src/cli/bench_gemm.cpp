// `weft bench gemm`: y = x W^T over shapes of real models. One row is bound by reading the weights: its ceiling is a
// read of as many bytes. Many rows are bound by arithmetic: their ceiling is fp32 multiply-add, and int8 or int16 dots
// where the machine has them and the precision uses them. A few rows are bound by the lower of the two.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "device/cpu/cpuid.h"
#include "ops/gemm/linear.h"

namespace weft::cli {
namespace {

struct Shape {
  int64_t rows, cols;
};

const char* name_of(WeightType type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "q8_0", "q5_0", "q4_0", "q4_1", "q4_k", "q6_k"};
  return kNames[static_cast<int>(type)];
}

// Blocks of a quantised type in the file: inputs, bytes, and where their fp16 scales stand.
struct Blocks {
  int64_t inputs = 1, bytes = 0;
  std::vector<int> scales = {};
};
Blocks blocks_of(WeightType type) {
  switch (type) {
    case WeightType::q8_0: return {32, 34, {0}};
    case WeightType::q5_0: return {32, 22, {0}};
    case WeightType::q4_0: return {32, 18, {0}};
    case WeightType::q4_1: return {32, 20, {0, 2}};
    case WeightType::q4_k: return {256, 144, {0, 2}};
    case WeightType::q6_k: return {256, 210, {208}};
    default: return {};
  }
}

// Rows in file layout: random integers, small scales.
gemm::WeightSource random_source(WeightType type, const Shape& shape) {
  const auto read = [type, cols = shape.cols](int64_t begin, int64_t end, void* to) {
    std::mt19937 random(static_cast<unsigned>(begin));
    auto* out = static_cast<char*>(to);
    const auto put = [&](auto value) {
      std::memcpy(out, &value, sizeof value);
      out += sizeof value;
    };
    const Blocks blocks = blocks_of(type);
    for (int64_t i = 0; i < (end - begin) * cols; i += blocks.inputs) {
      if (blocks.bytes == 0) {
        const auto bits = static_cast<uint32_t>((random() & 0x807fffff) | 0x3d000000);
        if (type == WeightType::f32)
          put(bits);
        else  // as fp16 or bf16
          put(static_cast<uint16_t>(bits >> 16));
        continue;
      }
      char* block = out;
      for (int64_t j = 0; j < blocks.bytes; j += 2) put(static_cast<uint16_t>(random()));
      for (const int at : blocks.scales) std::memcpy(block + at, "\x00\x20", 2);
    }
  };
  return {.type = type, .rows = shape.rows, .cols = shape.cols, .read = read};
}

// As many copies of the matrix as make its bytes too large for the caches.
std::vector<gemm::PackedLinear> make_copies(WeightType type, const Shape& shape, Precision precision, bool quick,
                                            WorkerTeam& team) {
  const gemm::WeightSource source = random_source(type, shape);
  const size_t bytes = gemm::packed_bytes({&source, 1}, current_isa());
  const size_t wanted =
      std::min<size_t>((quick ? 2 : 8) * std::max<size_t>(cpu_info().l3_bytes, 4 << 20), size_t{512} << 20);
  std::vector<gemm::PackedLinear> copies;
  for (size_t i = 0; i < std::max<size_t>(1, (wanted + bytes - 1) / bytes); ++i)
    copies.push_back(gemm::pack_linear({&source, 1}, precision, current_isa(), team));
  return copies;
}

double arithmetic_ceiling(WeightType type, Precision precision, int threads) {
  const bool quantised = blocks_of(type).bytes > 0;
  if (precision == Precision::exact || (!quantised && type != WeightType::bf16)) return measure_fp32_flops(threads);
  const double special = !quantised                     ? measure_bf16_flops(threads)
                         : precision == Precision::fast ? measure_int8_ops(threads)
                                                        : measure_int16_ops(threads);
  return special > 0 ? special : measure_fp32_flops(threads);
}

}  // namespace

void bench_gemm(const BenchOptions& options, BenchReport& report) {
  WorkerTeam team(options.threads);
  const int threads = team.num_workers();
  report.note(
      fmt::format("{} threads; weights cycle over copies beyond the caches; ceilings of arithmetic: int8 or bf16 dots "
                  "where the machine has them, else fp32 multiply-add",
                  threads));
  const std::vector<Shape> shapes =
      options.quick ? std::vector<Shape>{{576, 1536}}
                    : std::vector<Shape>{{576, 1536}, {1536, 576}, {49152, 576}, {4096, 14336}, {14336, 4096}};
  const std::vector<WeightType> types =
      options.quick ? std::vector<WeightType>{WeightType::q4_1}
                    : std::vector<WeightType>{WeightType::f32,  WeightType::f16,  WeightType::bf16,
                                              WeightType::q8_0, WeightType::q5_0, WeightType::q4_0,
                                              WeightType::q4_1, WeightType::q4_k, WeightType::q6_k};
  gemm::Scratch scratch;
  for (WeightType type : types)
    for (Precision precision : {Precision::exact, Precision::standard, Precision::fast}) {
      const bool floats = type == WeightType::f32 || type == WeightType::f16;
      if (floats && precision != Precision::exact) continue;  // the same kernel
      for (const Shape& shape : shapes) {
        if (shape.cols % blocks_of(type).inputs != 0) continue;
        const std::vector<gemm::PackedLinear> copies = make_copies(type, shape, precision, options.quick, team);
        const auto bytes = static_cast<double>(copies[0].bytes());
        for (int64_t m : {1, 8, 512}) {
          std::vector<float> x(static_cast<size_t>(m * shape.cols)), y(static_cast<size_t>(m * shape.rows));
          std::mt19937 random(1);
          for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.f - 1.f;
          size_t next = 0;
          const auto work = [&] {
            gemm::linear(copies[next++ % copies.size()], x.data(), m, shape.cols, y.data(), shape.rows, scratch, team);
          };
          const double seconds = time_runs(work, m == 1 ? 20 : 5, options.quick ? 0.05 : 0.2).median_s;
          const std::string name =
              fmt::format("{} {} {}x{} m{}", name_of(type), to_string(precision), shape.rows, shape.cols, m);
          const double bandwidth =
              m <= 8 ? measure_read_bandwidth(threads, copies.size() * copies[0].bytes()) : INFINITY;
          if (m == 1) {
            report.add({.bench = "gemm",
                        .name = name,
                        .metric = "bandwidth",
                        .value = bytes / seconds / 1e9,
                        .unit = "GB/s",
                        .ceiling = bandwidth / 1e9});
          } else {
            const double operations = 2. * static_cast<double>(m * shape.rows * shape.cols);
            const double ceiling =
                std::min(arithmetic_ceiling(type, precision, threads), bandwidth / bytes * operations);
            report.add({.bench = "gemm",
                        .name = name,
                        .metric = "rate",
                        .value = operations / seconds / 1e9,
                        .unit = "GOP/s",
                        .ceiling = ceiling / 1e9});
          }
        }
      }
    }
}

}  // namespace weft::cli

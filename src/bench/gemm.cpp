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

#include "bench/measure.h"
#include "bench/probe.h"
#include "device/cpu/cpuid.h"
#include "ops/gemm/linear.h"

namespace weft::bench {
namespace {

struct WeightShape {
  int64_t rows, cols;
};

// Rows in file layout: random integers, small scales.
gemm::WeightSource random_source(WeightType type, const WeightShape& shape) {
  const auto read = [type, cols = shape.cols](int64_t begin, int64_t end, void* to) {
    std::mt19937 random(static_cast<unsigned>(begin));
    auto* out = static_cast<char*>(to);
    const auto put = [&](auto value) {
      std::memcpy(out, &value, sizeof value);
      out += sizeof value;
    };
    const WeightBlock& layout = weight_block(type);
    for (int64_t i = 0; i < (end - begin) * cols; i += layout.inputs) {
      if (!layout.is_quantised()) {
        const auto bits = static_cast<uint32_t>((random() & 0x807fffff) | 0x3d000000);
        if (type == WeightType::f32)
          put(bits);
        else  // as fp16 or bf16
          put(static_cast<uint16_t>(bits >> 16));
        continue;
      }
      char* block = out;
      for (int64_t j = 0; j < layout.bytes; j += 2) put(static_cast<uint16_t>(random()));
      for (int j = 0; j < layout.num_scales; ++j) std::memcpy(block + layout.scale_at[j], "\x00\x20", 2);
    }
  };
  return {.type = type, .rows = shape.rows, .cols = shape.cols, .read = read};
}

size_t bytes_beyond_caches(bool quick) {
  return std::min<size_t>((quick ? 2 : 8) * std::max<size_t>(cpu_info().l3_bytes, 4 << 20), size_t{512} << 20);
}

// As many copies of the matrix as make its bytes too large for the caches.
std::vector<gemm::PackedLinear> make_copies(WeightType type, const WeightShape& shape, Precision precision, bool quick,
                                            WorkerTeam& team) {
  const gemm::WeightSource source = random_source(type, shape);
  const size_t bytes = gemm::packed_bytes({&source, 1}, current_isa());
  const size_t wanted = bytes_beyond_caches(quick);
  std::vector<gemm::PackedLinear> copies;
  for (size_t i = 0; i < std::max<size_t>(1, (wanted + bytes - 1) / bytes); ++i)
    copies.push_back(gemm::pack_linear({&source, 1}, precision, current_isa(), team));
  return copies;
}

Probe arithmetic_probe(WorkerTeam& team, WeightType type, Precision precision) {
  const bool quantised = weight_block(type).is_quantised();
  const bool plain = precision == Precision::exact || (!quantised && type != WeightType::bf16);
  return arithmetic_of(team, plain                          ? Instruction::fp32_multiply_add
                             : !quantised                   ? Instruction::bf16_dot
                             : precision == Precision::fast ? Instruction::int8_dot
                                                            : Instruction::int16_dot)
      .ops;
}

}  // namespace

void measure_gemm(const BenchOptions& options, BenchReport& report) {
  WorkerTeam team(options.threads);
  report.note(
      fmt::format("{} threads; weights cycle over copies beyond the caches; ceilings of arithmetic: int8 or bf16 dots "
                  "where the machine has them, else fp32 multiply-add",
                  team.num_workers()));
  const std::vector<WeightShape> shapes =
      options.quick ? std::vector<WeightShape>{{576, 1536}}
                    : std::vector<WeightShape>{{576, 1536}, {1536, 576}, {49152, 576}, {4096, 14336}, {14336, 4096}};
  const std::vector<WeightType> types =
      options.quick ? std::vector<WeightType>{WeightType::q4_1}
                    : std::vector<WeightType>{WeightType::f32,  WeightType::f16,  WeightType::bf16,
                                              WeightType::q8_0, WeightType::q5_0, WeightType::q4_0,
                                              WeightType::q4_1, WeightType::q4_k, WeightType::q6_k};
  gemm::Scratch scratch;
  size_t largest = 0;
  for (const WeightShape& shape : shapes)
    largest = std::max(largest, sizeof(float) * static_cast<size_t>(shape.rows * shape.cols));
  const Workspace memory = memory_to_read(team, std::max(bytes_beyond_caches(options.quick), largest));
  for (WeightType type : types)
    for (Precision precision : {Precision::exact, Precision::standard, Precision::fast}) {
      const bool floats = type == WeightType::f32 || type == WeightType::f16;
      if (floats && precision != Precision::exact) continue;  // the same kernel
      for (const WeightShape& shape : shapes) {
        if (shape.cols % weight_block(type).inputs != 0) continue;
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
          std::vector<Probe> probes;
          if (m <= 8)
            probes.push_back(
                probe_read(team, static_cast<const char*>(memory.data()), memory.bytes(), copies[0].bytes()));
          if (m > 1) probes.push_back(arithmetic_probe(team, type, precision));
          const TimedBeside timed = time_beside(work, probes, m == 1 ? 20 : 5, options.quick ? 0.05 : 0.2);
          const double operations = 2. * static_cast<double>(m * shape.rows * shape.cols);
          const double amount = m == 1 ? bytes : operations;
          double ceiling = timed.ceilings.back();
          if (m > 1 && m <= 8) ceiling = std::min(ceiling, timed.ceilings[0] / bytes * operations);
          report.add(
              {.bench = "gemm",
               .name = fmt::format("{} {} {}x{} m{}", to_string(type), to_string(precision), shape.rows, shape.cols, m),
               .metric = m == 1 ? "bandwidth" : "rate",
               .value = amount / timed.median_s / 1e9,
               .unit = m == 1 ? "GB/s" : "GOP/s",
               .ceiling = ceiling / 1e9});
        }
      }
    }
}

}  // namespace weft::bench

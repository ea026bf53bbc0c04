// y = x W^T with packed weights.
#include "ops/gemm/linear.h"

#include <cstring>
#include <random>
#include <stdexcept>

#include "contestants.h"
#include "weft/device.h"

namespace contest {
namespace {

using namespace weft;

// Rows in file layout: random integers under one small scale, or random floats of about [-0.1, 0.1].
void random_rows(WeightType type, int64_t cols, int64_t begin, int64_t end, void* to) {
  std::mt19937 random(static_cast<unsigned>(begin));
  auto* out = static_cast<char*>(to);
  const auto put = [&out](auto value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  };
  for (int64_t block = 0; block < (end - begin) * cols / 32; ++block) {
    if (type == WeightType::bf16) {
      for (int i = 0; i < 32; ++i) put(static_cast<uint16_t>((random() & 0x807f) | 0x3d00));
    } else {
      put(uint16_t{0x2000});  // Q4_0: 2^-7 in fp16, then 32 integers of 4 bits
      for (int i = 0; i < 4; ++i) put(static_cast<uint32_t>(random()));
    }
  }
}

struct Linear {
  WorkerTeam team;
  gemm::Scratch scratch;
  std::vector<gemm::PackedLinear> copies;
  std::vector<float> x, y;
  int64_t m = 0;
  size_t next = 0;

  explicit Linear(int threads) : team(threads) {}
  void run() {
    const gemm::PackedLinear& weights = copies[next++ % copies.size()];
    gemm::linear(weights, x.data(), m, weights.cols(), y.data(), weights.rows(), scratch, team);
  }
};

}  // namespace

Reading weft_linear(const json& row) {
  const int64_t rows = row.at("rows"), cols = row.at("cols");
  const WeightType type = row.at("weights") == "bf16" ? WeightType::bf16 : WeightType::q4_0;
  const Precision precision = precision_from_string(row.at("precision").get<std::string>());
  const auto linear = std::make_shared<Linear>(row.at("threads").get<int>());
  linear->m = row.at("m");
  linear->x.resize(static_cast<size_t>(linear->m * cols));
  linear->y.resize(static_cast<size_t>(linear->m * rows));
  std::mt19937 random(1);
  for (float& x : linear->x) x = static_cast<float>(random() % 2001) / 1000.f - 1.f;
  const gemm::WeightSource source{
      .type = type, .rows = rows, .cols = cols, .read = [type, cols](int64_t begin, int64_t end, void* to) {
        random_rows(type, cols, begin, end, to);
      }};
  for (int copies = row.at("copies"); copies > 0; --copies)
    linear->copies.push_back(gemm::pack_linear({&source, 1}, precision, current_isa(), linear->team));
  linear->run();
  return [linear] { return mean_seconds([&] { linear->run(); }); };
}

}  // namespace contest

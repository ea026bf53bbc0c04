// Kernels run in the host machine and on a card, from the same bytes: they leave the same bytes. Where there is no card
// these tests are skipped, and say so.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "jit/nvrtc/module.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"
#include "weft/device.h"

namespace weft::simt {

class SimtCard : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::num_cards() == 0) GTEST_SKIP() << "no card here: " << cuda::find_driver().tried;
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried;
  }

  // Runs the kernel in the machine and on the card, from the same bytes. `make` makes its arguments of what `at` gives
  // for each span; `near` names a buffer of floats that need be only so near, relative to the larger of 1 and their
  // size.
  template <class Kernel, class Make>
  void compare(const std::string& text, const std::string& symbol, const Kernel& kernel, const Launch& launch,
               const Make& make, const std::string& near = {}, float tolerance = 0) {
    const std::string before = memory_.content();
    const auto host_args = make([](auto* p) { return p; });
    run(memory_, launch, [&] { kernel(host_args); });
    const std::string expected = memory_.content();

    cuda::Card& card = cuda::Card::at(0);
    std::vector<Workspace> copies;
    const char* from = before.data();
    for (const Memory::Buffer& buffer : memory_.buffers()) {
      copies.emplace_back(Device::cuda(0), buffer.bytes);
      cuda::copy_to_card(card, copies.back().data(), from, buffer.bytes, nullptr);
      from += buffer.bytes;
    }
    const auto at = [&](auto* p) {
      for (size_t i = 0; i < copies.size(); ++i) {
        const Memory::Buffer& buffer = memory_.buffers()[i];
        const auto* byte = reinterpret_cast<const char*>(p);
        if (byte >= buffer.begin && byte < buffer.begin + buffer.bytes)
          return reinterpret_cast<decltype(p)>(static_cast<char*>(copies[i].data()) + (byte - buffer.begin));
      }
      return static_cast<decltype(p)>(nullptr);
    };
    const jit::CudaModule loaded = jit::cuda_module(card, symbol, text);
    const cuda::Grid grid{.ctas = launch.ctas,
                          .threads = launch.threads,
                          .shared_bytes = static_cast<int>(launch.shared_bytes),
                          .cluster = launch.cluster,
                          .cooperative = launch.cooperative};
    cuda::launch(cuda::find_kernel(*loaded.module, symbol.c_str(), grid.shared_bytes), grid, nullptr, make(at));
    cuda::synchronize(card, nullptr);

    const char* wanted = expected.data();
    for (size_t i = 0; i < copies.size(); ++i) {
      const Memory::Buffer& buffer = memory_.buffers()[i];
      std::string got(buffer.bytes, '\0');
      cuda::copy_to_host(card, got.data(), copies[i].data(), buffer.bytes, nullptr);
      cuda::synchronize(card, nullptr);
      for (size_t word = 0; word + 4 <= buffer.bytes; word += 4) {
        unsigned ours, theirs;
        std::memcpy(&ours, wanted + word, 4);
        std::memcpy(&theirs, got.data() + word, 4);
        const float x = std::bit_cast<float>(ours), y = std::bit_cast<float>(theirs);
        if (std::isnan(x) && std::isnan(y)) continue;  // whichever
        if (buffer.name != near) {
          ASSERT_EQ(ours, theirs) << symbol << ": word " << word / 4 << " of '" << buffer.name << "'";
          continue;
        }
        ASSERT_LE(std::fabs(x - y), tolerance * std::fmax(1.f, std::fabs(x)))
            << symbol << ": element " << word / 4 << " of '" << buffer.name << "' is " << y << " on the card, " << x
            << " in the machine";
      }
      wanted += buffer.bytes;
    }
  }

  // The text with its forms for sm_75, which newer cards run too.
  static std::string older(const char* text) { return std::string("#define WEFT_SM 75\n") + text; }
  enum class Product { fp16, bf16, older_fp16 };
  static std::vector<Product> products() {
    if (!has_bf16()) return {Product::older_fp16};  // its only one
    return {Product::fp16, Product::bf16, Product::older_fp16};
  }
  static bool has_bf16() { return cuda::Card::at(0).capability_major() >= 8; }
  // Integers of at most `most`, as halves.
  std::vector<unsigned short> halves(int n, bool bf16, int most) {
    std::vector<unsigned short> bits;
    for (int i = 0; i < n; ++i) {
      const float value = static_cast<float>(static_cast<int>(random_() % static_cast<unsigned>(2 * most + 1)) - most);
      bits.push_back(bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(value) >> 16) : to_fp16(value));
    }
    return bits;
  }

  Memory memory_;
  std::mt19937 random_{20261123};
};

}  // namespace weft::simt

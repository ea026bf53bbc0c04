#include "device/cpu/cpuid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <string>
#include <thread>

#include "weft/error.h"

namespace weft {
namespace {

TEST(Isa, NamesAndValuesAgree) {
  for (Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16})
    EXPECT_EQ(isa_from_string(to_string(isa)), isa);
  EXPECT_THROW(isa_from_string("sse9"), Error);
}

TEST(Isa, SupportedOnesRiseFromPlainToNoneAboveTheDetectedOne) {
  const auto isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::plain);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
  EXPECT_LE(isas.back(), detected_isa());
  EXPECT_LE(current_isa(), isas.back());
  for (Isa isa : isas) EXPECT_NO_THROW(check_supported(isa, "isa"));
  if (detected_isa() < Isa::avx512_bf16) {
    EXPECT_THROW(check_supported(Isa::avx512_bf16, "isa"), Error);
  }
}

TEST(Isa, TheBf16DotIsFastOnAmdAlone) {
  EXPECT_TRUE(is_bf16_dot_fast("AuthenticAMD"));
  EXPECT_FALSE(is_bf16_dot_fast("GenuineIntel"));
  EXPECT_FALSE(is_bf16_dot_fast(""));
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line) && !line.starts_with("vendor_id")) {
  }
  EXPECT_EQ(is_bf16_dot_fast(), detected_isa() == Isa::avx512_bf16 && line.ends_with("AuthenticAMD")) << line;
}

TEST(Isa, HasBf16TilesWhereTheSystemListsThem) {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line) && !line.starts_with("flags")) {
  }
  const auto lists = [&](std::string_view flag) { return (line + " ").find(fmt::format(" {} ", flag)) != line.npos; };
  EXPECT_EQ(has_bf16_tiles(), detected_isa() == Isa::avx512_bf16 && lists("amx_bf16") && lists("amx_tile")) << line;
}

TEST(Isa, VectorStoresAreHalvedOnZen4) {
  EXPECT_TRUE(are_vector_stores_halved("AuthenticAMD", 25));
  EXPECT_FALSE(are_vector_stores_halved("AuthenticAMD", 26));
  EXPECT_FALSE(are_vector_stores_halved("GenuineIntel", 6));
  std::ifstream in("/proc/cpuinfo");
  std::string line, vendor;
  while (std::getline(in, line) && !line.starts_with("cpu family"))
    if (line.starts_with("vendor_id")) vendor = line;
  EXPECT_EQ(are_vector_stores_halved(),
            detected_isa() >= Isa::avx512 && vendor.ends_with("AuthenticAMD") && line.ends_with(": 25"))
      << vendor << ", " << line;
}

TEST(Isa, AgreesWithWhatTheSystemLists) {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line) && !line.starts_with("flags")) {
  }
  line += ' ';
  const auto has = [&](const std::string& flag) { return line.find(" " + flag + " ") != std::string::npos; };
  EXPECT_EQ(detected_isa() >= Isa::avx2, has("avx2") && has("fma") && has("f16c") && has("bmi2"));
  EXPECT_EQ(detected_isa() >= Isa::avx512, has("avx512f") && has("avx512bw") && has("avx512_vnni"));
  EXPECT_EQ(detected_isa() >= Isa::avx512_bf16, has("avx512_bf16"));
}

TEST(Isa, HigherOnesAddToTheFlagsOfLowerOnes) {
  EXPECT_TRUE(compiler_flags(Isa::plain).empty());
  EXPECT_LT(compiler_flags(Isa::avx2).size(), compiler_flags(Isa::avx512).size());
  EXPECT_LT(compiler_flags(Isa::avx512).size(), compiler_flags(Isa::avx512_bf16).size());
}

TEST(CpuInfo, DescribesThisMachine) {
  const CpuInfo& info = cpu_info();
  EXPECT_FALSE(info.model.empty());
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(info.num_cpus, CPU_COUNT(&mask));
  EXPECT_LE(info.num_cpus, static_cast<int>(std::thread::hardware_concurrency()));
  if (info.l2_bytes > 0) {
    EXPECT_GE(info.l2_bytes, info.l1d_bytes);
  }
}

}  // namespace
}  // namespace weft

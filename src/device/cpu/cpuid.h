// What this CPU can do. current_isa() and to_string(Isa) are public (weft/device.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/device.h"

namespace weft {

Isa detected_isa();                                    // ignores WEFT_ISA
std::span<const Isa> built_isas();                     // those this build has kernels for, lowest first
std::span<const Isa> supported_isas();                 // those of them that this machine runs
void check_supported(Isa isa, std::string_view name);  // throws Error(unsupported) that begins with the name
Isa isa_from_string(std::string_view name);            // throws Error(invalid_argument)
// The compiler flags of an ISA, e.g. "-mavx2 -mfma -mf16c"; never -march=native.
std::span<const char* const> compiler_flags(Isa isa);

// Whether the bf16 dot product of such a processor does more multiply-adds a second than its fp32 one: twice as many
// on AMD's from Zen 4 on, half as many on Intel's, which multiply bf16 in tiles instead.
bool is_bf16_dot_fast(std::string_view vendor);
bool is_bf16_dot_fast();  // of this machine

// Whether this machine multiplies bf16 in tiles of registers (AMX), and the system lets the process use them, which the
// first call asks it for. avx512_bf16's kernels do so.
bool has_bf16_tiles();

// Whether such a processor takes two cycles to store 64 bytes: AMD's Zen 4 does, which is family 25.
bool are_vector_stores_halved(std::string_view vendor, unsigned family);
bool are_vector_stores_halved();  // of this machine

struct CpuInfo {
  std::string model;                                 // as the processor names itself
  int num_cpus = 0;                                  // in the process's affinity mask
  double quota = 0;                                  // CPUs that the cgroup allows; 0: no limit
  size_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of one core; l3 shared
};
const CpuInfo& cpu_info();

}  // namespace weft

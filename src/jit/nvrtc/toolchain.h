// Cubins for NVIDIA's cards, made by NVRTC in this process; never PTX, which every driver would compile anew.
//
//   const Built cubin = build({.name = "attend", .text = text, .target = nvrtc_target("sm_90a")});
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jit/toolchain.h"

namespace weft::jit {

// Architectures that cubins are made for, oldest first: sm_75, sm_80, sm_86, sm_89, sm_90a.
std::span<const std::string_view> nvrtc_architectures();
// The one whose cubins a card of this compute capability loads; empty: none of them.
std::string_view architecture_of(int major, int minor);

const Toolchain& nvrtc_toolchain();
// Throws Error(unsupported) for another architecture.
Target nvrtc_target(std::string_view architecture);

}  // namespace weft::jit

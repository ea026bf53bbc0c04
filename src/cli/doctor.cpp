// `weft doctor`: what this machine has, what it lacks, and what to do about it.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/env.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "device/cpu/cgroup.h"
#include "device/cpu/cpuid.h"
#include "device/cuda/card.h"
#include "jit/cache.h"
#include "jit/host/module.h"
#include "jit/nvrtc/toolchain.h"
#include "ops/cuda/blas.h"
#include "weft/device.h"
#include "weft/jit.h"

namespace weft::cli {
namespace {

struct Finding {
  std::string name = {};
  bool ok = false;
  std::string detail = {}, fix = {};  // fix: empty where all is well
  bool required = false;              // the main job, answering on the CPU, cannot run without it
};

constexpr double kLeastMemory = 512e6;  // a 135M model in 4 bits with 2,048 tokens of context

Finding check_processor() {
  Finding finding{.name = "processor", .ok = true, .required = true};
  finding.detail = fmt::format("{}, {}", cpu_info().model, to_string(current_isa()));
  if (current_isa() != detected_isa())
    finding.detail +=
        fmt::format(" (the machine has {}; WEFT_ISA, or this build, says less)", to_string(detected_isa()));
  if (current_isa() == Isa::plain) finding.detail += ", without AVX2: slow";
  return finding;
}

// One finding a variable that is wrong; what follows is examined as if it were not set.
std::vector<Finding> check_variables() {
  std::vector<Finding> findings;
  for (const std::string& wrong : drop_bad_variables())
    findings.push_back({.name = "environment",
                        .detail = wrong,
                        .fix = "unset the variable or give it one of its values",
                        .required = true});
  if (findings.empty())
    findings.push_back({.name = "environment",
                        .ok = true,
                        .detail = "every WEFT_* variable that is set has an allowed value",
                        .required = true});
  return findings;
}

Finding check_workers() {
  const CpuInfo& cpu = cpu_info();
  Finding finding{.name = "workers", .ok = true, .required = true};
  finding.detail = fmt::format("{} CPUs by affinity", cpu.num_cpus);
  if (cpu.quota > 0) finding.detail += fmt::format(", a quota of {:.1f}", cpu.quota);
  const unsigned all = std::thread::hardware_concurrency();
  if (static_cast<int>(all) > cpu.num_cpus) finding.detail += fmt::format(", {} in the machine", all);
  return finding;
}

Finding check_memory() {
  Finding finding{.name = "memory", .required = true};
  const uint64_t bytes = available_memory();
  const auto available = static_cast<double>(bytes);
  finding.ok = available >= kLeastMemory;
  finding.detail = bytes == UINT64_MAX ? "not known" : fmt::format("{:.1f} GB available", available / 1e9);
  if (!finding.ok)
    finding.fix = fmt::format("free some: at least {:.1f} GB are needed for a small model", kLeastMemory / 1e9);
  return finding;
}

Finding check_huge_pages() {
  Finding finding{.name = "huge pages"};
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  finding.ok = modes.find("[always]") != std::string::npos || modes.find("[madvise]") != std::string::npos;
  finding.detail = modes.empty() ? "not offered by this kernel" : "transparent huge pages: " + modes;
  if (!finding.ok)
    finding.fix = "faster with them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)";
  return finding;
}

// Remembers who compilers are. What is wrong with it is check_cache's to tell.
std::optional<jit::Cache> cache_or_none() {
  try {
    return jit::open_cache(true);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Finding check_compiler() {
  Finding finding{.name = "compiler"};
  const std::optional<jit::Cache> cache = cache_or_none();
  const jit::CompilerSearch search = jit::host_toolchain().find(cache ? &*cache : nullptr);
  finding.ok = search.compiler != nullptr;
  finding.detail = finding.ok ? fmt::format("{} ({})", search.compiler->path, search.compiler->version)
                              : fmt::format("none found ({}); built-in variants need none, your own do", search.tried);
  if (!finding.ok) finding.fix = "apt-get install g++, or name one with WEFT_CXX";
  return finding;
}

// Whether a card can be used; answering on the CPU needs none of this.
Finding check_card() {
  Finding finding{.name = "NVIDIA card"};
  try {
    std::vector<std::string> cards;
    cuda::require_card(Device::cuda(0), "card");
    for (int i = 0; i < cuda::num_cards(); ++i) {
      const cuda::Card& card = cuda::Card::at(i);
      const std::string_view architecture = jit::architecture_of(card.capability_major(), card.capability_minor());
      cards.push_back(fmt::format("cuda:{} {} ({}.{}, {:.0f} GB{})", i, card.name(), card.capability_major(),
                                  card.capability_minor(), static_cast<double>(card.memory_bytes()) / 1e9,
                                  architecture.empty() ? ", for which Weft makes no code" : ""));
    }
    finding.ok = true;
    const int version = cuda::driver_version().value_or(0);
    finding.detail = fmt::format("{}; driver for CUDA {}.{} ({})", fmt::join(cards, ", "), version / 1000,
                                 version % 1000 / 10, cuda::find_driver().driver->path);
  } catch (const Error& error) {
    const cuda::DriverSearch& search = cuda::find_driver();
    finding.detail =
        search.driver == nullptr ? fmt::format("missing {}: {}", search.missing, search.tried) : error.what();
    finding.fix =
        search.driver == nullptr ? search.remedy : "see whether nvidia-smi lists a card that this process may use";
  }
  return finding;
}

Finding check_nvrtc() {
  Finding finding{.name = "NVRTC"};
  const std::optional<jit::Cache> cache = cache_or_none();
  const jit::CompilerSearch search = jit::nvrtc_toolchain().find(cache ? &*cache : nullptr);
  finding.ok = search.compiler != nullptr;
  finding.detail = finding.ok ? fmt::format("{} ({})", search.compiler->path, search.compiler->version) : search.tried;
  if (!finding.ok) finding.fix = "kernels for a card are compiled with it: " + search.remedy;
  return finding;
}

Finding check_cublas() {
  Finding finding{.name = "cuBLASLt"};
  const ops::BlasSearch& search = ops::find_blas();
  finding.ok = search.blas != nullptr;
  finding.detail = finding.ok ? search.blas->path() : search.tried;
  if (!finding.ok)
    finding.fix = "without it a card reads weights once for every 8 tokens of a prompt: " + search.remedy;
  return finding;
}

Finding check_cache() {
  Finding finding{.name = "kernel cache"};
  try {
    const std::string folder = jit::cache_dir();
    const std::vector<jit::Entry> entries = jit::list();
    uint64_t bytes = 0;
    for (const jit::Entry& entry : entries) bytes += entry.bytes;
    const std::filesystem::path path(folder);
    std::filesystem::path there = path;
    while (!there.empty() && !std::filesystem::exists(there) && there != there.parent_path())
      there = there.parent_path();
    finding.ok = access(there.c_str(), W_OK) == 0;
    finding.detail = fmt::format("{}: {} kernels, {:.1f} MB{}", folder, entries.size(),
                                 static_cast<double>(bytes) / 1e6, finding.ok ? "" : ", not writable");
    if (!finding.ok) finding.fix = "make the folder writable, or set WEFT_CACHE_DIR to one that is";
  } catch (const std::exception& error) {
    finding.detail = error.what();
    finding.fix = "set WEFT_CACHE_DIR to a folder of your own with mode 0700";
  }
  return finding;
}

Finding check_downloader() {
  Finding finding{.name = "model download"};
  const auto python = env::find_program("python3");
  finding.ok = python.has_value();
  finding.detail = python.value_or("no python3 on PATH; make demo fetches its model with it");
  if (!finding.ok) finding.fix = "apt-get install python3-pip, or give a model of your own: make demo MODEL=path";
  return finding;
}

void doctor(Context& context) {
  std::vector<Finding> findings = check_variables();
  for (const auto& check : {check_processor, check_workers, check_memory, check_huge_pages, check_compiler, check_card,
                            check_nvrtc, check_cublas, check_cache, check_downloader})
    findings.push_back(check());
  bool can_run = true;
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings) {
    can_run = can_run && (finding.ok || !finding.required);
    checks.push_back({{"name", finding.name}, {"ok", finding.ok}, {"detail", finding.detail}, {"fix", finding.fix}});
    if (context.json) continue;
    print_out("{:<8}{:<16}{}\n",
              finding.ok         ? "ok"
              : finding.required ? "FAILS"
                                 : "lacks",
              finding.name, finding.detail);
    if (!finding.fix.empty()) print_out("{:<24}-> {}\n", "", finding.fix);
  }
  if (context.json) {
    print_json({{"checks", checks}});
  } else {
    print_out("{}\n",
              can_run ? "This machine can run models." : "This machine cannot run models yet: see FAILS above.");
  }
  if (!can_run) context.exit_code = kMachineLacks;
}

}  // namespace

void add_doctor(Program& program, Context& context) {
  Verb verb = program.verb("doctor", "What this machine has, lacks, and what to do");
  verb.example("weft doctor");
  verb.runs_in_any_environment([&context] { doctor(context); });
}

}  // namespace weft::cli

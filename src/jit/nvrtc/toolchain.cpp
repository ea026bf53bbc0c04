#include "jit/nvrtc/toolchain.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda/driver.h"
#include "device/cuda/folders.h"
#include "jit/diagnostics.h"
#include "jit/identity.h"
#include "jit/nvrtc/library.h"

namespace weft::jit {
namespace {

constexpr std::string_view kArchitectures[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a"};
constexpr int kOldestMajor = 12;  // C++20 and sm_90a
constexpr std::string_view kRemedy =
    "install it with `pip install nvidia-cuda-nvrtc-cu12`, or name the folder of an NVRTC 12 or newer in "
    "WEFT_CUDA_LIBS";

// A variant's text marks no function: all of it is device code.
constexpr const char* kNvrtcFlags[] = {"--std=c++20", "--device-as-default-execution-space", "--no-source-include",
                                       "--generate-line-info"};

std::optional<KnownCompiler> examine(const std::string& path, std::string& why) {
  const Nvrtc* nvrtc = load_nvrtc(path, why);
  if (nvrtc == nullptr) return std::nullopt;
  int major = 0, minor = 0;
  nvrtc->nvrtcVersion(&major, &minor);
  KnownCompiler known;
  Sha256 hash;
  hash.update(fmt::format("nvrtc {}.{}", major, minor));
  if (!add_file(known, hash, path, why)) return std::nullopt;
  if (const std::string builtins = nvrtc_file(path).builtins;
      !builtins.empty() && !add_file(known, hash, builtins, why))
    return std::nullopt;
  known.compiler = {path, fmt::format("NVRTC {}.{}", major, minor), hash.hex_digest()};
  return known;
}

// A program of NVRTC's, for one compilation.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const std::string& text) : nvrtc_(nvrtc) {
    const int result = nvrtc.nvrtcCreateProgram(&program_, text.c_str(), "<stdin>", 0, nullptr, nullptr);
    check(result == Nvrtc::kSuccess, ErrorCode::out_of_memory, "NVRTC takes no text of {} bytes: {}", text.size(),
          nvrtc.nvrtcGetErrorString(result));
  }
  ~Program() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int compile(const std::vector<std::string>& flags) {
    std::vector<const char*> options;
    for (const std::string& flag : flags) options.push_back(flag.c_str());
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
  }
  std::string log() const { return read(&Nvrtc::nvrtcGetProgramLogSize, &Nvrtc::nvrtcGetProgramLog); }
  std::string cubin() const { return read(&Nvrtc::nvrtcGetCUBINSize, &Nvrtc::nvrtcGetCUBIN); }

 private:
  using Size = int (*Nvrtc::*)(Nvrtc::Program, size_t*);
  using Get = int (*Nvrtc::*)(Nvrtc::Program, char*);
  std::string read(Size size, Get get) const {
    size_t bytes = 0;
    (nvrtc_.*size)(program_, &bytes);
    std::string content(bytes, '\0');
    if (bytes > 0) (nvrtc_.*get)(program_, content.data());
    return content;
  }

  const Nvrtc& nvrtc_;
  Nvrtc::Program program_ = nullptr;
};

// The function that ptxas says nothing defines; empty: it says something else.
std::string undefined_function(const std::string& log) {
  constexpr std::string_view kSays = "Unresolved extern function '";
  const size_t at = log.find(kSays);
  return at == log.npos ? "" : log.substr(at + kSays.size(), log.find('\'', at + kSays.size()) - at - kSays.size());
}

class NvrtcToolchain : public Toolchain {
 public:
  std::string machine(std::string_view target) const override { return "nvidia " + std::string(target); }

  std::vector<std::string> flags(std::string_view target) const override {
    std::vector<std::string> all(std::begin(kNvrtcFlags), std::end(kNvrtcFlags));
    all.push_back("--gpu-architecture=" + std::string(target));
    return all;
  }

  CompilerSearch find(const Cache* cache) const override {
    const std::optional<int> driver = cuda::driver_version();
    std::string tried;
    for (const NvrtcFile& file : find_nvrtc()) {
      std::string why;
      if (file.major < kOldestMajor)
        why = fmt::format("too old: required is {} or newer", kOldestMajor);
      else if (driver && file.major > *driver / 1000)
        why = fmt::format("the driver, for CUDA {}, does not load what it makes", *driver / 1000);
      else if (const Compiler* compiler = identify(cache, file.path, examine, why))
        return {compiler};
      tried += fmt::format("{}{} ({})", tried.empty() ? "tried " : ", ", file.path, why);
    }
    if (cuda::library_folders().empty()) tried = "WEFT_CUDA_LIBS=none switches CUDA off";
    if (tried.empty())
      tried = fmt::format("no libnvrtc.so.12 or newer in {}", fmt::join(cuda::library_folders(), ", "));
    return {nullptr, tried, std::string(kRemedy)};
  }

  std::string compile(const Compiler& compiler, const Request& request, const std::vector<std::string>& flags,
                      const std::string&) const override {
    std::string why;
    const Nvrtc* nvrtc = load_nvrtc(compiler.path, why);
    check(nvrtc != nullptr, ErrorCode::no_compiler, "'{}' cannot be compiled: {} cannot be loaded: {}; {}",
          request.name, compiler.path, why, kRemedy);
    Program program(*nvrtc, request.text);
    const int result = program.compile(flags);
    const std::string log = result == Nvrtc::kSuccess ? "" : program.log();
    check(result != Nvrtc::kOutOfMemory, ErrorCode::out_of_memory, "'{}': {} has not memory enough to compile it",
          request.name, compiler.version);
    check(result != Nvrtc::kInvalidOption, ErrorCode::unsupported, "'{}': {} does not take the flags {}: {}",
          request.name, compiler.version, fmt::join(flags, " "), log);
    check(result != Nvrtc::kBuiltinFailure, ErrorCode::no_compiler,
          "'{}' cannot be compiled: {} does not find its libnvrtc-builtins, which lies beside {} where it is complete; "
          "{}",
          request.name, compiler.version, compiler.path, kRemedy);
    if (const std::string missing = undefined_function(log); !missing.empty())
      fail(ErrorCode::compile_failed,
           "'{}' uses what its text does not define: {}; a variant calls only functions of Weft's vocabulary and its "
           "own, none of a library (docs/variants.md lists the vocabulary)",
           request.name, missing);
    check(result == Nvrtc::kSuccess, ErrorCode::compile_failed, "'{}' does not compile with {}:\n{}", request.name,
          compiler.version, explain_errors(request.text, log));
    std::string cubin = program.cubin();
    check(cubin.starts_with("\x7f"
                            "ELF"),
          ErrorCode::compile_failed, "'{}': {} reports success and made no cubin ({} bytes)", request.name,
          compiler.version, cubin.size());
    return cubin;
  }
};

}  // namespace

std::span<const std::string_view> nvrtc_architectures() { return kArchitectures; }

std::string_view architecture_of(int major, int minor) {
  if (major == 7) return minor >= 5 ? "sm_75" : "";
  if (major == 8) return minor >= 9 ? "sm_89" : minor >= 6 ? "sm_86" : "sm_80";
  return major == 9 ? "sm_90a" : "";
}

const Toolchain& nvrtc_toolchain() {
  static const NvrtcToolchain toolchain;
  return toolchain;
}

Target nvrtc_target(std::string_view architecture) {
  check(std::find(std::begin(kArchitectures), std::end(kArchitectures), architecture) != std::end(kArchitectures),
        ErrorCode::unsupported, "architecture '{}': required {}, supported {}, missing {}", architecture, architecture,
        fmt::join(kArchitectures, ", "), architecture);
  return {&nvrtc_toolchain(), std::string(architecture)};
}

}  // namespace weft::jit

// The host's C++ compiler as a toolchain: its flags, and what machine it makes code for.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/cpuid.h"
#include "jit/host/compile.h"
#include "jit/host/compiler.h"
#include "jit/host/module.h"

namespace weft::jit {
namespace {

// -nostdlib: a leaf needs no library, and linking none is what keeps it loadable anywhere.
// -pipe: no temporary assembly, and the assembler runs beside the compiler.
constexpr const char* kFlags[] = {"-std=c++20",
                                  "-O3",
                                  "-fPIC",
                                  "-shared",
                                  "-nostdlib",
                                  "-pipe",
                                  "-g1",
                                  "-fno-trapping-math",
                                  "-fno-math-errno",
                                  "-ffp-contract=fast",
                                  "-fno-exceptions",
                                  "-fno-rtti",
                                  "-fvisibility=hidden",
                                  "-fdiagnostics-color=never",
                                  "-Wl,--build-id=none"};

#if defined(__x86_64__)
constexpr std::string_view kMachine = "x86_64-linux";
#elif defined(__aarch64__)
constexpr std::string_view kMachine = "aarch64-linux";
#else
#error "name this machine: the name is part of a module's key"
#endif

// As the build has them for kernels, and for the same reason (cmake/WeftTargets.cmake): optimised fully, and with each
// check in a branch of its own, text compiles several times as long. Of what is undefined, arithmetic, alignment and
// bounds are watched.
void add_sanitizers(std::string_view sanitizers, std::vector<std::string>& flags) {
  std::replace(flags.begin(), flags.end(), std::string("-O3"), std::string("-O1"));
  flags.push_back("-fexpensive-optimizations");  // without them no product is contracted with a sum
  flags.push_back("-fsanitize=" + std::string(sanitizers));
  flags.push_back("-fno-omit-frame-pointer");
  if (sanitizers.find("undefined") != sanitizers.npos)
    flags.insert(flags.end(), {"-fno-sanitize-recover=undefined", "-fno-sanitize=null,vptr,object-size"});
  if (sanitizers.find("address") != sanitizers.npos)
    flags.insert(flags.end(),
                 {"-fno-sanitize-address-use-after-scope", "--param=asan-instrumentation-with-call-threshold=0"});
}

class HostToolchain : public Toolchain {
 public:
  std::string machine(std::string_view target) const override {
    return std::string(kMachine) + " " + std::string(target);
  }

  std::vector<std::string> flags(std::string_view target) const override {
    std::vector<std::string> all(std::begin(kFlags), std::end(kFlags));
    const auto isa_flags = compiler_flags(isa_from_string(target));
    all.insert(all.end(), isa_flags.begin(), isa_flags.end());
    if (const std::string_view sanitizers = WEFT_SANITIZE; !sanitizers.empty()) add_sanitizers(sanitizers, all);
    return all;
  }

  CompilerSearch find(const Cache* cache) const override { return find_compiler(cache); }

  std::string compile(const Compiler& compiler, const Request& request, const std::vector<std::string>& flags,
                      const std::string& folder) const override {
    return compile_host(compiler, request, flags, folder);
  }
};

}  // namespace

const Toolchain& host_toolchain() {
  static const HostToolchain toolchain;
  return toolchain;
}

bool is_clang(const Compiler& compiler) { return compiler.version.find("clang") != std::string::npos; }

std::vector<std::string> standalone_flags(const Compiler& compiler) {
  if (is_clang(compiler)) return {"-fno-builtin-memcpy", "-fno-builtin-memset"};
  return {"-fno-tree-loop-distribute-patterns"};
}

Target host_target(Isa isa) { return {&host_toolchain(), std::string(to_string(isa))}; }

}  // namespace weft::jit

// NVRTC, NVIDIA's compiler as a library, found at run time: our own declarations of what is called.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft::jit {

struct Nvrtc {
  // Numbers of nvrtcResult.
  static constexpr int kSuccess = 0, kOutOfMemory = 1, kInvalidOption = 5, kCompilation = 6, kBuiltinFailure = 7;
  using Program = struct _nvrtcProgram*;

  const char* (*nvrtcGetErrorString)(int);
  int (*nvrtcVersion)(int* major, int* minor);
  int (*nvrtcCreateProgram)(Program*, const char* text, const char* name, int num_headers, const char* const* headers,
                            const char* const* include_names);
  int (*nvrtcDestroyProgram)(Program*);
  int (*nvrtcCompileProgram)(Program, int num_options, const char* const* options);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcGetCUBINSize)(Program, size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);
};

// A file that looks like one, by its name, and what lies beside it.
struct NvrtcFile {
  std::string path;      // ".../libnvrtc.so.13"
  int major = 0;         // 13
  std::string builtins;  // ".../libnvrtc-builtins.so.13.0", empty where there is none
};
// In the order of cuda::library_folders; of a folder the newest first.
std::vector<NvrtcFile> find_nvrtc();
// Of a path that one of these has.
NvrtcFile nvrtc_file(const std::string& path);

// Loaded once, and for good; null where that fails, and `why` says how. Thread-safe.
const Nvrtc* load_nvrtc(const std::string& path, std::string& why);

}  // namespace weft::jit

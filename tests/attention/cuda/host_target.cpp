#include "host_runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "attention/cuda/kernels/args.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/device_checks.h"
#include "base/hash.h"
#include "device/memory.h"
#include "jit/cuda/runtime.h"
#include "tests/simt/machine/machine.h"
#include "types.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// ---------------------------------------------------------------- memory

// Of the device; fresh again once nothing of it is in use.
struct Arena {
  simt::Memory memory;
  int in_use = 0;
  void* take(size_t bytes) {
    ++in_use;
    return memory.make<char>(fmt::format("buffer {} of {} bytes", memory.buffers().size(), bytes), bytes).data();
  }
  void give_back() {
    if (--in_use == 0) memory = {};
  }
};
Arena& arena() {
  static Arena instance;
  return instance;
}

constexpr device::Memory kMemory = {
    [](Device device, std::string_view name) {
      if (device != Device::cuda()) refuse_device(name, device);
    },
    [](Device, size_t bytes) -> void* {
      void* data = arena().take(bytes);
      std::memset(data, 0, bytes);
      return data;
    },
    [](Device, void*, size_t) { arena().give_back(); },
    [](Device, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }};

// ---------------------------------------------------------------- kernels

struct OnHost : cuda::LoadedKernel {
  void (*call)(const void* args) = nullptr;
};

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Whose forms of the text kernels have.
#ifdef WEFT_SIMT_ARCHITECTURE
const std::string kArchitecture = WEFT_SIMT_ARCHITECTURE;
#else
const std::string kArchitecture = "sm_90a";
#endif

// The text with twins in the place of tile/cuda/ptx. The arguments are the launch's, outside of the kernel's memory.
std::string host_text(const cuda::KernelText& text) {
  return fmt::format(
      "{}#include \"{}\"\n{}\n"
      "template <class A>\n__attribute__((no_sanitize(\"thread\"))) void weft_call(void (*kernel)(A), const void* "
      "args) {{\n"
      "  kernel(*static_cast<const A*>(args));\n}}\n"
      "extern \"C\" __attribute__((no_sanitize(\"thread\"))) void weft_launch(const void* args) {{ weft_call({}, "
      "args); }}\n",
      kArchitecture == "sm_75" ? "#define WEFT_SM 75\n" : "", text.file, text.instances, text.symbol);
}

Breakage& breakage() {
  static Breakage instance;
  return instance;
}

// A folder that stands before the kernels' own on the include path.
fs::path folder_of_broken(const fs::path& root, const fs::path& cache) {
  const Breakage& what = breakage();
  const std::string inner = "attention/cuda/kernels/" + what.file;
  std::string text = read_file(root / "src" / inner);
  const size_t at = text.find(what.from);
  ensure(at != text.npos && text.find(what.from, at + 1) == text.npos, "'{}' is not once in {}", what.from, inner);
  text.replace(at, what.from.size(), what.to);
  const fs::path folder = cache / fmt::format("broken.{}", getpid());
  fs::remove_all(folder);
  fs::create_directories((folder / inner).parent_path());
  std::ofstream(folder / inner) << text;
  return folder;
}

// Compiled once for each content of text, kernels and twins.
fs::path compiled(const cuda::KernelText& text) {
  const fs::path root = WEFT_SOURCE_DIR, cache = WEFT_SIMT_CACHE;
  const std::string source = host_text(text);
  Sha256 hash;
  hash.update(source).update(text.head).update(WEFT_TEST_CXX);
  std::vector<fs::path> twins;
  for (const auto& file : fs::directory_iterator(root / "tests/simt/twins/tile/cuda/ptx")) twins.push_back(file.path());
  std::sort(twins.begin(), twins.end());
  for (const fs::path& twin : twins) hash.update(read_file(twin));
  hash.update(breakage().file + breakage().from + breakage().to);
  const std::string name = (cache / hash.hex_digest()).string();
  if (fs::exists(name + ".so")) return name + ".so";
  fs::create_directories(cache);
  const std::string own = fmt::format("{}.{}", name, getpid());  // other processes may compile it too
  std::ofstream(own + ".cpp") << source;
  const std::string broken = breakage().file.empty() ? "" : "-I" + folder_of_broken(root, cache).string();
  const std::string command = fmt::format(
      "{0} -std=c++20 -O1 -g1 -fPIC -fsanitize=thread -fno-optimize-sibling-calls -ffp-contract=off "
      "-ftrivial-auto-var-init=pattern -w {3} -I{1}/tests/simt/twins -I{1}/src -I{1} -c {2}.cpp -o {2}.o && "
      "{0} -shared {2}.o -o {2}.so",
      WEFT_TEST_CXX, root.string(), own, broken);
  ensure(std::system(command.c_str()) == 0, "the kernel's text does not compile on the host: {}.cpp", own);
  fs::rename(own + ".so", name + ".so");
  fs::remove(own + ".o");
  return name + ".so";
}

class HostRuntime : public cuda::Runtime {
 public:
  void require(Device device, std::string_view name) const override {
    if (device != Device::cuda()) refuse_device(name, device);
  }
  std::string architecture(Device) const override { return kArchitecture; }
  int num_multiprocessors(Device) const override { return 2; }

  const cuda::LoadedKernel& load(Device, const cuda::KernelText& text) const override {
    const fs::path module = compiled(text);
    OnHost& loaded = loaded_[module];
    if (loaded.call != nullptr) return loaded;
    void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
    ensure(handle != nullptr, "{}", handle == nullptr ? dlerror() : "");
    loaded.call = reinterpret_cast<void (*)(const void*)>(dlsym(handle, "weft_launch"));
    return loaded;
  }
  int ctas_per_multiprocessor(const cuda::LoadedKernel&, const cuda::Grid&) const override { return 2; }
  using Runtime::launch;
  void launch(const cuda::LoadedKernel& kernel, const cuda::Grid& grid, const void* args, size_t bytes,
              Stream) const override {
    std::vector<char> copy(attention::cuda::kMaxArgsBytes);
    std::memcpy(copy.data(), args, bytes);
    const auto run = [=, call = static_cast<const OnHost&>(kernel).call] {
      simt::run_in_all_orders(
          arena().memory,
          {.ctas = grid.ctas, .threads = grid.threads, .shared_bytes = static_cast<size_t>(grid.shared_bytes)},
          [&] { call(copy.data()); });
    };
    if (defer_launch == nullptr || !defer_launch(run)) run();
  }

  std::optional<double> seconds_of(Device, const std::function<void()>& work, Stream) const override {
    return weft::seconds_of(work);
  }

  void write(Device, void* to, std::span<const Bytes> pieces, Stream) const override { copy(pieces, to); }
  void read(Device, const void* from, void* to, int64_t bytes, Stream) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  bool is_capturing(Device, Stream) const override {
    return testing::is_capturing != nullptr && testing::is_capturing();
  }
  // A launch has ended when it returns.
  struct AtOnce : Order {
    void enqueue(Stream stream, const std::function<void()>& work) override {
      if (watch_order != nullptr) watch_order(stream, true);
      work();
      if (watch_order != nullptr) watch_order(stream, false);
    }
    void write(void* to, std::span<const Bytes> pieces, Stream stream) override {
      enqueue(stream, [&] { copy(pieces, to); });
    }
  };
  std::unique_ptr<Order> make_order(Device) const override { return std::make_unique<AtOnce>(); }
  unsigned* clamped_flag(Device) const override { return testing::clamped_flag; }

 private:
  mutable std::map<fs::path, OnHost> loaded_;
};

class HostMachine : public Target {
 public:
  HostMachine() {
    device::add_memory(DeviceKind::cuda, kMemory);
    cuda::set_runtime(runtime_);
  }
  std::string name() const override { return "host_machine"; }
  Device device() const override { return Device::cuda(); }
  Stream stream(WorkerTeam&) const override { return {}; }
  std::vector<DType> compute_types(const AttentionSpec& spec) const override { return types_on(spec, kArchitecture); }
  void* place(void* host, size_t bytes) const override {
    void* placed = arena().take(bytes);
    std::memcpy(placed, host, bytes);
    return placed;
  }
  void fetch(void* host, void* placed, size_t bytes) const override { std::memcpy(host, placed, bytes); }
  void release(void*, size_t) const override { arena().give_back(); }
  void poison(const Workspace& workspace) const override { std::memset(workspace.data(), 0xff, workspace.bytes()); }

 private:
  HostRuntime runtime_;
};

}  // namespace

void break_kernels(const Breakage& what) { breakage() = what; }

const Target& host_machine() {
  static const HostMachine target;
  return target;
}

bool (*defer_launch)(std::function<void()> work) = nullptr;
bool (*is_capturing)() = nullptr;
void (*watch_order)(Stream stream, bool begins) = nullptr;
unsigned* clamped_flag = nullptr;
simt::Memory& host_memory() { return arena().memory; }

std::span<const Target* const> targets() {
  static const Target* const all[] = {&host_machine()};
  return all;
}

}  // namespace weft::testing

#include "tests/simt/host/host_machine.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "base/device_checks.h"
#include "base/once_map.h"
#include "device/memory.h"
#include "tests/simt/sparse/card_shape.h"
#include "tile/abi/tensor_map.h"

namespace weft::simt {
CardShape card_shape;
unsigned sparse_threads_x = 0;  // tests/simt/sparse/cuda.h asks for it
}  // namespace weft::simt

namespace weft::testing {
namespace {

constexpr device::Memory kMemory = {
    [](Device device, std::string_view name) {
      if (device != Device::cuda()) refuse_device(name, device);
    },
    [](Device, size_t bytes) -> void* {
      if (bytes > host_most_bytes) return nullptr;
      void* data = take_host_memory(bytes);
      std::memset(data, 0, bytes);
      return data;
    },
    [](Device, void* data, size_t) { host_memory().release(data); },
    [](Device, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }};

// Pinned memory, which kernels write to as to the card's.
constexpr device::Memory kPinned = {
    [](Device device, std::string_view name) {
      if (device != Device::cuda_host()) refuse_device(name, device);
    },
    [](Device, size_t bytes) -> void* { return std::memset(take_host_memory(bytes), 0, bytes); }, kMemory.release,
    kMemory.copy};

constexpr size_t kMostArgs = 4096;  // that a launch takes

struct OnHost : cuda::LoadedKernel {
  void (*call)(const void* args) = nullptr;
  std::string symbol;
};

void run_once(simt::Memory& memory, simt::Launch launch, const std::function<void()>& kernel) {
  simt::run(memory, launch, kernel);
}

// A text that is complete but for its head, as programs of sparse tensors are: its kernels have arguments of 8 bytes
// each.
std::string host_text_of_program(const cuda::KernelText& text) {
  std::string program = text.instances;
  const std::string of_card = "extern __shared__ double2 memory[];\n  return (unsigned char*)memory;";
  const size_t at = program.find(of_card);
  ensure(at != program.npos, "'{}' takes shared memory otherwise", text.name);
  program.replace(at, of_card.size(), "return weft::simt::shared_memory();");
  // All of its kernels, so that each program is compiled once.
  const std::string head = "__global__ void ";
  std::string launches;
  for (size_t kernel = program.find(head); kernel != program.npos; kernel = program.find(head, kernel + 1)) {
    const size_t begin = kernel + head.size();
    launches += fmt::format(
        "extern \"C\" __attribute__((no_sanitize(\"thread\"))) void launch_{0}(const void* args) {{\n"
        "  WeftCall<{0}>::run(static_cast<const long long*>(args));\n}}\n",
        program.substr(begin, program.find('(', begin) - begin));
  }
  const std::string head_file = *text.file == '\0' ? "" : fmt::format("#include \"{}\"\n", text.file);
  return "#include \"tests/simt/sparse/card_words.h\"\n" + head_file + program + launches;
}

// The text with twins in the place of tile/cuda/ptx. The arguments are the launch's, outside of the kernel's memory.
std::string host_text(const cuda::KernelText& text, const std::string& architecture) {
  if (text.num_arguments > 0) return host_text_of_program(text);
  return fmt::format(
      "{}#include \"{}\"\n{}\n"
      "template <class A>\n__attribute__((no_sanitize(\"thread\"))) void weft_call(void (*kernel)(A), const void* "
      "args) {{\n"
      "  kernel(*static_cast<const A*>(args));\n}}\n"
      "extern \"C\" __attribute__((no_sanitize(\"thread\"))) void weft_launch(const void* args) {{ weft_call({}, "
      "args); }}\n",
      architecture == "sm_75" ? "#define WEFT_SM 75\n" : "", text.file, text.instances, text.symbol);
}

class HostMachine : public cuda::Runtime {
 public:
  explicit HostMachine(std::string_view architecture) : architecture_(architecture) {}

  void require(Device device, std::string_view name) const override {
    if (device != Device::cuda()) refuse_device(name, device);
  }
  std::string architecture(Device) const override { return architecture_; }
  int num_multiprocessors(Device) const override { return host_multiprocessors; }

  const cuda::LoadedKernel& load(Device, const cuda::KernelText& text) const override {
    return loaded_.get(text.hash(), text, [&] {
      std::string error;
      void* const module = simt::compile(host_text(text, architecture_), text.head, error);
      ensure(module != nullptr, "'{}' does not compile on the host: {}", text.name, error);
      OnHost made;
      const std::string launch = text.num_arguments > 0 ? "launch_" + text.symbol : "weft_launch";
      made.call = reinterpret_cast<void (*)(const void*)>(dlsym(module, launch.c_str()));
      made.symbol = text.symbol;
      return made;
    });
  }
  int ctas_per_multiprocessor(const cuda::LoadedKernel&, const cuda::Grid&) const override {
    return host_ctas_of_multiprocessor;
  }
  using Runtime::launch;
  void launch(const cuda::LoadedKernel& kernel, const cuda::Grid& grid, const void* args, size_t bytes,
              Stream) const override {
    ensure(bytes <= kMostArgs, "a launch takes {} bytes of arguments, and not {}", kMostArgs, bytes);
    // The kernel's own argument may be longer than what was given of it, and holds tensor maps.
    struct alignas(abi::TensorMap) Copy {
      char bytes[kMostArgs] = {};
      const char* data() const { return bytes; }
    } copy;
    std::memcpy(copy.bytes, args, bytes);
    const auto run = [grid, copy, &loaded = static_cast<const OnHost&>(kernel)] {
      if (watch_launch) watch_launch(loaded.symbol, grid, copy.data());
      const auto run_in = host_in_all_orders ? simt::run_in_all_orders : run_once;
      const auto number = [](int n) { return static_cast<unsigned>(n); };
      simt::card_shape = {{number(grid.threads), number(grid.threads_y), number(grid.threads_z)},
                          {number(grid.ctas), number(grid.ctas_y), number(grid.ctas_z)}};
      run_in(host_memory(),
             {.ctas = grid.ctas * grid.ctas_y * grid.ctas_z - host_absent_ctas,
              .threads = grid.threads_of_cta(),
              .shared_bytes = static_cast<size_t>(grid.shared_bytes),
              .cluster = grid.cluster,
              .cooperative = grid.cooperative,
              .resident_ctas = host_multiprocessors},
             [&] { loaded.call(copy.data()); });
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
  const std::string architecture_;
  mutable OnceMap<cuda::KernelText, OnHost> loaded_;
};

}  // namespace

void use_host_machine(std::string_view architecture) {
  static const HostMachine* const machine = [&] {
    const auto* made = new HostMachine(architecture);
    device::add_memory(DeviceKind::cuda, kMemory);
    device::add_memory(DeviceKind::cuda_host, kPinned);
    cuda::set_runtime(*made);
    return made;
  }();
  ensure(machine->architecture(Device::cuda()) == architecture, "the host machine is {} already, and not {}",
         machine->architecture(Device::cuda()), architecture);
}

simt::Memory& host_memory() {
  static auto* instance = new simt::Memory;  // static objects hold pieces of it
  return *instance;
}
void* take_host_memory(size_t bytes) {
  static int number = 0;
  return host_memory().make<char>(fmt::format("buffer {} of {} bytes", number++, bytes), bytes).data();
}

int host_multiprocessors = 2;
int host_ctas_of_multiprocessor = 2;
int host_absent_ctas = 0;
size_t host_most_bytes = std::numeric_limits<size_t>::max();
bool host_in_all_orders = true;
bool (*defer_launch)(std::function<void()> work) = nullptr;
bool (*is_capturing)() = nullptr;
void (*watch_order)(Stream stream, bool begins) = nullptr;
std::function<void(const std::string& symbol, const cuda::Grid& grid, const void* args)> watch_launch;
unsigned* clamped_flag = nullptr;

}  // namespace weft::testing

#include "sparse/cuda/load.h"

#include <bit>
#include <mutex>

#include "base/check.h"
#include "base/device_checks.h"
#include "device/cuda/memory.h"
#include "device/cuda/report.h"
#include "device/cuda/stream.h"
#include "jit/cuda/runtime.h"
#include "loop/codegen/c_family.h"
#include "loop/codegen/printers.h"
#include "sparse/cuda/grid.h"
#include "sparse/failures.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

// Of a CTA: eight of them leave most of a multiprocessor's memory to its cache, which gathers live on.
constexpr int kFewShared = 8 << 10;

// What lies there when it returns, for every stream.
Workspace copied(Device device, const void* from, size_t bytes) {
  Workspace memory(device, std::max<size_t>(bytes, 16));
  cuda::Card& card = cuda::Card::at(device.index);
  if (bytes > 0) cuda::copy_to_card(card, memory.data(), from, bytes, nullptr);
  cuda::synchronize(card, nullptr);
  return memory;
}

// Null where the array is of no structure of the binding.
const void* array_of_structures(const Bound& bound, const void* array, Device device) {
  for (const auto& [axis, data] : bound.held)
    for (const Level& level : data->levels)
      for (const std::vector<int32_t>* own : {&level.indptr, &level.indices})
        if (array == own->data() && !own->empty()) return array_on_card(*data, *own, device);
  return nullptr;
}

// What a program's failures are told by.
struct Failures {
  Declarations declared;
  loop::Memory numbers;
  std::vector<loop::Failure> list;
  void refuse(std::span<const uint64_t> words) const {
    FailureLog log(declared, numbers);
    for (size_t f = 0; f < list.size(); ++f)
      if (words[f] != UINT64_MAX) log.add(list[f], words[f]);
    log.raise();
  }
};

// What the kernels of a part are launched with: of one run to the next the addresses of tensors change alone.
struct Call {
  struct Tensor {
    size_t word;
    void* const* pointer;   // of the binding
    const char* read_wide;  // its name, where it begins at a multiple of 16 bytes; else null
  };
  std::vector<uint64_t> words = {};
  std::vector<Tensor> tensors = {};
  std::vector<cuda::Grid> grids = {};  // of each kernel
};

struct PlacedOnCard : Placed {
  std::map<std::string, const void*> arrays = {};
  std::map<std::string, Workspace> own = {};  // of those that no structure holds
  std::shared_ptr<cuda::Report> report = {};
  std::unique_ptr<cuda::Runtime::Order> order = {};  // where runs write memory of the binding's own
  // Changed by the operator's turns alone.
  mutable Call preprocess = {}, compute = {};
};

class LoadedOnCard : public Loaded {
 public:
  LoadedOnCard(const Compilation& made, Device device) : device_(device), declared_(made.stage1) {
    std::vector<loop::Launches> threads = kernels_of(made);
    std::vector<Part*> parts = {&compute_};
    compute_.function = made.compute3.function;
    if (threads.size() > 1) {
      parts.insert(parts.begin(), &preprocess_);
      preprocess_.function = made.preprocess3.function;
    }
    for (size_t i = 0; i < parts.size(); ++i) parts[i]->bind(threads[i]);
    std::vector<Names> wide;
    const std::string text = loop::cuda_module(threads, &wide);
    const loop::CudaHead head = loop::cuda_head(threads);
    check(*head.text == '\0' || backend_of(device, "compile").machine(device).has_mma, ErrorCode::unsupported,
          "{}: has products by mma; {} is older than sm_80, whose tensor cores take them", made.compute3.function.name,
          to_string(device));
    for (size_t i = 0; i < parts.size(); ++i) parts[i]->load(device, threads[i], head, text, wide);
  }

  void place(Bound& bound) const override {
    if (bound.placed == nullptr) bound.placed = std::make_shared<PlacedOnCard>();
    auto& placed = static_cast<PlacedOnCard&>(*bound.placed);
    Names tensors;
    for (const Bound::Given& given : bound.given) tensors.insert(given.name);
    for (const Part* part : {&preprocess_, &compute_})
      for (const loop::Buffer& buffer : part->function.buffers) {
        const std::string& name = buffer.name;
        if (tensors.contains(name) || bound.values.contains(name) || placed.arrays.contains(name)) continue;
        const void* const array = bound.pointers.at(name);
        const size_t bytes =
            static_cast<size_t>(evaluate(buffer.size, bound.numbers)) * static_cast<size_t>(bits_of(buffer.dtype)) / 8;
        const void* copy = array_of_structures(bound, array, device_);
        if (copy == nullptr) copy = (placed.own[name] = copied(device_, array, bytes)).data();
        placed.arrays[name] = copy;
      }
    if (!bound.values.empty() && placed.order == nullptr) placed.order = cuda::runtime().make_order(device_);
    auto failures = std::make_shared<Failures>(Failures{declared_, bound.numbers, preprocess_.failures});
    failures->list.insert(failures->list.end(), compute_.failures.begin(), compute_.failures.end());
    if (!failures->list.empty())
      placed.report = cuda::make_report(device_, failures->list.size(),
                                        [failures](std::span<const uint64_t> words) { failures->refuse(words); });
    placed.preprocess = call_of(preprocess_, 0, bound, placed);
    placed.compute = call_of(compute_, preprocess_.failures.size(), bound, placed);
  }

  void preprocess(const Bound& bound, Stream stream) const override {
    const auto& placed = static_cast<const PlacedOnCard&>(*bound.placed);
    run(preprocess_, placed, placed.preprocess, stream);
  }
  void compute(const Bound& bound, Stream stream) const override {
    const auto& placed = static_cast<const PlacedOnCard&>(*bound.placed);
    run(compute_, placed, placed.compute, stream);
  }
  bool is_captured(Stream stream) const override { return cuda::runtime().is_capturing(device_, stream); }

 private:
  struct Part {
    loop::Function function = {};
    std::vector<loop::Failure> failures = {};
    std::vector<BoundGrid> grids = {};  // of each kernel
    std::vector<const cuda::LoadedKernel*> kernels = {};
    Names wide = {};  // tensors that are read 16 bytes at a time

    // How its kernels are launched: their text may count on it.
    void bind(loop::Launches& threads) {
      failures = loop::failures_of(function);
      const std::vector<loop::Phase> phases = loop::split_phases(function);
      for (size_t p = 0; p < threads.phases.size(); ++p) {
        grids.emplace_back(function, phases[p], threads.phases[p].body);
        threads.phases[p].threads = grids.back().fixed_threads();
      }
    }
    void load(Device device, const loop::Launches& threads, const loop::CudaHead& head, const std::string& text,
              const std::vector<Names>& read_wide) {
      for (size_t p = 0; p < threads.phases.size(); ++p) {
        const int shared_bytes = grids[p].shared_bytes();
        kernels.push_back(&cuda::runtime().load(
            device, {.name = fmt::format("sparse {} {}", function.name, p),
                     .symbol = loop::phase_name(threads.function, p),
                     .file = head.file,
                     .head = head.text,
                     .instances = text,
                     .shared_bytes = shared_bytes,
                     .num_arguments = static_cast<int>(function.buffers.size() + function.scalars.size() +
                                                       function.reals.size() + (failures.empty() ? 0 : 1)),
                     .carveout = shared_bytes > kFewShared ? cuda::Carveout::shared_memory : cuda::Carveout::cache}));
      }
      // Texts call some buffers otherwise, in the same order.
      for (size_t b = 0; b < function.buffers.size(); ++b)
        for (const Names& names : read_wide)
          if (names.contains(threads.function.buffers[b].name)) wide.insert(function.buffers[b].name);
    }
  };

  Call call_of(const Part& part, size_t first_failure, Bound& bound, const PlacedOnCard& placed) const {
    Call call;
    for (const loop::Buffer& buffer : part.function.buffers) {
      const auto array = placed.arrays.find(buffer.name);
      if (array == placed.arrays.end()) {
        const auto wide = part.wide.find(buffer.name);
        call.tensors.push_back(
            {call.words.size(), &bound.pointers.at(buffer.name), wide == part.wide.end() ? nullptr : wide->c_str()});
      }
      call.words.push_back(array == placed.arrays.end() ? 0 : reinterpret_cast<uintptr_t>(array->second));
    }
    for (const std::string& scalar : part.function.scalars) {
      const int64_t value = bound.numbers.scalars.at(scalar);
      check(value <= loop::kMostOfParameter, ErrorCode::unsupported,
            "parameter '{}': is {}; operators on cards take up to {}, as they count in 32 bits", scalar, value,
            loop::kMostOfParameter);
      call.words.push_back(static_cast<uint64_t>(value));
    }
    for (const std::string& real : part.function.reals)
      call.words.push_back(std::bit_cast<uint64_t>(bound.numbers.reals.at(real)));
    if (!part.failures.empty())
      call.words.push_back(reinterpret_cast<uintptr_t>(placed.report->words() + first_failure));
    const int num_multiprocessors = cuda::runtime().num_multiprocessors(device_);
    for (const BoundGrid& grid : part.grids) call.grids.push_back(grid.grid(bound.numbers, num_multiprocessors));
    return call;
  }

  void run(const Part& part, const PlacedOnCard& placed, Call& call, Stream stream) const {
    if (!stream.is_default()) check_on("run", "stream", stream.device(), device_);
    for (const Call::Tensor& tensor : call.tensors) {
      const auto address = reinterpret_cast<uintptr_t>(*tensor.pointer);
      check(address % 16 == 0 || tensor.read_wide == nullptr, ErrorCode::invalid_argument,
            "buffers['{}']: begins at {:#x}; required: a multiple of 16 bytes, as it is read 16 bytes at a time",
            tensor.read_wide, address);
      call.words[tensor.word] = address;
    }
    const struct {
      const Part& part;
      const Call& call;
      Stream stream;
    } all{part, call, stream};
    const auto launch = [&all] {  // small enough to be called without an allocation
      for (size_t k = 0; k < all.part.kernels.size(); ++k)
        cuda::runtime().launch(*all.part.kernels[k], all.call.grids[k], all.call.words.data(),
                               all.call.words.size() * sizeof(uint64_t), all.stream);
    };
    placed.order != nullptr ? placed.order->enqueue(stream, launch) : launch();
  }

  const Device device_;
  const Declarations declared_;
  Part preprocess_, compute_;
};

}  // namespace

const int32_t* array_on_card(const Structure::Data& structure, const std::vector<int32_t>& array, Device device) {
  const std::lock_guard lock(structure.copies.mutex);
  Workspace& copy = structure.copies.arrays[{device.index, array.data()}];
  if (copy.data() == nullptr) copy = copied(device, array.data(), array.size() * sizeof(int32_t));
  return static_cast<const int32_t*>(copy.data());
}

std::unique_ptr<const Loaded> load_on_card(const Compilation& made, Device device) {
  return std::make_unique<LoadedOnCard>(made, device);
}

}  // namespace weft::sparse

#include "attention/record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <type_traits>
#include <vector>

#include "attention/fields.h"
#include "base/check.h"
#include "base/env.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using attention::PlanHeader;

// ---------------------------------------------------------------- files

class File {
 public:
  explicit File(const fs::path& path) : path_(path), stream_(path, std::ios::binary | std::ios::trunc) {}
  void write(const void* data, int64_t bytes) { stream_.write(static_cast<const char*>(data), bytes); }
  void close() {
    stream_.close();
    check(stream_.good(), ErrorCode::io_error, "WEFT_RECORD: '{}' cannot be written; see to the space left",
          path_.string());
  }

 private:
  fs::path path_;
  std::ofstream stream_;
};

// Brings what a device holds to the host, and into files.
class Reader {
 public:
  Reader(const AttentionKernel::Impl& kernel, Stream stream)
      : backend_(*kernel.backend), device_(kernel.device), stream_(stream) {}

  void write(File& file, const char* from, int64_t bytes) {
    for (int64_t done = 0; done < bytes; done += kBuffer) {
      const int64_t n = std::min(bytes - done, kBuffer);
      buffer_.resize(static_cast<size_t>(n));
      backend_.read(device_, from + done, buffer_.data(), n, stream_);
      file.write(buffer_.data(), n);
    }
  }

  // Row-major, in pieces that lie together.
  void write_tensor(const fs::path& path, const TensorView& t) {
    File file(path);
    const int64_t bits = bits_of(t.dtype());
    int outer = t.rank() - 1;  // axes before the piece
    int64_t piece = t.shape(outer);
    while (outer > 0 && t.stride(outer - 1) == piece) piece *= t.shape(--outer);
    std::vector<int64_t> index(static_cast<size_t>(outer));
    for (bool more = t.size() > 0; more;) {
      int64_t offset = 0;
      for (int axis = 0; axis < outer; ++axis) offset += index[static_cast<size_t>(axis)] * t.stride(axis);
      write(file, static_cast<const char*>(t.data()) + offset * bits / 8, piece * bits / 8);
      int axis = outer - 1;
      while (axis >= 0 && ++index[static_cast<size_t>(axis)] == t.shape(axis)) index[static_cast<size_t>(axis--)] = 0;
      more = axis >= 0;
    }
    file.close();
  }

 private:
  static constexpr int64_t kBuffer = 16 << 20;

  const attention::Backend& backend_;
  Device device_;
  Stream stream_;
  std::vector<char> buffer_;
};

// ---------------------------------------------------------------- call.json

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

// JSON has no infinity: a string stands for it.
std::string number(double value) {
  const std::string text = fmt::format("{}", value);
  return std::isfinite(value) ? text : json_text(text);
}

template <class List, class Item>
std::string array(const List& list, const Item& item) {
  std::string out = "[";
  for (const auto& x : list) {
    if (out.size() > 1) out += ',';
    out += item(x);
  }
  return out += ']';
}

template <class T>
std::string json_of(const T& value) {
  if constexpr (std::is_integral_v<T>) {
    return fmt::format("{}", value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return number(value);
  } else if constexpr (std::is_enum_v<T>) {
    return json_text(to_string(value));
  } else if constexpr (is_optional<T>) {
    return value ? json_of(*value) : "null";
  } else if constexpr (HasFields<T>) {
    std::string out = "{";
    for_each_field(value, [&](std::string_view name, const auto& field) {
      if (out.size() > 1) out += ',';
      out += json_text(name) + ':' + json_of(field);
    });
    return out + '}';
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return json_text(value);
  } else {
    return array(value, [](const auto& item) { return json_of(item); });
  }
}

std::string tensor_json(std::string_view name, const TensorView& t) {
  return fmt::format(R"({{"name":{},"dtype":"{}","shape":{}}})", json_text(name), to_string(t.dtype()),
                     json_of(t.shape()));
}

struct Named {
  std::string name;
  TensorView tensor;
};

// Those that are given.
std::vector<Named> tensors_of(const AttentionTensors& tensors, TensorUse asked) {
  std::vector<Named> all;
  for_each_tensor(tensors, [&](std::string_view name, const TensorView& tensor, TensorUse use) {
    if (use == asked && tensor) all.push_back({std::string(name), tensor});
  });
  if (asked == TensorUse::read)
    for (const TensorArg& arg : tensors.tensors) all.push_back({"tensor." + arg.name, arg.value});
  return all;
}

std::string call_json(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const AttentionTensors& tensors,
                      float sm_scale) {
  const auto tensor = [](const Named& t) { return tensor_json(t.name, t.tensor); };
  return fmt::format(R"({{"version":2,"isa":"{}","sm_scale":{},"spec":{},"plan_scalars":{},"scalars":{},"inputs":{},)"
                     R"("outputs":{}}})"
                     "\n",
                     kernel.target, number(sm_scale), json_of(kernel.spec),
                     json_of(plan_scalars(kernel.traits.intervals, plan)), json_of(tensors.scalars),
                     array(tensors_of(tensors, TensorUse::read), tensor),
                     array(tensors_of(tensors, TensorUse::written), tensor));
}

}  // namespace

std::string record_call(const AttentionKernel::Impl& kernel, const Workspace& workspace,
                        const AttentionTensors& tensors, float sm_scale, Stream stream) {
  static const std::optional<std::string> root = env::record_dir();
  if (!root) return {};
  static std::atomic<int> calls{0};
  const fs::path folder = fs::path(*root) / fmt::format("{}-{:06}", getpid(), calls++);
  fs::path making = folder;
  making += ".tmp";
  std::error_code error;
  fs::remove_all(making, error);
  try {
    fs::create_directories(making);
    const PlanHeader& plan = *kernel.backend->plan_in(workspace);
    Reader reader(kernel, stream);
    File file(making / "plan.bin");
    reader.write(file, static_cast<const char*>(workspace.data()), plan.partial_data.offset);
    file.close();
    for (const Named& input : tensors_of(tensors, TensorUse::read))
      reader.write_tensor(making / (input.name + ".bin"), input.tensor);
    const std::string json = call_json(kernel, plan, tensors, sm_scale);
    File call(making / "call.json");
    call.write(json.data(), static_cast<int64_t>(json.size()));
    call.close();
    fs::rename(making, folder);
  } catch (const fs::filesystem_error& refused) {
    fs::remove_all(making, error);
    fail(ErrorCode::io_error, "WEFT_RECORD = '{}': {}", *root, refused.code().message());
  } catch (...) {
    fs::remove_all(making, error);
    throw;
  }
  return folder.string();
}

void record_result(const std::string& folder, const AttentionKernel::Impl& kernel, const AttentionTensors& tensors,
                   Stream stream) {
  Reader reader(kernel, stream);
  for (const Named& output : tensors_of(tensors, TensorUse::written))
    reader.write_tensor(fs::path(folder) / (output.name + ".bin"), output.tensor);
}

}  // namespace weft

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
#include <vector>

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

std::string bound_json(const Bound& b) {
  return fmt::format(R"({{"q_pos":{},"kv_len":{},"constant":{},"scalar":{},"scalar_sign":{}}})", b.q_pos, b.kv_len,
                     b.constant, json_text(b.scalar), b.scalar_sign);
}

std::string variant_json(const Variant& v) {
  const auto scalar = [](const ScalarDecl& s) {
    return fmt::format(R"({{"name":{},"kind":"{}","default":{}}})", json_text(s.name), to_string(s.kind),
                       s.default_value ? number(*s.default_value) : "null");
  };
  const auto tensor = [](const TensorDecl& t) {
    return fmt::format(R"({{"name":{},"dtype":"{}","rank":{}}})", json_text(t.name), to_string(t.dtype), t.rank);
  };
  const auto interval = [](const Interval& i) {
    return fmt::format(R"({{"lower":{},"upper":{}}})", array(i.lower, bound_json), array(i.upper, bound_json));
  };
  return fmt::format(R"({{"name":{},"text":{},"use_softmax":{},"scalars":{},"tensors":{},"intervals":{}}})",
                     json_text(v.name), json_text(v.text), v.use_softmax, array(v.scalars, scalar),
                     array(v.tensors, tensor), array(v.intervals, interval));
}

std::string spec_json(const AttentionSpec& s) {
  return fmt::format(
      R"({{"q_dtype":"{}","kv_dtype":"{}","o_dtype":"{}","compute":{},"head_dim_qk":{},"head_dim_vo":{},)"
      R"("kv_form":"{}","layout":"{}","mask":"{}","sliding_window":{},"kv_scales":"{}","kv_scale_group":{},)"
      R"("variant":{}}})",
      to_string(s.q_dtype), to_string(s.kv_dtype), to_string(s.o_dtype),
      s.compute ? json_text(to_string(*s.compute)) : "null", s.head_dim_qk, s.head_dim_vo, to_string(s.kv_form),
      to_string(s.layout), to_string(s.mask), s.sliding_window, to_string(s.kv_scales), s.kv_scale_group,
      variant_json(s.variant));
}

std::string tensor_json(std::string_view name, const TensorView& t) {
  return fmt::format(R"({{"name":{},"dtype":"{}","shape":{}}})", json_text(name), to_string(t.dtype()),
                     array(t.shape(), [](int64_t n) { return fmt::format("{}", n); }));
}

struct Named {
  std::string name;
  TensorView tensor;
};

std::vector<Named> inputs_of(const AttentionTensors& tensors) {
  std::vector<Named> all{{"q", tensors.q}, {"k", tensors.kv.k}};
  if (tensors.kv.v) all.push_back({"v", tensors.kv.v});  // not beside a latent cache of one tensor
  if (tensors.kv.k_scale) all.insert(all.end(), {{"k_scale", tensors.kv.k_scale}, {"v_scale", tensors.kv.v_scale}});
  for (const TensorArg& arg : tensors.tensors) all.push_back({"tensor." + arg.name, arg.value});
  return all;
}

std::vector<Named> outputs_of(const AttentionTensors& tensors) {
  std::vector<Named> all{{"o", tensors.o}};
  if (tensors.lse) all.push_back({"lse", tensors.lse});
  return all;
}

std::string call_json(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const AttentionTensors& tensors,
                      float sm_scale) {
  const auto scalar = [](const ScalarArg& s) {
    return fmt::format(R"({{"name":{},"value":{}}})", json_text(s.name), number(s.value));
  };
  const auto tensor = [](const Named& t) { return tensor_json(t.name, t.tensor); };
  return fmt::format(R"({{"version":1,"isa":"{}","sm_scale":{},"spec":{},"plan_scalars":{},"scalars":{},"inputs":{},)"
                     R"("outputs":{}}})"
                     "\n",
                     kernel.target, number(sm_scale), spec_json(kernel.spec),
                     array(plan_scalars(kernel.traits.intervals, plan), scalar), array(tensors.scalars, scalar),
                     array(inputs_of(tensors), tensor), array(outputs_of(tensors), tensor));
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
    for (const Named& input : inputs_of(tensors)) reader.write_tensor(making / (input.name + ".bin"), input.tensor);
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
  for (const Named& output : outputs_of(tensors))
    reader.write_tensor(fs::path(folder) / (output.name + ".bin"), output.tensor);
}

}  // namespace weft

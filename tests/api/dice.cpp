#include "dice.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weft::testing {

double Dice::odd_number() {
  using Limits = std::numeric_limits<double>;
  return pick({0., 1., -1., 0.5, 1e-3, 30., -1e30, 1e30, 1e300, 2147483648., 1.5, Limits::quiet_NaN(),
               Limits::infinity(), -Limits::infinity(), Limits::denorm_min()});
}

DType Dice::dtype() {
  return pick({DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4,
               DType::uint8, DType::int32, DType::int64, DType::fp64});
}

std::string Dice::bytes(int most) {
  std::string text(static_cast<size_t>(below(most + 1)), '\0');
  for (char& c : text) c = once_in(4) ? static_cast<char>(below(256)) : pick({'a', 'b', ' ', '\n', '1', '<', '>', '{'});
  return text;
}

void Dice::spoil(std::string& bytes) {
  for (int count = between(1, 4); count > 0 && !bytes.empty(); --count) {
    const auto at = static_cast<size_t>(below(static_cast<int>(bytes.size())));
    switch (below(5)) {
      case 0: bytes[at] = static_cast<char>(below(256)); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8)); break;
      case 2: bytes.insert(at, 1, static_cast<char>(below(256))); break;
      case 3: bytes.erase(at, static_cast<size_t>(between(1, 8))); break;
      default: bytes.insert(at, bytes.substr(at, static_cast<size_t>(between(1, 16)))); break;
    }
  }
}

TensorView Dice::spoil(const TensorView& view) {
  std::vector<int64_t> shape(view.shape().begin(), view.shape().end());
  std::vector<int64_t> strides(view.strides().begin(), view.strides().end());
  const auto with = [&](const void* data, DType dtype, Device device) {
    return TensorView(data, dtype, shape, strides, device);
  };
  if (view.data() == nullptr || view.rank() == 0 || view.size() == 0) return {};
  const int axis = below(view.rank());
  const auto a = static_cast<size_t>(axis);
  switch (below(12)) {
    case 0: return {};
    case 1: return with(nullptr, view.dtype(), view.device());
    case 2: return with(view.data(), dtype(), view.device());
    case 3: return with(view.data(), view.dtype(), device());
    case 4: return view.slice(axis, 0, view.shape(axis) - 1);
    case 5: return view.slice(axis, view.shape(axis) / 2, view.shape(axis) / 2);
    case 6: return view.select(axis, view.shape(axis) - 1);
    case 7: {
      const size_t other = static_cast<size_t>(below(view.rank()));
      std::swap(shape[a], shape[other]);
      std::swap(strides[a], strides[other]);
      return with(view.data(), view.dtype(), view.device());
    }
    case 8: strides[a] = 0; return with(view.data(), view.dtype(), view.device());
    case 9: {  // backwards
      const int64_t bytes = (view.shape(axis) - 1) * view.stride(axis) * bits_of(view.dtype()) / 8;
      strides[a] = -strides[a];
      return with(view.as<char>() + bytes, view.dtype(), view.device());
    }
    case 10: {  // between two elements
      const TensorView shorter = view.slice(0, 0, view.shape(0) - 1);
      return {shorter.as<char>() + 1, view.dtype(), shorter.shape(), shorter.strides(), view.device()};
    }
    default:
      shape.insert(shape.begin(), 1), strides.insert(strides.begin(), 1);
      return with(view.data(), view.dtype(), view.device());
  }
}

}  // namespace weft::testing

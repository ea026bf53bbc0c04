#include "sparse/operators/kept.h"

#include <functional>

#include "base/check.h"
#include "base/once_map.h"

namespace weft::sparse {

Operator kept_operator(const std::string& program, const std::string& schedule,
                       const std::map<std::string, int64_t>& set) {
  static auto& kept = *new OnceMap<std::string, Operator>;  // outlives every static that runs one
  std::string key = program + schedule;
  for (const auto& [name, value] : set) key += fmt::format("{}={};", name, value);
  return kept.get(std::hash<std::string>()(key), key,
                  [&] { return compile(parse(program), schedule, Device::cpu(), {.set = set}); });
}

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  for (size_t at = 0; (at = text.find(old, at)) != text.npos; at += now.size()) text.replace(at, old.size(), now);
  return text;
}

std::string with_dtype(const std::string& program, DType dtype) {
  return replaced(program, "DTYPE", std::string(to_string(dtype)));
}

DType common_dtype(const std::vector<std::pair<const char*, const TensorView*>>& tensors) {
  const auto& [first, tensor] = tensors[0];
  const DType dtype = tensor->dtype();
  check(dtype == DType::fp32 || dtype == DType::bf16, ErrorCode::invalid_dtype,
        "{}: is of {}; allowed are fp32 and bf16", first, to_string(dtype));
  for (const auto& [name, other] : tensors)
    check(other->dtype() == dtype, ErrorCode::invalid_dtype, "{}: is of {} and {} of {}; both have one type", name,
          to_string(other->dtype()), first, to_string(dtype));
  return dtype;
}

void check_rank(const TensorView& tensor, const char* name, int rank, const char* shape) {
  check(tensor.rank() == rank, ErrorCode::invalid_shape, "{}: has shape {}; {} is expected", name, shape_string(tensor),
        shape);
}

std::string tiled(const FeatureTile& tile) {
  // Sixteen vectors of sums leave room for what is multiplied.
  const auto fits = [&](int64_t width) { return tile.feat % width == 0 && width * tile.num_rows <= 256; };
  const int64_t width = fits(64) ? 64 : fits(32) ? 32 : 16;
  const bool has_tail = tile.feat % 16 != 0;
  const bool several = has_tail || tile.feat > width;
  const std::string loop = tile.block + "." + tile.loop, stem = tile.block + "_" + tile.loop;
  const std::string outer = stem + "o", part = stem + "t", vectors = stem + "u", vector = stem + "i";
  std::string text, inner = loop;
  if (several) {
    inner = !has_tail && width > 16 ? part : vector;
    text += fmt::format("{}, {} = split({}, {})\n", outer, inner, loop, has_tail ? 16 : width);
  }
  const bool has_vectors = !has_tail && width > 16;
  if (has_vectors) text += fmt::format("{}, {} = split({}, 16)\n", vectors, vector, inner);
  const std::string lanes = has_vectors ? vector : inner;
  std::string order = several ? outer + ", " : "";
  for (const std::string& reduction : tile.within) order += fmt::format("{}.{}, ", tile.block, reduction);
  if (!tile.rows.empty()) order += tile.rows + ", ";
  if (has_vectors) order += vectors + ", ";
  if (!tile.pairs.empty()) order += tile.pairs + ", ";
  if (!order.empty()) text += fmt::format("reorder({}{})\n", order, lanes);
  text += fmt::format("vectorize({})\n", lanes);
  if (has_vectors) text += fmt::format("unroll({})\n", vectors);
  if (!tile.rows.empty() && tile.num_rows > 1) text += fmt::format("unroll({})\n", tile.rows);
  if (!tile.pairs.empty()) text += fmt::format("annotate({}, dot)\n", tile.pairs);
  return text + fmt::format("cache_write({}, register)\n", several ? outer : tile.around);
}

}  // namespace weft::sparse

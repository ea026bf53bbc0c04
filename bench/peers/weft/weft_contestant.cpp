// weft_contestant [--ceilings]: serves rows (protocol.h) with Weft, or with what this machine can do at most.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "contestants.h"

namespace {

struct Kind {
  std::string_view name;
  contest::Reading (*prepare)(const contest::json& row);
  std::vector<std::string_view> fields;  // beside those of every row
};
const std::vector<std::string_view> kFieldsOfAll = {"kind", "threads", "precision"};
const Kind kKinds[] = {
    {"attention",
     contest::weft_attention,
     {"dtype", "qo_heads", "kv_heads", "head_dim", "qo_len", "kv_len", "batch", "copies", "soft_cap"}},
    {"plan",
     contest::weft_plan,
     {"dtype", "qo_heads", "kv_heads", "head_dim", "qo_len", "kv_len", "batch", "copies", "soft_cap"}},
    {"linear", contest::weft_linear, {"weights", "rows", "cols", "m", "copies"}},
    {"spmm", contest::weft_spmm, {"matrix", "feat"}},
    {"blocks", contest::weft_blocks, {"pattern", "op", "dtype"}},
    {"rgms", contest::weft_rgms, {"edges", "feat_in", "feat_out"}},
    {"graphsage", contest::weft_graphsage, {"matrix", "feat", "hidden", "classes"}},
    {"prefill", contest::weft_model, {"model", "prompt"}},
    {"decode", contest::weft_model, {"model", "prompt", "steps", "sequences", "shared"}},
};

// Rows may be younger than this build (compare.py --against). A field that it passed over would change what is
// measured.
contest::Reading prepare(const contest::json& row) {
  const std::string name = row.at("kind");
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == name; });
  if (kind == std::end(kKinds)) throw std::invalid_argument("this build of Weft knows no row of kind '" + name + "'");
  const auto holds = [](const std::vector<std::string_view>& fields, const std::string& field) {
    return std::find(fields.begin(), fields.end(), field) != fields.end();
  };
  for (const auto& [field, value] : row.items())
    if (!holds(kFieldsOfAll, field) && !holds(kind->fields, field))
      throw std::invalid_argument("this build of Weft knows no field '" + field + "' in a row of kind '" + name + "'");
  return kind->prepare(row);
}

}  // namespace

int main(int argc, char** argv) {
  const bool ceilings = argc == 2 && std::strcmp(argv[1], "--ceilings") == 0;
  return contest::serve(ceilings ? contest::ceiling : prepare);
}

#include "sparse/tune/chosen.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/hash.h"
#include "base/once_map.h"
#include "sparse/operators/card.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/card_choice.h"
#include "sparse/tune/results.h"

namespace weft::sparse {
namespace {

// What tells the calls apart that one structure has different choices for.
int64_t memo_key(const GatherCall& call) {
  return ((call.device.index * (int64_t{1} << 31) + call.feat) * 4096 + std::min<int64_t>(call.workers, 1023)) * 32 +
         call.element_bytes * 4 + (call.keeps_values ? 2 : 0) + (call.op == GatherOperator::sddmm ? 1 : 0);
}

struct OperatorKey {
  GatherOperator op;
  FormatChoice choice;
  int64_t feat;
  DType dtype;
  Device device;
  bool operator==(const OperatorKey&) const = default;
};

std::string sddmm_csr_schedule(const FormatChoice& choice, int64_t feat, DType dtype, const VectorUnit& unit) {
  if (unit.is_of_card) return card_edges({.iteration = "sddmm", .feat = feat, .dtype = dtype, .cut = card_cut(choice)});
  return sddmm_schedule(feat, dtype, unit, choice.prefetch, choice.group);
}

std::string spmm_card_schedule(const FormatChoice& choice, int64_t feat, DType dtype, const VectorUnit& unit) {
  const CardCut cut = card_cut(choice);
  if (!choice.formats.empty()) return spmm_formats_schedule(feat, choice.formats, unit, cut);
  return "lower()\n" +
         card_rows({.iteration = "csrmm", .cta = "i", .reductions = {"j"}, .feat = feat, .dtype = dtype, .cut = cut});
}

ReadyProgram ready_sddmm(const FormatChoice& choice, int64_t feat, DType dtype, const VectorUnit& unit) {
  const std::string schedule = choice.formats.empty()
                                   ? sddmm_csr_schedule(choice, feat, dtype, unit)
                                   : sddmm_format_schedule(feat, choice.formats, unit, choice.prefetch, choice.group);
  return {replaced(kSddmmProgram, "fp32", std::string(to_string(dtype))), schedule, {{"feat", feat}}};
}

ReadyProgram ready_spmm(const FormatChoice& choice, int64_t feat, DType dtype, const VectorUnit& unit) {
  const std::string schedule =
      unit.is_of_card ? spmm_card_schedule(choice, feat, dtype, unit)
      : has_rows_in_registers(choice.formats)
          ? spmm_schedule(feat, choice.formats, unit, choice.prefetch, choice.tile, choice.group)
          : spmm_formats_schedule(feat, choice.formats, unit);
  if (dtype == DType::bf16 && !sums_in_fp32(choice)) return rounded_spmm(feat, schedule, unit);
  return {replaced(kSpmmProgram, "fp32", std::string(to_string(dtype))), schedule, {{"feat", feat}}};
}

// The fastest of what a search has kept under a key; on a card, of what this structure could be run with.
std::optional<FormatChoice> fastest_kept(const std::string& key, const Structure::Data& structure,
                                         const GatherCall& call) {
  const std::vector<FormatChoice> known =
      call.is_on_card() ? candidates_on_card(structure, call) : std::vector<FormatChoice>();
  std::optional<FormatChoice> best;
  double seconds = 0;
  for (const Measured& measured : read_results(key)) {
    if (best && measured.seconds >= seconds) continue;
    try {
      const FormatChoice choice = parse_choice(measured.choice);
      if (call.is_on_card() && std::find(known.begin(), known.end(), choice) == known.end()) continue;
      best = choice;
      seconds = measured.seconds;
    } catch (const Error&) {  // written by nobody who is known
    }
  }
  return best;
}

}  // namespace

FormatChoice choice_of(const Structure::Data& structure, const GatherCall& call) {
  const int64_t key = memo_key(call);
  ChoiceMemo& memo = structure.choices;
  {
    const std::lock_guard lock(memo.mutex);
    if (const auto found = memo.choices.find(key); found != memo.choices.end()) return found->second;
  }
  check_is_csr(structure, to_string(call.op));
  std::optional<FormatChoice> best = fastest_kept(results_key(structure, to_text(call), call.device), structure, call);
  if (!best && call.is_on_card())
    best = fastest_kept(likeness_key(likeness_of(structure), to_text(call), call.device), structure, call);
  if (!best)
    best = call.is_on_card() ? likely_on_card(structure, call) : likely_choice(row_lengths(structure, call), call);
  keep_choice(structure, call, *best);
  return *best;
}

int64_t prefetch_of(const Structure::Data& structure, const GatherCall& call) {
  const FormatChoice choice = choice_of(structure, call);
  return choice.formats.empty() ? choice.prefetch : default_prefetch(call.feat);
}

void keep_choice(const Structure::Data& structure, const GatherCall& call, const FormatChoice& choice) {
  const std::lock_guard lock(structure.choices.mutex);
  structure.choices.choices[memo_key(call)] = choice;
}

ReadyProgram gather_program(GatherOperator op, const FormatChoice& choice, int64_t feat, DType dtype, Device device) {
  VectorUnit unit = vector_unit(device);
  if (choice.lanes > 0) unit.lanes = std::min(unit.lanes, choice.lanes);
  return op == GatherOperator::sddmm ? ready_sddmm(choice, feat, dtype, unit) : ready_spmm(choice, feat, dtype, unit);
}

const Operator& gather_operator(GatherOperator op, const FormatChoice& choice, int64_t feat, DType dtype,
                                Device device) {
  static auto& operators = *new OnceMap<OperatorKey, Operator>;  // outlives every static that runs one
  const OperatorKey key{op, choice, feat, dtype, device};
  const size_t hash =
      hash_of(choice.formats) +
      static_cast<size_t>(choice.prefetch * 977 + choice.tile * 31 + feat * 3 + choice.lanes * 7 + choice.group * 13) +
      static_cast<size_t>(dtype) + static_cast<size_t>(op) * 101 + static_cast<size_t>(device.index);
  return operators.get(hash, key,
                       [&] { return kept_operator(gather_program(op, choice, feat, dtype, device), device); });
}

}  // namespace weft::sparse

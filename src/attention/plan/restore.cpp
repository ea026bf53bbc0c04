// A plan that was recorded, back from its bytes: nothing in them is believed before it was checked.
#include <fmt/format.h>

#include <cstring>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft {
namespace {

using namespace attention;

constexpr int64_t kMaxBytes = int64_t{1} << 40;

// What verify itself relies on.
void check_header(const KernelTraits& traits, const PlanHeader& h, size_t bytes) {
  const auto refuse_unless = [](bool condition, const char* what) {
    check(condition, ErrorCode::invalid_file, "plan: {}; record the call again", what);
  };
  refuse_unless(h.magic == kPlanMagic, "does not begin like one");
  check(h.signature == traits.signature(), ErrorCode::plan_mismatch,
        "plan: signature {:016x}, the kernel's is {:016x}; it was recorded by another version or instruction set",
        h.signature, traits.signature());
  refuse_unless(h.num_kv_heads >= 1 && h.num_qo_heads >= h.num_kv_heads && h.num_qo_heads % h.num_kv_heads == 0 &&
                    h.num_qo_heads <= 1 << 20,
                "its head counts do not fit together");
  refuse_unless(h.num_workers >= 1 && h.num_workers <= planner::kMaxWorkers && h.num_requests >= 0 &&
                    h.num_rows_q >= 0 && h.page_size >= 0 && h.num_pool_pages >= 0 &&
                    h.head_dim_vo == traits.head_dim_vo,
                "its sizes are out of range");
  check(h.block_rows == 0, ErrorCode::unsupported,
        "plan: required block-sparse; supported padded, ragged and paged; missing: their positions in a replay");
  refuse_unless(h.num_levels >= 1 && h.num_levels <= kMaxLevels, "it has no level, or too many");
  refuse_unless(h.num_intervals >= 0 && h.num_intervals <= 2, "it has more than two intervals");
  for (const ResolvedInterval& interval : h.intervals)
    refuse_unless(interval.num_lower >= 0 && interval.num_lower <= kMaxTerms && interval.num_upper >= 0 &&
                      interval.num_upper <= kMaxTerms,
                  "an interval has too many bounds");
  refuse_unless(h.total_bytes >= static_cast<int64_t>(sizeof h) && h.total_bytes <= kMaxBytes,
                "its size is out of range");
  refuse_unless(h.partial_data.offset == static_cast<int64_t>(bytes), "its file was cut short or extended");
  const auto fits = [&](const Section& s) {
    return s.offset >= 0 && s.offset <= h.total_bytes && s.count >= 0 && s.count <= h.total_bytes;
  };
  for (const planner::CopiedSection& copied : planner::copied_sections()) {
    const Section& s = h.*copied.section;
    refuse_unless(fits(s) && s.offset + s.count * copied.element_bytes <= static_cast<int64_t>(bytes),
                  "a section lies outside of it");
  }
  refuse_unless(fits(h.partial_data), "a section lies outside of it");
}

}  // namespace

Plan Planner::restore(const KernelTraits& traits, std::span<const char> bytes) {
  check(bytes.size() >= sizeof(PlanHeader), ErrorCode::invalid_file, "plan: {} bytes are less than its header",
        bytes.size());
  PlanHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  check_header(traits, header, bytes.size());
  Plan plan;
  plan.impl_ = std::make_unique<Plan::Impl>();
  Plan::Impl& impl = *plan.impl_;
  impl.bytes.assign(bytes.begin(), bytes.end());
  impl.page_capacity = header.page_indices.count;
  impl.reach.assign(static_cast<size_t>(header.qo_len.count), {});
  impl.traits = traits;
  impl.mode = PlanMode::no_split;  // not recorded; asks for nothing that another mode does not promise
  try {
    verify(plan);
  } catch (const InternalError& broken) {
    fail(ErrorCode::invalid_file, "plan: {}; its file is damaged", broken.what());
  }
  return plan;
}

}  // namespace weft

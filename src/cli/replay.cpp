// `weft replay`: a recorded attention call again, compared with what it gave then and with fp64.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "base/check.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/copy_on_device.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/ragged_call.h"
#include "cli/recorded_call.h"
#include "cli/recorded_plan.h"
#include "cli/text_input.h"

namespace weft::cli {
namespace {

using namespace attention;

struct ReplayOptions {
  std::string folder, backend;
  bool bisect = false;
};

constexpr std::string_view kSameBits = "same bits", kOtherBits = "other bits";

struct Wrong {
  int64_t row;  // of q
  int head;
  std::string what;
};

// The CPU's kernels are for the instruction set that recorded them.
BuildOptions build_options(const RecordedCall& call, Device device) {
  if (device != Device::cpu() || call.is_of_a_card()) return {};
  return {.isa = call.isa()};
}

// One recorded call: its kernel on some device, its plan in a workspace, and outputs of its own.
class Replay {
 public:
  Replay(const RecordedCall& call, Device device)
      : call_(call),
        kernel_(build(call.spec, device, build_options(call, device))),
        rounding_(kernel_.impl().backend->rounding(call.spec, kernel_.impl().compute)),
        recorded_plan_(call),
        is_as_recorded_(kernel_.impl().target == call.target),
        plan_(is_as_recorded_ ? recorded_plan_.as_it_was(kernel_.impl().traits) : recorded_plan_.anew(kernel_)),
        workspace_(Device::cpu(), plan_.workspace_bytes()),
        tensors_(call.tensors()),
        o_bytes_(static_cast<size_t>(rows() * heads() * dim() * bits_of(call.spec.o_dtype) / 8)),
        lse_(static_cast<size_t>(call.spec.variant.use_softmax ? rows() * heads() : 0)),
        kv_len_(static_cast<size_t>(rows())) {
    plan_.upload(workspace_);
    // The plan's rows may stand in another order than those of q.
    const std::span rows_of_plan(part<PlanRow>(header().rows), static_cast<size_t>(header().rows.count));
    for (const PlanRow& row : rows_of_plan)
      kv_len_[static_cast<size_t>(row.q_row)] = part<int>(header().kv_len)[row.request];
    tensors_.o = TensorView(o_bytes_.data(), call.spec.o_dtype, {rows(), heads(), dim()});
    if (call.spec.variant.use_softmax) tensors_.lse = TensorView(lse_.data(), DType::fp32, {rows(), heads()});
  }

  const PlanHeader& header() const { return *static_cast<const PlanHeader*>(workspace_.data()); }
  const Rounding& rounding() const { return rounding_; }
  void run() {
    if (kernel_.impl().device == Device::cpu()) return kernel_.run(workspace_, tensors_);
    CopyOnDevice copy(kernel_.impl().device, tensors_);
    Workspace workspace(kernel_.impl().device, plan_.workspace_bytes());
    kernel_.run(plan_, copy.tensors(), workspace);
    copy.fetch_outputs();
  }

  // How o compares with the recorded one: "same bits", "other bits", or why there is nothing to compare with.
  std::string against_the_record() const {
    const RecordedTensor* o = call_.output("o");
    if (o == nullptr || (o->bytes.empty() && !o_bytes_.empty())) return "the recorded run did not end";
    if (!is_as_recorded_) return fmt::format("{} recorded it, {} ran it", call_.target, kernel_.impl().target);
    return std::string(o->bytes == o_bytes_ ? kSameBits : kOtherBits);
  }

  // The first state of the output beyond its bound, and the largest error over its bound.
  struct Judgement {
    std::optional<Wrong> wrong;
    double worst = 0;
  };
  Judgement judge_output(const MeasuredReference& expected, std::span<const int64_t> q_rows, int head_begin,
                         int head_end) const;
  Judgement judge_partial(const MeasuredReference& expected, const WorkItem& item) const;

  // Runs one item and no merge.
  void run_item(int item);

  template <class T>
  T* part(const Section& s) const {
    return section<T>(workspace_.data(), s);
  }

 private:
  int64_t rows() const { return plan_.impl().header().num_rows_q; }
  int64_t heads() const { return plan_.impl().header().num_qo_heads; }
  int64_t dim() const { return call_.spec.head_dim_vo; }
  void judge(Judgement& judgement, int64_t row, int head, const MeasuredReference& expected, const TensorView& o,
             int64_t o_offset, const float* lse) const;

  const RecordedCall& call_;
  AttentionKernel kernel_;
  Rounding rounding_;
  RecordedPlan recorded_plan_;
  bool is_as_recorded_;
  Plan plan_;
  Workspace workspace_;  // the CPU's, from which the plan is read
  AttentionTensors tensors_;
  std::vector<char> o_bytes_;
  std::vector<float> lse_;
  std::vector<int> kv_len_;  // of each row of q
};

// One state: dim values of `o` from o_offset on, and its lse where there is one.
void Replay::judge(Judgement& judgement, int64_t row, int head, const MeasuredReference& expected, const TensorView& o,
                   int64_t o_offset, const float* lse) const {
  AttentionSpec spec = call_.spec;
  spec.o_dtype = o.dtype();
  const int kv_len = kv_len_[static_cast<size_t>(row)];
  const auto state = static_cast<size_t>(row * heads() + head);
  const auto note = [&](double error, double bound, const std::string& what) {
    const double share = error == 0 ? 0 : error / bound;
    judgement.worst = std::max(judgement.worst, std::isnan(share) ? INFINITY : share);
    if (!(share <= 1) && !judgement.wrong) judgement.wrong = Wrong{row, head, what};
  };
  const ErrorBound error_bound(spec, rounding_);
  for (int64_t d = 0; d < dim(); ++d) {
    const double value = element(o, o_offset + d),
                 exact = expected.o[state * static_cast<size_t>(dim()) + static_cast<size_t>(d)];
    const size_t i = state * static_cast<size_t>(dim()) + static_cast<size_t>(d);
    const double bound = error_bound(kv_len, expected, i);
    note(std::isnan(exact) && std::isnan(value) ? 0 : std::abs(value - exact), bound,
         fmt::format("o[{}, {}, {}] = {:.6g}, reference {:.6g}, bound {:.2g}", row, head, d, value, exact, bound));
  }
  if (lse == nullptr) return;
  const double value = *lse, exact = expected.lse[state];
  const double bound = error_bound.of_lse(expected, state);
  note(value == exact ? 0 : std::abs(value - exact), bound,
       fmt::format("lse[{}, {}] = {:.6g}, reference {:.6g}, bound {:.2g}", row, head, value, exact, bound));
}

Replay::Judgement Replay::judge_output(const MeasuredReference& expected, std::span<const int64_t> q_rows,
                                       int head_begin, int head_end) const {
  Judgement judgement;
  for (const int64_t row : q_rows)
    for (int head = head_begin; head < head_end; ++head) {
      const int64_t state = row * heads() + head;
      const float* lse = lse_.empty() ? nullptr : &lse_[static_cast<size_t>(state)];
      judge(judgement, row, head, expected, tensors_.o, state * dim(), lse);
    }
  return judgement;
}

Replay::Judgement Replay::judge_partial(const MeasuredReference& expected, const WorkItem& item) const {
  const Unit& unit = part<Unit>(header().units)[item.unit];
  const int group = header().num_qo_heads / header().num_kv_heads;
  const int64_t unit_heads = int64_t{unit.kv_head_end - unit.kv_head_begin} * group;
  const int64_t states = (unit.row_end - unit.row_begin) * unit_heads;
  const float* data = part<float>(header().partial_data) + part<Partial>(header().partials)[item.partial].offset;
  const TensorView o(data, DType::fp32, {states, dim()});
  Judgement judgement;
  for (int64_t s = 0; s < states; ++s) {
    const int64_t row = part<PlanRow>(header().rows)[unit.row_begin + s / unit_heads].q_row;
    judge(judgement, row, static_cast<int>(unit.kv_head_begin * group + s % unit_heads), expected, o, s * dim(),
          lse_.empty() ? nullptr : data + states * dim() + s);
  }
  return judgement;
}

void Replay::run_item(int item) {
  plan_.upload(workspace_);
  int* indptr = part<int>(header().worker_indptr);
  std::fill(indptr, indptr + header().num_workers + 1, item + 1);
  indptr[0] = item;
  MergeGroup* groups = part<MergeGroup>(header().merge_groups);
  for (int64_t g = 0; g < header().merge_groups.count; ++g) groups[g].expected = INT_MAX;
  std::fill(o_bytes_.begin(), o_bytes_.end(), '\xff');  // NaN
  std::fill(lse_.begin(), lse_.end(), std::nanf(""));
  kernel_.run(workspace_, tensors_);
}

struct Found {
  int item;
  Wrong wrong;
};

// The first item, in the order of the plan, whose own state is wrong.
std::optional<Found> first_wrong_item(Replay& replay, const RaggedCall& ragged) {
  const PlanHeader& h = replay.header();
  const int group = h.num_qo_heads / h.num_kv_heads;
  for (int i = 0; i < h.items.count; ++i) {
    stop_if_interrupted();
    replay.run_item(i);
    const WorkItem item = replay.part<WorkItem>(h.items)[i];
    const Unit& unit = replay.part<Unit>(h.units)[item.unit];
    const PageList& list = replay.part<PageList>(h.page_lists)[unit.page_list];
    const PlanRow* rows = replay.part<PlanRow>(h.rows);
    std::vector<int64_t> q_rows;
    for (int row = unit.row_begin; row < unit.row_end; ++row) q_rows.push_back(rows[row].q_row);
    ReferenceScope scope;
    scope.row_begin = *std::min_element(q_rows.begin(), q_rows.end());
    scope.row_end = *std::max_element(q_rows.begin(), q_rows.end()) + 1;
    scope.partial = item.partial >= 0;
    scope.key_begin = list.first_pos + item.kv_begin;
    if (item.kv_end != kOpenEnd) scope.key_end = list.first_pos + item.kv_end;
    const MeasuredReference expected = ragged.reference(replay.rounding(), scope);
    const Replay::Judgement judgement =
        scope.partial ? replay.judge_partial(expected, item)
                      : replay.judge_output(expected, q_rows, unit.kv_head_begin * group, unit.kv_head_end * group);
    if (judgement.wrong) return Found{i, *judgement.wrong};
  }
  return {};
}

// What was asked for, else what recorded the call.
Device device_for(const ReplayOptions& options, const RecordedCall& call) {
  const Device device =
      require_device(options.backend.empty() ? call.is_of_a_card() ? "cuda" : "cpu" : options.backend, "--backend");
  check(device == Device::cpu() || !options.bisect, ErrorCode::unsupported,
        "--bisect: required work items one by one on {}, supported on cpu, missing {}; add --backend cpu",
        to_string(device), to_string(device));
  return device;
}

void replay(const ReplayOptions& options, Context& context) {
  const RecordedCall call = from_file([&] { return read_recorded_call(options.folder); });
  const Device device = device_for(options, call);
  Replay replay = from_file([&] { return Replay(call, device); });
  replay.run();
  const std::string recorded = replay.against_the_record();
  const RaggedCall ragged(call, replay.header());
  const PlanHeader& h = replay.header();
  std::vector<int64_t> q_rows(static_cast<size_t>(h.num_rows_q));
  std::iota(q_rows.begin(), q_rows.end(), int64_t{0});
  const Replay::Judgement judgement =
      replay.judge_output(ragged.reference(replay.rounding(), {}), q_rows, 0, h.num_qo_heads);
  std::optional<Found> found;
  if (options.bisect && judgement.wrong) found = first_wrong_item(replay, ragged);
  const bool right = !judgement.wrong && recorded != kOtherBits;
  if (!right) context.exit_code = kInternal;

  if (context.json) {
    nlohmann::json line{{"event", "done"},
                        {"items", h.items.count},
                        {"worst", judgement.worst},
                        {"recorded", recorded},
                        {"right", right}};
    if (judgement.wrong) line["first_wrong"] = judgement.wrong->what;
    if (found) line["item"] = found->item;
    return print_json(line);
  }
  print_out("{} requests, {} rows, {} items on {} workers\n", h.num_requests, h.num_rows_q, h.items.count,
            h.num_workers);
  print_out("against the record: {}\nagainst fp64: worst error {:.3g} of its bound\n", recorded, judgement.worst);
  if (judgement.wrong) print_out("wrong: {}\n", judgement.wrong->what);
  if (!options.bisect || !judgement.wrong) return;
  if (!found) return print_out("every item is right by itself: a merge, or two items at once, went wrong\n");
  const WorkItem& item = replay.part<WorkItem>(h.items)[found->item];
  print_out("first wrong item: {} of unit {}, keys [{}, {})\nfirst wrong row in it: {}\n", found->item, item.unit,
            item.kv_begin, item.kv_end == kOpenEnd ? "end" : fmt::format("{}", item.kv_end), found->wrong.what);
}

}  // namespace

void add_replay(Program& program, Context& context) {
  Verb verb = program.verb("replay", "Run a recorded attention call again and compare it with fp64");
  auto options = std::make_shared<ReplayOptions>();
  verb.option("folder", options->folder, "One call's folder below that of WEFT_RECORD").required().type_name("DIR");
  verb.option("--backend", options->backend, "What runs it: cpu, cuda or cuda:N; default: what recorded it");
  verb.flag("--bisect", options->bisect, "Find the first wrong work item, each run by itself");
  verb.example("WEFT_RECORD=calls weft run model.gguf -p Hi && weft replay calls/* --bisect");
  verb.runs([options, &context] { replay(*options, context); });
}

}  // namespace weft::cli

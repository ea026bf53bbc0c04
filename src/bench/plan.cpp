// `weft bench plan`: what planning a step costs, with and without each check and copy, and how evenly it deals.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "base/check.h"
#include "bench/measure.h"
#include "bench/timing.h"

namespace weft::bench {
namespace {

// Decode requests over a paged cache, 32 query and 8 KV heads.
struct Step {
  static constexpr int kPageSize = 16;
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_ids, last_page_len;
  PlanInput input;

  Step(const std::vector<int>& lengths, int workers) {
    for (const int kv : lengths) {
      qo_indptr.push_back(qo_indptr.back() + 1);
      page_indptr.push_back(page_indptr.back() + (kv + kPageSize - 1) / kPageSize);
      last_page_len.push_back((kv - 1) % kPageSize + 1);
    }
    page_ids.resize(static_cast<size_t>(page_indptr.back()));
    std::iota(page_ids.begin(), page_ids.end(), 0);
    std::shuffle(page_ids.begin(), page_ids.end(), std::mt19937(1));
    input.num_qo_heads = 32;
    input.num_kv_heads = 8;
    input.qo_indptr = qo_indptr;
    input.pages = {kPageSize, static_cast<int64_t>(page_ids.size()), page_indptr, page_ids, last_page_len};
    input.num_workers = workers;
  }
};

KernelTraits decode_traits(Mask mask = Mask::none) {
  return cpu_traits({.q_dtype = DType::bf16,
                     .kv_dtype = DType::bf16,
                     .o_dtype = DType::bf16,
                     .head_dim_qk = 128,
                     .head_dim_vo = 128,
                     .mask = mask},
                    current_isa());
}

std::vector<int> lengths_of(const std::string& kind, int requests) {
  std::mt19937 random(7);
  std::vector<int> lengths(static_cast<size_t>(requests), 1024);
  if (kind == "uniform")
    for (int& n : lengths) n = 512 + static_cast<int>(random() % 1025);
  if (kind == "zipf") {
    double sum = 0;
    for (int i = 0; i < requests; ++i) sum += 1.0 / (i + 1);
    for (int i = 0; i < requests; ++i) lengths[i] = std::max(1, static_cast<int>(1024.0 * requests / sum / (i + 1)));
    std::shuffle(lengths.begin(), lengths.end(), random);
  }
  if (kind == "one 128k") lengths[lengths.size() / 2] = 131072;
  return lengths;
}

void time_planning(const BenchOptions& options, BenchReport& report) {
  report.note("plan: time beside that of the paper's Algorithm 1 over the same lengths, in the same run");
  const double seconds = options.quick ? 0.05 : 0.3;
  const KernelTraits traits = decode_traits();
  for (const auto& [kind, kv] : {std::pair<std::string, int>{"1024", 1024}, {"4096", 4096}, {"uniform", 0}}) {
    std::vector<int> lengths(256, kv);
    if (kv == 0) lengths = lengths_of(kind, 256);
    Step step(lengths, 132);
    const auto time = [&] {
      return time_runs([&] { (void)Planner::plan(traits, step.input); }, 100, seconds).median_s * 1e6;
    };
    step.input.borrow_page_ids = true;
    step.input.mode = PlanMode::paper;
    const double paper = time();
    step.input.mode = PlanMode::balanced;
    const std::string name = fmt::format("256 decode requests, kv {}, page 16, 132 workers", kind);
    report.add({"plan", name, "plan, page ids borrowed", time(), "us", paper});
    const PageTableView unchecked = step.input.pages;
    PageTable table(Step::kPageSize, unchecked.num_pages);
    std::vector<PageTable::RequestId> requests;
    for (const int length : lengths) table.append(requests.emplace_back(table.add()), length);
    step.input.pages = table.view(requests);
    report.add({"plan", name, "plan, page ids borrowed and not checked", time(), "us", paper});
    step.input.borrow_page_ids = false;
    report.add({"plan", name, "plan, page ids copied and not checked", time(), "us", paper});
    step.input.pages = unchecked;
    report.add({"plan", name, "plan, page ids copied", time(), "us", paper});

    const Plan plan = Planner::plan(traits, step.input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    std::vector<char> copy(plan.impl().bytes.size());
    const double floor =
        time_runs([&] { std::memcpy(copy.data(), plan.impl().bytes.data(), copy.size()); }, 100, seconds).median_s;
    const double upload = time_runs([&] { plan.upload(workspace); }, 100, seconds).median_s;
    report.add({"plan", name, "upload", static_cast<double>(copy.size()) / upload / 1e9, "GB/s",
                static_cast<double>(copy.size()) / floor / 1e9});
  }
  // A long prefill: units outnumber workers, tiles are dealt.
  Step prefill({16384}, 132);
  prefill.qo_indptr = {0, 16384};
  prefill.input.qo_indptr = prefill.qo_indptr;
  const KernelTraits causal = decode_traits(Mask::causal);
  const auto time = [&](PlanMode mode) {
    prefill.input.mode = mode;
    return time_runs([&] { (void)Planner::plan(causal, prefill.input); }, 20, seconds).median_s * 1e6;
  };
  const double paper = time(PlanMode::paper);
  report.add({"plan", "16384 causal prefill, 132 workers", "plan", time(PlanMode::balanced), "us", paper});
}

void measure_balance(const BenchOptions& options, BenchReport& report) {
  report.note("plan: lower bound over makespan at the worst of the worker counts 1 to 264; ceiling 1");
  const KernelTraits traits = decode_traits();
  const std::vector<int> sizes = options.quick ? std::vector<int>{16, 256} : std::vector<int>{16, 32, 64, 128, 256};
  for (const char* kind : {"constant", "uniform", "zipf", "one 128k"})
    for (const int requests : sizes)
      for (const PlanMode mode : {PlanMode::balanced, PlanMode::paper}) {
        Step step(lengths_of(kind, requests), 1);
        step.input.mode = mode;
        step.input.borrow_page_ids = true;
        double worst = 1;
        for (int workers = 1; workers <= 264; workers += options.quick ? 7 : 1) {
          step.input.num_workers = workers;
          const Plan plan = Planner::plan(traits, step.input);
          worst = std::min(worst, plan.lower_bound() / plan.makespan());
        }
        report.add({"plan", fmt::format("{} lengths, {} requests, {}", kind, requests, to_string(mode)), "evenness",
                    worst, "", 1});
      }
}

}  // namespace

void measure_plan(const BenchOptions& options, BenchReport& report) {
  if (options.fit) {
    check(options.device == Device::cpu(), ErrorCode::unsupported,
          "bench plan --fit --device {}: required items timed on a card, supported is cpu, missing them",
          to_string(options.device));
    return measure_plan_fit(options, report);
  }
  if (options.device != Device::cpu()) return measure_plan_on_card(options, report);
  time_planning(options, report);
  measure_balance(options, report);
}

}  // namespace weft::bench

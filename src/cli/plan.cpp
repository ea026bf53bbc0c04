// `weft plan`: who computes what, for lengths given on the command line, or of a model (plan_model.h). No tensor is
// needed.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "base/check.h"
#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/plan_model.h"

namespace weft::cli {
namespace {

struct PlanOptions {
  std::vector<int> qo{1}, kv{4096};
  int num_qo_heads = 32, num_kv_heads = 8, head_dim = 128, page_size = 16, num_workers = 0;
  int window_left = -1, fixed_split_size = 0, prefix = 0;
  bool causal = false;
  std::string mode = "balanced", svg, model, print;
  int rows = 1;
};

PlanMode mode_of(const std::string& name) {
  for (const PlanMode mode :
       {PlanMode::balanced, PlanMode::paper, PlanMode::fixed_split, PlanMode::no_split, PlanMode::even})
    if (to_string(mode) == name) return mode;
  fail(ErrorCode::invalid_argument, "mode {}: names no mode; allowed are balanced, paper, fixed_split, no_split, even",
       name);
}

// The kernel whose classes and costs the plan is for: bf16 on this machine.
KernelTraits traits_of(const PlanOptions& options) {
  AttentionSpec spec{.q_dtype = DType::bf16,
                     .kv_dtype = DType::bf16,
                     .o_dtype = DType::bf16,
                     .head_dim_qk = options.head_dim,
                     .head_dim_vo = options.head_dim,
                     .mask = options.causal ? Mask::causal : Mask::none,
                     .sliding_window = options.window_left != -1};
  validate(spec);
  return cpu_traits(spec, current_isa());
}

// One length for all requests, or one for each.
void repeat(std::vector<int>& lengths, size_t requests) {
  if (lengths.size() == 1) lengths.resize(requests, lengths.front());
}

void plan(PlanOptions options, const Context& context) {
  repeat(options.qo, options.kv.size());
  repeat(options.kv, options.qo.size());
  check(options.qo.size() == options.kv.size(), ErrorCode::invalid_argument,
        "--qo has {} lengths, --kv has {}; give one of each for every request, or one for all", options.qo.size(),
        options.kv.size());
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, last_page_len;
  int64_t rows = 0, pages = 0;
  for (size_t r = 0; r < options.qo.size(); ++r) {
    const int qo = options.qo[r], kv = options.kv[r];
    rows += qo;
    pages += (int64_t{kv} + options.page_size - 1) / options.page_size;
    check(rows <= 1 << 28 && pages <= 1 << 28, ErrorCode::invalid_argument,
          "request {}: {} query tokens and {} pages up to here; at most {} of either are planned at once", r, rows,
          pages, 1 << 28);
    qo_indptr.push_back(static_cast<int32_t>(rows));
    page_indptr.push_back(static_cast<int32_t>(pages));
    last_page_len.push_back(kv == 0 ? 0 : (kv - 1) % options.page_size + 1);
  }
  std::vector<int32_t> page_ids(static_cast<size_t>(pages));
  std::iota(page_ids.begin(), page_ids.end(), 0);
  const int prefix_pages = options.prefix / options.page_size;
  for (size_t r = 1; r < options.kv.size(); ++r) {
    const int shared = std::min(prefix_pages, page_indptr[r + 1] - page_indptr[r]);
    std::iota(page_ids.begin() + page_indptr[r], page_ids.begin() + page_indptr[r] + shared, 0);
  }
  PlanInput input;
  input.num_qo_heads = options.num_qo_heads;
  input.num_kv_heads = options.num_kv_heads;
  input.qo_indptr = qo_indptr;
  input.pages = {options.page_size, pages, page_indptr, page_ids, last_page_len};
  input.num_workers = options.num_workers;
  input.mode = mode_of(options.mode);
  input.fixed_split_size = options.fixed_split_size;
  if (options.window_left != -1) input.scalars = {{"window_left", static_cast<double>(options.window_left)}};

  const KernelTraits traits = traits_of(options);
  stop_if_interrupted();
  const SharedLevels shared = Planner::shared_levels(traits, input);
  input = shared.apply(input);
  stop_if_interrupted();
  const Plan result = Planner::plan(traits, input);
  stop_if_interrupted();
  verify(result);
  // The median of a few more: the first one allocates what the others use again.
  std::vector<double> seconds;
  for (const auto start = Clock::now(); seconds.size() < 11 && (seconds.empty() || seconds_since(start) < 1);) {
    stop_if_interrupted();
    seconds.push_back(seconds_of([&] { const Plan again = Planner::plan(traits, input); }));
  }
  stop_if_interrupted();
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  const double plan_us = seconds[seconds.size() / 2] * 1e6;

  if (!options.svg.empty()) write_svg(options.svg, result.to_svg());
  if (context.json)
    return print_json({{"workers", result.num_workers()},
                       {"levels", std::max(1, shared.num_levels())},
                       {"items", result.num_items()},
                       {"partials", result.num_partials()},
                       {"makespan", result.makespan()},
                       {"lower_bound", result.lower_bound()},
                       {"workspace_bytes", result.workspace_bytes()},
                       {"plan_us", plan_us}});
  print_out("{}\nplanned in {:.1f} us, page ids checked and copied\n", result.to_string(), plan_us);
}

bool is_count(double count) { return count >= 0; }

using NamedOptions = std::vector<std::pair<std::string, Option>>;

// Of an attention call.
void add_call(Verb& verb, PlanOptions& options, NamedOptions& all) {
  const auto add = [&](const std::string& name, auto& value, const std::string& help) -> Option& {
    return all.emplace_back(name, verb.option(name, value, help)).second;
  };
  add("--qo", options.qo, "Query tokens of each request, or of all")
      .type_name("N,N,...")
      .allows("0 and more", is_count);
  add("--kv", options.kv, "KV tokens of each request, or of all").type_name("N,N,...").allows("0 and more", is_count);
  add("--num-qo-heads", options.num_qo_heads, "Query heads");
  add("--num-kv-heads", options.num_kv_heads, "KV heads, a divisor of the query heads");
  add("--head-dim", options.head_dim, "Elements of a head");
  add("--page-size", options.page_size, "Tokens of a page").allows("1 and more", [](double tokens) {
    return tokens >= 1;
  });
  all.emplace_back("--causal", verb.flag("--causal", options.causal, "A query sees no key after it"));
  add("--window-left", options.window_left, "A query sees this many keys before it; -1: all")
      .allows("-1 (all) and more", [](double keys) { return keys >= -1; });
  add("--prefix", options.prefix,
      "Leading KV tokens that all requests share, in whole pages; a level of their own where that pays")
      .allows("0 and more", is_count);
  add("--mode", options.mode, "balanced, paper, fixed_split, no_split or even");
  add("--fixed-split-size", options.fixed_split_size, "fixed_split: tokens of a chunk");
}

// An option that nothing reads is a mistake.
void check_together(const PlanOptions& options, const NamedOptions& of_call, const Option& rows) {
  const bool has_model = !options.model.empty(), prints = !options.print.empty();
  for (const auto& [name, option] : of_call)
    check(!has_model || !option.given(), ErrorCode::invalid_argument,
          "{} with a model: it is of an attention call; allowed are --num-workers, --svg, --print and --rows", name);
  check(has_model || !prints, ErrorCode::invalid_argument, "--print {}: needs a model, a GGUF file; give one",
        options.print);
  check(prints || !rows.given(), ErrorCode::invalid_argument,
        "--rows {} without --print cuda: nothing else is of some rows; leave it out", options.rows);
  check(!prints || options.svg.empty(), ErrorCode::invalid_argument,
        "--svg {} with --print {}: one of them is shown; give that alone", options.svg, options.print);
}

}  // namespace

void add_plan(Program& program, Context& context) {
  Verb verb =
      program.verb("plan", "Show who computes what: in an attention call of these lengths, or in a model's step");
  auto options = std::make_shared<PlanOptions>();
  verb.option("model", options->model,
              "A GGUF file: who streams which of its weights in a fused step; with --num-workers, --svg, --print and "
              "--rows alone")
      .type_name("MODEL")
      .filled();
  verb.option("--num-workers", options->num_workers, "Workers; 0: the threads of this machine")
      .allows("0 (the threads of this machine) and more", is_count);
  verb.option("--svg", options->svg, "Draw workers over cost, or over weights, into this file")
      .type_name("FILE")
      .filled();
  verb.option("--print", options->print,
              "cuda: the text of the kernel that a card of so many multiprocessors (--num-workers; 0: 132) runs")
      .one_of({"cuda"});
  const Option rows = verb.option("--rows", options->rows, "With --print: rows of its steps, at most").range(1, 8);
  auto of_call = std::make_shared<NamedOptions>();
  add_call(verb, *options, *of_call);
  verb.example("weft plan --qo 1,1,512 --kv 4096,100,512 --num-workers 4 --causal --svg plan.svg");
  verb.runs([options, of_call, rows, &context] {
    check_together(*options, *of_call, rows);
    if (options->model.empty()) return plan(*options, context);
    plan_model({.model = options->model,
                .num_workers = options->num_workers,
                .svg = options->svg,
                .print = options->print,
                .rows = options->rows},
               context);
  });
}

}  // namespace weft::cli

// Attention over a paged cache, pages of 16 tokens in random order.
#include "weft/attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "contestants.h"

namespace contest {
namespace {

using namespace weft;

constexpr int kPage = 16;

// Random numbers of about [-1, 1]: one block of them, again and again, since a large cache must fill quickly.
Workspace random_memory(DType dtype, int64_t count) {
  constexpr size_t kBlock = size_t{1} << 20;
  std::mt19937 random(1);
  std::vector<uint32_t> block(kBlock / 4);
  for (uint32_t& word : block) {
    const auto bits = static_cast<uint32_t>(random());
    // A sign, an exponent of 2^-1 to 2^-4, a random mantissa; two of them in a word when they are bf16.
    const uint32_t high = (bits & 0x807fffff) | (123 + (bits >> 23 & 3)) << 23;
    word = dtype == DType::bf16 ? (high & 0xffff0000) | high >> 16 : high;
  }
  const auto bytes = static_cast<size_t>(count * bits_of(dtype) / 8);
  Workspace memory(Device::cpu(), bytes);
  for (size_t begin = 0; begin < bytes; begin += kBlock)
    std::memcpy(static_cast<char*>(memory.data()) + begin, block.data(), std::min(kBlock, bytes - begin));
  return memory;
}

struct Call {
  Workspace q, k, v, o, plan;
  AttentionTensors tensors;
};

struct Attention {
  WorkerTeam team;
  AttentionKernel kernel;
  std::vector<Call> calls;  // taken in turn, so that no cache line is still there when its call comes again
  size_t next = 0;

  explicit Attention(int threads) : team(threads) {}
  void run() {
    Call& call = calls[next++ % calls.size()];
    kernel.run(call.plan, call.tensors, Stream::cpu(team));
  }
};

// Lengths and pages of a row's step, and their arrays.
struct Step {
  int64_t pages = 0;
  std::vector<int32_t> qo_indptr, page_indptr, page_indices, last_page_len;
  PlanInput input;

  Step(const json& row, int num_workers) {
    const int64_t batch = row.at("batch"), qo_len = row.at("qo_len"), kv_len = row.at("kv_len");
    const int64_t pages_each = (kv_len + kPage - 1) / kPage;
    pages = batch * pages_each;
    for (int64_t r = 0; r <= batch; ++r) {
      qo_indptr.push_back(static_cast<int32_t>(r * qo_len));
      page_indptr.push_back(static_cast<int32_t>(r * pages_each));
    }
    last_page_len.assign(static_cast<size_t>(batch), static_cast<int32_t>(kv_len - (pages_each - 1) * kPage));
    page_indices.resize(static_cast<size_t>(pages));
    std::iota(page_indices.begin(), page_indices.end(), 0);
    std::shuffle(page_indices.begin(), page_indices.end(), std::mt19937(1));
    input.num_qo_heads = row.at("qo_heads");
    input.num_kv_heads = row.at("kv_heads");
    input.qo_indptr = qo_indptr;
    input.pages = {.page_size = kPage,
                   .num_pages = pages,
                   .kv_page_indptr = page_indptr,
                   .kv_page_indices = page_indices,
                   .kv_last_page_len = last_page_len};
    input.num_workers = num_workers;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
};

AttentionKernel kernel_of(const json& row) {
  const DType dtype = dtype_from_string(row.at("dtype").get<std::string>());
  AttentionSpec spec{.q_dtype = dtype, .kv_dtype = dtype, .o_dtype = dtype};
  spec.head_dim_qk = spec.head_dim_vo = row.at("head_dim");
  spec.mask = row.at("qo_len") > 1 ? Mask::causal : Mask::none;
  if (row.value("soft_cap", false)) spec.variant = variants::logits_soft_cap();
  return build(spec, Device::cpu());
}

}  // namespace

Reading weft_attention(const json& row) {
  const DType dtype = dtype_from_string(row.at("dtype").get<std::string>());
  const int64_t rows = row.at("batch").get<int64_t>() * row.at("qo_len").get<int64_t>();
  const int64_t qo_heads = row.at("qo_heads"), kv_heads = row.at("kv_heads"), head_dim = row.at("head_dim");

  const auto attention = std::make_shared<Attention>(row.at("threads").get<int>());
  attention->kernel = kernel_of(row);
  const Step step(row, attention->team.num_workers());
  const Plan plan = attention->kernel.plan(step.input);

  for (int64_t copies = row.at("copies"); copies > 0; --copies) {
    Call& call = attention->calls.emplace_back();
    const auto make = [dtype](Workspace& memory, std::initializer_list<int64_t> shape) {
      memory = random_memory(dtype, TensorView(nullptr, dtype, shape).size());
      return TensorView(memory.data(), dtype, shape);
    };
    call.tensors.q = make(call.q, {rows, qo_heads, head_dim});
    call.tensors.kv.k = make(call.k, {step.pages, kPage, kv_heads, head_dim});
    call.tensors.kv.v = make(call.v, {step.pages, kPage, kv_heads, head_dim});
    call.tensors.o = make(call.o, {rows, qo_heads, head_dim});
    if (row.value("soft_cap", false)) call.tensors.scalars = {{"cap", 30.0}};
    call.plan = Workspace(Device::cpu(), plan.workspace_bytes());
    plan.upload(call.plan);
  }
  attention->run();
  return [attention] { return mean_seconds([&] { attention->run(); }); };
}

Reading weft_plan(const json& row) {
  const auto kernel = std::make_shared<AttentionKernel>(kernel_of(row));
  const auto step = std::make_shared<Step>(row, row.at("threads").get<int>());
  return [kernel, step] { return mean_seconds([&] { kernel->plan(step->input); }); };
}

}  // namespace contest

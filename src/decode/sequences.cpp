#include "decode/sequences.h"

#include <array>

#include "base/check.h"
#include "device/memory.h"

namespace weft::decode {
namespace {

constexpr int64_t kShareAhead = 8;

// A scale that is not there is an empty view.
std::array<const TensorView*, 4> sides_of(const KvCache& cache) {
  return {&cache.k, &cache.v, &cache.k_scale, &cache.v_scale};
}

int64_t page_bytes(const TensorView& side) { return side.stride(0) * bits_of(side.dtype()) / 8; }

// Every sequence may leave a page partly used, so each gets one beyond the tokens.
int64_t pages_of(const ForwardOptions& options) {
  check(options.page_size >= 1 && options.page_size <= 1 << 20, ErrorCode::invalid_argument,
        "page_size = {}; allowed are 1 to {}", options.page_size, 1 << 20);
  check(options.max_tokens >= 1 && options.max_tokens <= int64_t{1} << 31, ErrorCode::invalid_argument,
        "max_tokens = {}; allowed are 1 to {}", options.max_tokens, int64_t{1} << 31);
  check(options.max_sequences >= 1 && options.max_sequences <= 1 << 20, ErrorCode::invalid_argument,
        "max_sequences = {}; allowed are 1 to {}", options.max_sequences, 1 << 20);
  return (options.max_tokens + options.page_size - 1) / options.page_size + options.max_sequences;
}

}  // namespace

Sequences::Sequences(const ModelConfig& config, const ForwardOptions& options, DType kv_dtype)
    : table_(options.page_size, pages_of(options)),
      max_sequences_(options.max_sequences),
      context_length_(config.context_length),
      num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      dtype_(kv_dtype),
      scaled_(bits_of(kv_dtype) <= 8) {
  pool_ = Workspace(options.device, bytes_per_token() * static_cast<size_t>(table_.num_pages() * table_.page_size()));
}

size_t Sequences::bytes_per_token() const {
  const int64_t head_bytes = int64_t{head_dim_} * bits_of(dtype_) / 8 + (scaled_ ? int64_t{sizeof(float)} : 0);
  return static_cast<size_t>(2 * num_layers_ * num_kv_heads_ * head_bytes);
}

PageTable::RequestId Sequences::request(Id sequence) const {
  const auto found = requests_.find(sequence);
  check(found != requests_.end(), ErrorCode::invalid_argument,
        "sequence {} does not exist; use what add_sequence or fork returned and release did not end", sequence);
  return found->second;
}

void Sequences::check_room() const {
  check(requests_.size() < static_cast<size_t>(max_sequences_), ErrorCode::context_full,
        "all {} sequences are in use; release one, or raise max_sequences", max_sequences_);
}

// Its place first: where there is no memory for that, no pages are taken.
Sequences::Id Sequences::put(const std::function<PageTable::RequestId()>& make) {
  check_room();
  const auto placed = requests_.try_emplace(next_id_).first;
  try {
    placed->second = make();
  } catch (...) {
    requests_.erase(placed);
    throw;
  }
  return next_id_++;
}

Sequences::Id Sequences::add() {
  return put([&] { return table_.add(); });
}

Sequences::Id Sequences::add(std::span<const int32_t> pages) {
  const int64_t tokens = static_cast<int64_t>(pages.size()) * table_.page_size();
  check(tokens <= context_length_, ErrorCode::context_full,
        "add_sequence: {} pages are {} tokens; the model's context is {}: give fewer", pages.size(), tokens,
        context_length_);
  const Id added = put([&] { return table_.add(pages); });
  ++num_shares_;
  return added;
}

Sequences::Id Sequences::fork(Id sequence, int64_t tokens) {
  const Id forked = put([&] {
    const PageTable::Fork fork = table_.fork(request(sequence), tokens);
    try {
      copy_slots(fork);
    } catch (...) {
      table_.release(fork.request);
      throw;
    }
    return fork.request;
  });
  ++num_shares_;
  return forked;
}

// A last page that is cut may have other holders too: what is appended next must not be written there, so the sequence
// goes on with a copy.
void Sequences::truncate(Id sequence, int64_t tokens) {
  const PageTable::RequestId old = request(sequence);
  const bool cuts = tokens >= 0 && tokens % table_.page_size() != 0 && tokens < table_.length(old);
  if (!cuts || table_.num_holders(table_.pages(old)[static_cast<size_t>(tokens / table_.page_size())]) == 1) {
    table_.truncate(old, tokens);
    return;
  }
  const PageTable::Fork forked = table_.fork(old, tokens);
  copy_slots(forked);
  table_.release(old);
  requests_[sequence] = forked.request;
}

void Sequences::release(Id sequence) {
  table_.release(request(sequence));
  requests_.erase(sequence);
}

void Sequences::append(Id sequence, int64_t tokens) {
  const int64_t old = length(sequence);
  check(old + tokens <= context_length_, ErrorCode::context_full,
        "sequence {} holds {} tokens and {} more are given; the model's context is {}: give fewer, or start a new "
        "sequence",
        sequence, old, tokens, context_length_);
  table_.append(request(sequence), tokens);
}

// In rounds of a huge page of every tensor, for a page's bytes lie in all of them; a tensor a call.
bool Sequences::prefault() {
  const int64_t pages = table_.num_pages(), used = pages - table_.num_fresh_pages();
  if (backed_tensors_ == 0) backed_pages_ = std::max(backed_pages_, used);  // those have been written
  const KvCache cache = layer(backed_tensors_ / 4);
  const int64_t round = std::max<int64_t>(int64_t{device::kHugePage} / page_bytes(cache.k), 1);
  if (backed_pages_ + round > std::min(used + pages / kShareAhead, pages)) return false;
  const TensorView side = *sides_of(cache)[static_cast<size_t>(backed_tensors_ % 4)];
  if (side && !device::prefault(pool_.device(), side.select(0, backed_pages_).data(),
                                static_cast<size_t>(round * page_bytes(side))))
    return false;
  if (++backed_tensors_ == 4 * num_layers_) {
    backed_tensors_ = 0;
    backed_pages_ += round;
  }
  return true;
}

void Sequences::copy_slots(const PageTable::Fork& fork) {
  if (fork.copied_slots == 0) return;
  for (int index = 0; index < num_layers_; ++index) {
    const KvCache cache = layer(index);
    for (const TensorView* side : sides_of(cache)) {
      if (!*side) continue;
      const TensorView from = side->select(0, fork.source_page), to = side->select(0, fork.target_page);
      device::copy(pool_.device(), to.data(), from.data(),
                   static_cast<size_t>(fork.copied_slots * from.stride(0) * bits_of(from.dtype()) / 8));
    }
  }
}

KvCache Sequences::layer(int index) const {
  const std::array<int64_t, 4> shape{table_.num_pages(), table_.page_size(), num_kv_heads_, head_dim_},
      scale_shape{shape[0], shape[1], shape[2], 1};
  const int64_t rows = shape[0] * shape[1] * shape[2], side = rows * head_dim_ * bits_of(dtype_) / 8,
                scales = scaled_ ? rows * static_cast<int64_t>(sizeof(float)) : 0;
  char* base = static_cast<char*>(pool_.data()) + 2 * index * (side + scales);
  const Device device = pool_.device();
  KvCache cache(TensorView(base, dtype_, shape, device), TensorView(base + side, dtype_, shape, device));
  if (!scaled_) return cache;
  cache.k_scale = TensorView(base + 2 * side, DType::fp32, scale_shape, device);
  cache.v_scale = TensorView(base + 2 * side + scales, DType::fp32, scale_shape, device);
  return cache;
}

void Sequences::View::clear() {
  indptr_.assign(1, 0);
  indices_.clear();
  last_page_len_.clear();
}

void Sequences::View::add(const Sequences& sequences, Id sequence, int64_t length) {
  page_size_ = sequences.table_.page_size();
  num_pages_ = sequences.table_.num_pages();
  const std::span<const int32_t> pages = sequences.table_.pages(sequences.request(sequence));
  const int64_t count = (length + page_size_ - 1) / page_size_;
  ensure(count <= static_cast<int64_t>(pages.size()), "a view of {} tokens over {} pages", length, pages.size());
  indices_.insert(indices_.end(), pages.begin(), pages.begin() + count);
  indptr_.push_back(static_cast<int32_t>(indices_.size()));
  last_page_len_.push_back(static_cast<int32_t>(length - (count > 0 ? count - 1 : 0) * page_size_));
}

PageTableView Sequences::View::get() const {
  return {.page_size = page_size_,
          .num_pages = num_pages_,
          .kv_page_indptr = indptr_,
          .kv_page_indices = indices_,
          .kv_last_page_len = last_page_len_};
}

}  // namespace weft::decode

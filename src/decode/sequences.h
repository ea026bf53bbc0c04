// The sequences of a forward pass: their pages, and the pool of keys and values of every layer, on the forward pass's
// device.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "weft/attention.h"
#include "weft/model.h"

namespace weft::decode {

class Sequences {
 public:
  using Id = ForwardPass::SequenceId;
  Sequences(const ModelConfig& config, const ForwardOptions& options, DType kv_dtype);

  Id add();
  Id add(std::span<const int32_t> pages);
  Id fork(Id sequence, int64_t tokens);
  void truncate(Id sequence, int64_t tokens);
  void release(Id sequence);
  int64_t length(Id sequence) const { return table_.length(request(sequence)); }
  // Room for `tokens` more. Throws Error(context_full) and changes nothing.
  void append(Id sequence, int64_t tokens);
  // Gives back what append added last.
  void take_back(Id sequence, int64_t tokens) { table_.truncate(request(sequence), length(sequence) - tokens); }

  std::span<const int32_t> pages(Id sequence) const { return table_.pages(request(sequence)); }
  void hold(std::span<const int32_t> pages) { table_.hold(pages); }
  void unhold(std::span<const int32_t> pages) { table_.unhold(pages); }
  int page_size() const { return table_.page_size(); }
  int64_t num_pages() const { return table_.num_pages(); }
  int64_t num_free_pages() const { return table_.num_free_pages(); }

  // Has the system back memory of pages that come next, an eighth of the pool ahead of those in use; a huge page or two
  // a call. False: so much is backed, or the system does not back ahead.
  bool prefault();

  // How often sequences have begun with pages of others, so far.
  int64_t num_shares() const { return num_shares_; }

  // The tables of sequences as if they held `lengths` tokens, no more than they do.
  class View {
   public:
    void clear();
    void add(const Sequences& sequences, Id sequence, int64_t length);
    PageTableView get() const;

   private:
    int page_size_ = 0;
    int64_t num_pages_ = 0;
    std::vector<int32_t> indptr_{0}, indices_, last_page_len_;
  };

  KvCache layer(int index) const;  // [pages, page_size, kv heads, dim], narrow ones with a scale a token and head
  size_t bytes_per_token() const;  // of all layers

 private:
  PageTable::RequestId request(Id sequence) const;
  void check_room() const;  // for one sequence more
  Id put(const std::function<PageTable::RequestId()>& make);
  void copy_slots(const PageTable::Fork& fork);

  PageTable table_;
  Workspace pool_;
  std::unordered_map<Id, PageTable::RequestId> requests_;
  Id next_id_ = 0;
  int64_t num_shares_ = 0;
  int64_t backed_pages_ = 0;  // of every tensor of the pool,
  int backed_tensors_ = 0;    // and of the first so many a round more
  int max_sequences_, context_length_, num_layers_, num_kv_heads_, head_dim_;
  DType dtype_;
  bool scaled_;
};

}  // namespace weft::decode

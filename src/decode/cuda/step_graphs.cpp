#include "decode/cuda/step_graphs.h"

#include <algorithm>

#include "base/env.h"
#include "decode/step_attention.h"

namespace weft::decode {
namespace {

constexpr size_t kMostGraphs = 16;  // the least recent one goes

}  // namespace

void StepGraphs::run(const Form& form, const std::function<void()>& work) {
  const bool is_watched = env::record_dir() || env::trace_file();
  if (is_watched || form.rows > kMostRowsOfGraphs || form.wanted != form.rows) return work();
  const auto found = std::ranges::find(entries_, form, &Entry::form);
  if (found == entries_.end()) {
    if (entries_.size() == kMostGraphs) entries_.erase(entries_.begin());
    entries_.push_back({form, {}});
    return work();
  }
  std::rotate(found, found + 1, entries_.end());
  Entry& entry = entries_.back();
  if (!entry.graph) entry.graph = cuda::capture(card_, stream_, work);
  cuda::launch(entry.graph, stream_);
}

}  // namespace weft::decode

#include "serve/request_state.h"

#include <algorithm>

namespace weft::serve {

std::vector<int32_t> RequestState::tokens(const Choice& choice, int64_t begin, int64_t count) const {
  std::vector<int32_t> all;
  all.reserve(static_cast<size_t>(count));
  const int64_t end = begin + count, prompt_end = std::min(end, prompt_size());
  if (begin < prompt_end) all.assign(request.prompt.begin() + begin, request.prompt.begin() + prompt_end);
  const int64_t from = std::max(begin, prompt_size()) - prompt_size();
  if (end > prompt_size())
    all.insert(all.end(), choice.output.begin() + from, choice.output.begin() + (end - prompt_size()));
  return all;
}

Choice* RequestState::trunk() {
  const auto found = std::find_if(choices.begin(), choices.end(), [](const Choice& c) { return !c.done; });
  return found == choices.end() ? nullptr : &*found;
}

bool RequestState::done() const {
  return std::all_of(choices.begin(), choices.end(), [](const Choice& c) { return c.done; });
}

int64_t RequestState::most_pages(int page_size) const {
  const int64_t shared = prompt_size() / page_size;
  const int64_t own = pages_of(prompt_size() + max_tokens, page_size) - shared;
  return shared + own * static_cast<int64_t>(choices.size());
}

}  // namespace weft::serve

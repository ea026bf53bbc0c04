#include "device/cuda/clamped.h"

#include <map>
#include <mutex>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

namespace weft::cuda {
namespace {

std::mutex mutex;
std::map<int, unsigned*>& flags() {
  static auto* const all = new std::map<int, unsigned*>;  // as long as the process
  return *all;
}
unsigned* flag_of(const Card& card) {
  const std::lock_guard lock(mutex);
  const auto found = flags().find(card.index());
  return found == flags().end() ? nullptr : found->second;
}

}  // namespace

unsigned* clamped_flag(Card& card) {
  if (unsigned* const flag = flag_of(card)) return flag;
  auto* const made = static_cast<unsigned*>(allocate(Device::cuda(card.index()), sizeof(unsigned)));
  check(made != nullptr, ErrorCode::out_of_memory, "cuda:{}: {} bytes cannot be had", card.index(), sizeof(unsigned));
  const std::lock_guard lock(mutex);
  return flags().try_emplace(card.index(), made).first->second;
}

void refuse_clamped(Card& card, api::Stream stream) {
  unsigned* const flag = flag_of(card);
  if (flag == nullptr) return;
  unsigned raised = 0;
  copy_to_host(card, &raised, flag, sizeof raised, stream);
  synchronize(card, stream);
  if (raised == 0) return;
  fill_zero(card, flag, sizeof raised, stream);
  synchronize(card, stream);
  check(
      (raised & kClamped) != 0, ErrorCode::invalid_argument,
      "cuda:{}: since the last synchronisation a row of logits was drawn from that are all -inf or NaN; its id is -1: "
      "leave a token possible, or see to the model and its input",
      card.index());
  fail(ErrorCode::invalid_page,
       "cuda:{}: since the last synchronisation a plan was made or set on the card from a length, a page id or a "
       "choice of pages that is out of range; it was clamped, and the outputs are not right: see to kv_len, page_table "
       "and what was selected",
       card.index());
}

}  // namespace weft::cuda

#include "device/cuda/report.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kNothing = UINT64_MAX;

class ReportOnCard : public Report {
 public:
  ReportOnCard(Device device, size_t num_words, std::function<void(std::span<const uint64_t>)> refuse)
      : device_(device), refuse_(std::move(refuse)), nothing_(num_words, kNothing) {
    words_ = static_cast<uint64_t*>(allocate(device, bytes()));
    check(words_ != nullptr, ErrorCode::out_of_memory, "cuda:{}: {} bytes cannot be had", device.index, bytes());
    Card& card = Card::at(device.index);
    clear(card, nullptr);
    synchronize(card, nullptr);
  }
  ~ReportOnCard() override { release(device_, words_, bytes()); }
  ReportOnCard(const ReportOnCard&) = delete;
  ReportOnCard& operator=(const ReportOnCard&) = delete;
  uint64_t* words() const override { return words_; }
  int card() const { return device_.index; }

  void refuse_said(Card& card, api::Stream stream) const {
    std::vector<uint64_t> said(nothing_.size());
    copy_to_host(card, said.data(), words_, bytes(), stream);
    synchronize(card, stream);
    if (said == nothing_) return;
    clear(card, stream);
    synchronize(card, stream);
    refuse_(said);
  }

 private:
  void clear(Card& card, api::Stream stream) const { copy_to_card(card, words_, nothing_.data(), bytes(), stream); }

  size_t bytes() const { return nothing_.size() * sizeof(uint64_t); }

  const Device device_;
  uint64_t* words_ = nullptr;
  const std::function<void(std::span<const uint64_t>)> refuse_;
  const std::vector<uint64_t> nothing_;
};

std::mutex mutex;
std::vector<std::shared_ptr<const ReportOnCard>>& reports() {
  static auto* const all = new std::vector<std::shared_ptr<const ReportOnCard>>;  // as long as the process
  return *all;
}

}  // namespace

std::shared_ptr<Report> make_report(Device device, size_t num_words,
                                    std::function<void(std::span<const uint64_t>)> refuse) {
  auto report = std::make_shared<ReportOnCard>(device, num_words, std::move(refuse));
  const std::lock_guard lock(mutex);
  reports().push_back(report);
  return report;
}

void refuse_reported(Card& card, api::Stream stream) {
  std::vector<std::shared_ptr<const ReportOnCard>> all;
  {
    const std::lock_guard lock(mutex);
    all = reports();
  }
  for (const auto& report : all)
    if (report->card() == card.index()) report->refuse_said(card, stream);
  // Those that nobody writes to any more have been read: here and in the list are their last owners.
  const std::lock_guard lock(mutex);
  for (const auto& report : all)
    if (report->card() == card.index() && report.use_count() == 2) std::erase(reports(), report);
}

}  // namespace weft::cuda

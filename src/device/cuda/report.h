// What kernels say of numbers that only the card knows, in words of the card's memory: the next Stream::synchronize()
// reads them, and throws.
//
//   const std::shared_ptr<Report> report = make_report(device, 2, [](std::span<const uint64_t> words) { ... });
//   launch with report->words();            // all bits are set until a kernel says something
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "device/cuda/card.h"

namespace weft::cuda {

class Report {
 public:
  virtual ~Report() = default;
  virtual uint64_t* words() const = 0;
};

// `refuse` is called with words of which one says something, and throws. What was said before the caller let go of the
// report is read all the same. Throws Error(out_of_memory).
std::shared_ptr<Report> make_report(Device device, size_t num_words,
                                    std::function<void(std::span<const uint64_t>)> refuse);

// Of all reports of the card, the first made first: throws what the first one refuses whose words say something, and
// sets its bits again.
void refuse_reported(Card& card, api::Stream stream);

}  // namespace weft::cuda

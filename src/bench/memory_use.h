// How much memory work takes, as the system counts this process's pages.
//
//   const std::optional<double> mb = extra_mb_of([&] { layer.run(); });
#pragma once

#include <functional>
#include <optional>

namespace weft::bench {

// Megabytes that the process holds at most during a second call of `work`, beside what it held before the first: what
// the first makes and keeps counts. None where the system does not say.
std::optional<double> extra_mb_of(const std::function<void()>& work);

}  // namespace weft::bench

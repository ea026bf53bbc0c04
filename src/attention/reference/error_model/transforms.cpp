#include "attention/reference/error_model/transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/reference/text.h"

namespace weft::reference {
namespace {

constexpr double kMost = 0.25;  // of a logit, or a share of a probability where there is no softmax

}  // namespace

Transforms transforms(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors,
                      const Hooks& exact, const attention::Rounding& rounding) {
  Transforms t;
  const double unit = rounding.sums;
  if (spec.variant == variants::logits_soft_cap()) {
    // tanh, two products, 1 / cap.
    const double operations = 2 * rounding.tanh_ulps + 3;
    if (exact.logits)
      t.logits_error = [=, tanh_absolute = rounding.tanh_absolute, f = exact.logits](const Score& c, double s) {
        const double cap = std::abs(f(c, std::numeric_limits<double>::infinity()));  // infinite: there is none
        return operations * unit * std::abs(f(c, s)) + (std::isfinite(cap) ? tanh_absolute * cap : 0);
      };
  } else if (spec.variant == variants::alibi()) {
    // The penalty, which is what a score of 0 becomes, and the sum.
    t.logits_error = [=, f = exact.logits](const Score& c, double s) {
      return unit * (std::abs(f(c, 0)) + std::abs(f(c, s)));
    };
  } else if (exact.code != nullptr && !rounding.math.empty()) {
    const Hooks in_float = compiled_hooks(spec, plan, tensors, text_in_float(spec, rounding.math));
    // Twice the most that evaluations around s show: at one s roundings may happen to be small, and another order of
    // the same operations rounds elsewhere. What is more than kMost is no rounding, but a text that says something else
    // in float.
    if (exact.logits)
      t.logits_error = [f = exact.logits, rounded = in_float.logits, softmax = exact.use_softmax](const Score& c,
                                                                                                  double s) {
        double most = 0;
        for (const double step : {0., -0.43, -0.11, 0.17, 0.37}) {
          const double error = rounded(c, s + step) - f(c, s + step);
          if (std::isfinite(error)) most = std::max(most, std::abs(error));
        }
        return std::min(2 * most, kMost * (softmax ? 1 : std::max(1., std::abs(f(c, s)))));
      };
    t.query = in_float.query;
    t.key = in_float.key;
    t.value = in_float.value;
    t.output = in_float.output;
  }
  return t;
}

}  // namespace weft::reference
